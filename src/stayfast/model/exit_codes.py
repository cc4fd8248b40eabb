"""The exit contract: one table that the runtime leaves by, ``exec`` restores, and manifests are rendered from."""

from __future__ import annotations

import enum
from typing import NamedTuple

FINISHED = 0
FAILED = 1
INTERRUPTED = 75  # os.EX_TEMPFAIL: try again later
KILLED, TERMINATED = 137, 143  # 128 + SIGKILL, 128 + SIGTERM, as a shell writes them
NOT_COUNTED = frozenset({INTERRUPTED, KILLED, TERMINATED})
"""Exit codes that cost a Job nothing, with the rendered policy."""

FIRST_BACKOFF_SECONDS, LONGEST_BACKOFF_SECONDS = 10.0, 600.0
"""The Job controller's own delay before it replaces a disrupted pod: it doubles, and only a success resets it."""


class Outcome(enum.StrEnum):
    """How an attempt ended."""

    FINISHED = "finished"
    INTERRUPTED = "interrupted"
    FAILED = "failed"
    STOPPED = "stopped"  # the program left its loop before ``total_steps``: saved, resumable, its own exit code
    LOST = "lost"  # killed without a word; only the next attempt can say so


class ExitMeaning(NamedTuple):
    """One row of the contract."""

    code: int
    meaning: str
    job_does: str


CONTRACT = (
    ExitMeaning(FINISHED, "all work is done", "counts the pod as succeeded; never used while work is left"),
    ExitMeaning(
        INTERRUPTED,
        "interrupted and safe to resume",
        "podFailurePolicy ignores it (onExitCodes In [75, 143]): replaced, not counted against backoffLimit",
    ),
    ExitMeaning(FAILED, "failed by itself", "counted against backoffLimit, retried with back-off until it is used up"),
)
