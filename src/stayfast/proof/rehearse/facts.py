"""What was seen: attempts and trials as plain facts, from which the verdict is drawn and the reports are written."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from stayfast.proof.rehearse.differences import Difference, Steps
from stayfast.proof.rehearse.schedule import InterruptionKind, Kill, TrialPlan
from stayfast.proof.syscalls.events import FilePoint

Family = tuple[str, FilePoint]
Families = Mapping[Family, int]


class WriteCounts(NamedTuple):
    """How much was written: files opened for writing or named, and write calls."""

    opens: int
    calls: int


class AttemptObservation(NamedTuple):
    """One life of the program."""

    number: int
    began_seconds: float
    """Since the trial began."""
    seconds: float
    ran_seconds: float
    """Until it was interrupted; all of it if it was not."""
    code: int
    """As a shell says it: 128 + n when a signal ended it."""
    kill: Kill | None = None
    delivered: bool = False
    """Whether the kill came before the program had ended."""
    noticed: bool = False
    """Whether SIGTERM reached a handler."""
    overran: bool = False
    """Whether SIGKILL was needed at the end of the grace."""
    safe_seconds: float | None = None
    """From SIGTERM to its end by itself."""
    first_write_seconds: float | None = None
    cpu_seconds: float = 0.0
    write_calls: int = 0
    waited_seconds: float = 0.0
    """For how much of its time its first process stood ready while others had the cores."""
    opens: int = 0
    """Files opened for writing or named."""
    late: WriteCounts = WriteCounts(0, 0)
    """What of both came in the second half of its time; calls only of runs that nobody ever interrupts."""
    until_replaced: WriteCounts | None = None
    """Both when its replacement was started, where there was one beside it."""
    families: Families = MappingProxyType({})
    """The same, by family of files and point."""
    timed_out: bool = False
    last_words: str = ""
    at: str = ""
    """What it was doing when it was interrupted."""

    def on_its_own_clock(self) -> AttemptObservation:
        """As it would have been on a machine of its own: other load is no work. When it waited is not known, so every
        moment is moved alike."""
        if not 0.0 < self.waited_seconds < self.seconds:
            return self
        share = 1.0 - self.waited_seconds / self.seconds
        first = self.first_write_seconds
        return self._replace(
            seconds=share * self.seconds,
            ran_seconds=share * self.ran_seconds,
            first_write_seconds=None if first is None else share * first,
            waited_seconds=0.0,
        )

    @property
    def interrupted(self) -> bool:
        """Whether it was taken away before its end."""
        return self.delivered

    @property
    def kind(self) -> InterruptionKind | None:
        return self.kill.kind if self.kill is not None and self.delivered else None


class TrialObservation(NamedTuple):
    """All lives of the program in one directory."""

    plan: TrialPlan
    attempts: tuple[AttemptObservation, ...]
    seconds: float
    finished: bool
    """Whether an attempt that nobody interrupted left with 0, or one that was had all its work done."""
    differences: tuple[Difference, ...] = ()
    unfinished_zero: tuple[Difference, ...] = ()
    """What was missing when an interrupted attempt left with 0."""
    gave_up: str = ""
    """Why the controller stopped starting it again."""
    overwrote: tuple[str, ...] = ()
    """Files of the replacement that the old attempt has replaced."""
    wrote_after_replaced: bool = False
    """Whether the old attempt wrote anything after its replacement had begun."""
    steps: Steps = MappingProxyType({})
    """The fingerprints of every step, where the program leaves them."""

    @property
    def delivered(self) -> list[Kill]:
        """The kills that came in time."""
        return [attempt.kill for attempt in self.attempts if attempt.kill is not None and attempt.delivered]


class BaselineObservation(NamedTuple):
    """The uninterrupted run, on its own clock."""

    seconds: float
    cpu_seconds: float
    write_calls: int
    first_write_seconds: float
    opens: int = 0
    families: Families = MappingProxyType({})
    """Only those that come as it works, and that two uninterrupted runs agree on.

    A queue that is filled before is half of the files and none of the work; a background task writes as it likes.
    """
    steady_writes: bool = False
    """Whether it writes as it works, so that the number of its writes tells how far an attempt has come."""
    steady_opens: bool = False
    """The same for files that it begins or names."""
    prepared: Families = MappingProxyType({})
    """Files that are all there before the first of those that come as it works."""
    prepared_calls: int = 0
    """How often it had written by then."""
    late: WriteCounts = WriteCounts(0, 0)
    """What it wrote in the second half of its time."""
    idle: AttemptObservation | None = None
    """A start that found everything done: what every attempt pays, however much it keeps. None where nobody knows."""
