"""One answer to "why does it not run": a cause with a code, its evidence, what to do, how long is normal."""

from __future__ import annotations

import enum
from typing import Any, NamedTuple


class Verdict(enum.StrEnum):
    """Whether somebody has to do something."""

    FINE = "fine"
    WAIT = "wait"
    ACT = "act"


class Explanation(NamedTuple):
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


def line(*parts: Any) -> str:
    """One evidence line: parts joined, spaces folded, kept short; nothing in it can steer a terminal."""
    text = printable(" ".join(" ".join(str(part).split()) for part in parts if part))
    return text if len(text) <= 400 else text[:399] + "…"


def printable(text: str) -> str:
    """For a terminal: what comes from a cluster must not move the cursor, change colours or reverse the line."""
    if text.isprintable():
        return text
    return "".join(character if character.isprintable() else "?" for character in text)


def duration(seconds: float) -> str:
    """``2 h 10 min`` for a person."""
    seconds = max(0.0, seconds)
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} min"
    if seconds < 172_800:
        return f"{int(seconds // 3600)} h {int(seconds % 3600 // 60)} min"
    return f"{int(seconds // 86_400)} d {int(seconds % 86_400 // 3600)} h"
