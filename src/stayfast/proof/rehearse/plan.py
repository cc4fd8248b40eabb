"""The values that a rehearsal is made of: what is known of the program, and when it will be interrupted."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import NamedTuple

from stayfast.proof.syscalls.file_point import Point


class InterruptionKind(enum.StrEnum):
    """How an attempt is taken away."""

    TERM = "term"  # SIGTERM, the grace, SIGKILL
    KILL = "kill"  # SIGKILL without a word
    KILL_DURING_RESUME = "kill-during-resume"  # a second one while the next attempt is still getting ready
    OVERLAP = "overlap"  # SIGTERM while the replacement runs already
    FREEZE = "freeze"  # stopped, replaced, and then it goes on: a zombie writer


DEFAULT_KINDS = (InterruptionKind.TERM, InterruptionKind.KILL, InterruptionKind.KILL_DURING_RESUME)
TWO_WRITERS = (InterruptionKind.OVERLAP, InterruptionKind.FREEZE)


class AtTime(NamedTuple):
    """After a share of the baseline's duration in this attempt."""

    fraction: float

    def __str__(self) -> str:
        return f"at {self.fraction:.0%} of the baseline's duration"


class AtEvent(NamedTuple):
    """At the n-th time that the attempt gets to this point with a file of this family."""

    family: str
    point: Point
    nth: int

    def __str__(self) -> str:
        return f"at {self.point} {self.nth} of {self.family}"


class AtResume(NamedTuple):
    """In a share of the time that the baseline took to its first write; at the first write at the latest.

    Or, with ``touches``, once it has changed so many files and is about to change the next one: whoever moves its
    checkpoint away as it reads it has none now.
    """

    fraction: float
    touches: int = 0

    def __str__(self) -> str:
        if self.touches:
            return "right after the first change of a file while resuming"
        return f"at {self.fraction:.0%} of the way to the first write after resuming"


Moment = AtTime | AtEvent | AtResume


class Kill(NamedTuple):
    """One interruption; numbers count through all trials of a seed."""

    number: int
    kind: InterruptionKind
    moment: Moment

    def __str__(self) -> str:
        return f"kill {self.number} ({self.kind} {self.moment})"


class TrialPlan(NamedTuple):
    """The interruptions of one trial, one per attempt."""

    number: int
    kills: tuple[Kill, ...]

    def earlier(self, factor: float) -> TrialPlan:
        """The same with earlier moments, for a program that was done before they came."""
        return self._replace(kills=tuple(kill._replace(moment=_earlier(kill.moment, factor)) for kill in self.kills))

    def stretched(self, factor: float) -> TrialPlan:
        """The same for a machine that has become slower by this much since the baseline ran."""
        moments = [
            AtTime(kill.moment.fraction * factor) if isinstance(kill.moment, AtTime) else kill.moment
            for kill in self.kills
        ]
        kills = (kill._replace(moment=moment) for kill, moment in zip(self.kills, moments, strict=True))
        return self._replace(kills=tuple(kills))

    def only(self, numbers: frozenset[int]) -> TrialPlan:
        """The same with these kills alone."""
        return self._replace(kills=tuple(kill for kill in self.kills if kill.number in numbers))


def _earlier(moment: Moment, factor: float) -> Moment:
    if isinstance(moment, AtEvent):
        return moment._replace(nth=max(1, int(moment.nth * factor)))
    return moment._replace(fraction=moment.fraction * factor)


class Profile(NamedTuple):
    """What the uninterrupted run has taught about the program."""

    seconds: float
    first_write_seconds: float
    """Until it first touched a file of its own; its whole duration if it never did."""
    handler_seconds: float | None
    """Until its first process handled or waited for SIGTERM; None if it never did."""
    events: Mapping[tuple[str, Point], int]
    """How often each point was reached with each family of files."""
