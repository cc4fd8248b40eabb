"""One answer to "why does it not run": a cause with a code, its evidence, what to do, how long is normal."""

from __future__ import annotations

import enum
from typing import Any, NamedTuple


class Verdict(enum.StrEnum):
    """Whether somebody has to do something."""

    FINE = "fine"
    WAIT = "wait"
    ACT = "act"


class Diagnosis(NamedTuple):
    """The answer."""

    code: str
    verdict: Verdict
    cause: str
    evidence: tuple[str, ...] = ()
    fix: str = ""
    usual_wait: str = ""
    also: tuple[str, ...] = ()
    """Things that are not the cause but will be next."""

    def to_json(self) -> dict[str, Any]:
        """For ``--output json``."""
        found = self._asdict()
        found["verdict"] = self.verdict.value
        found["evidence"], found["also"] = list(self.evidence), list(self.also)
        return found


# How long such waits are, and how we know.
REPLACEMENT_WAIT = (
    "the Job controller waits 10 s before the first replacement, then 20 s, 40 s … up to 10 minutes; only a pod that "
    "succeeds resets it (measured on Kubernetes 1.36)"
)
NODE_LOST_WAIT = "about 65 s after the Node object is gone (measured on Kubernetes 1.36)"
SCALE_UP_WAIT = "about 6 minutes for node, image and start where there is capacity (the plan's assumption)"
FLEX_START_WAIT = (
    "queue times are not published; the plan assumes that half are below an hour per node and one in twenty above seven"
)
