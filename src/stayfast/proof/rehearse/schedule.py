"""From a seed to the interruptions: pure, so that a seed and a kill's number are enough to see a failure again.

The first kill of every trial goes where programs break: each kind comes once at a plain moment, late enough that losing
everything shows, and in between come the points that were found by watching the baseline, one after another. The kills
after it hit later attempts, early enough that the program cannot have finished before they come.
"""

from __future__ import annotations

import enum
import itertools
import random
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from stayfast.proof.syscalls.events import FilePoint

_EARLIER = (0.5, 0.1)  # of the moment, for a program that was done before it
# The most telling first: a torn file, a name not given, a file half written, an append, the moment before, a claim
_DANGER = (
    FilePoint.FIRST_WRITE,
    FilePoint.RENAME,
    FilePoint.LATER_WRITE,
    FilePoint.WRITE,
    FilePoint.CHANGE,
    FilePoint.OPEN,
    FilePoint.REMOVE,
)
# What a zombie does harm by; a file of records that this attempt has begun grows by later writes alone
_REPLACING = (
    FilePoint.RENAME,
    FilePoint.OPEN,
    FilePoint.WRITE,
    FilePoint.CHANGE,
    FilePoint.FIRST_WRITE,
    FilePoint.LATER_WRITE,
)
_LATE = (0.62, 0.86)  # past half of the baseline, so that starting over shows
_LATE_COUNT = (0.55, 0.92)  # the same for events, of which the first half may come early
_LATER_SHARE = (0.02, 0.12)  # of the baseline, for kills after the first


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
    point: FilePoint
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

    def with_earlier(self) -> list[TrialPlan]:
        """This plan, and the same with ever earlier moments."""
        return [self, *(self.earlier(factor) for factor in _EARLIER)]

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
    events: Mapping[tuple[str, FilePoint], int]
    """How often each point was reached with each family of files."""


Row = tuple[InterruptionKind, Moment]


def schedule(
    profile: Profile, *, kinds: Sequence[InterruptionKind], kills: int, trials: int, seed: int
) -> list[TrialPlan]:
    """The trials of a seed, each with this many kills."""
    # Frozen, with the product's first name: another string would give every seed another schedule.
    chance = random.Random(f"holdfast rehearse {seed}")
    aims = _AimCycle(profile, kinds, chance)
    openings = [next(rows) for rows in [_openings(kinds, aims, chance)] for _ in range(trials)]
    plans = []
    for index, (kind, moment) in enumerate(openings):
        rows: list[Row] = [(kind, moment)]
        if kind is InterruptionKind.KILL_DURING_RESUME:
            rows = [(InterruptionKind.KILL, moment), (kind, aims.resume())]
        while len(rows) < kills:
            rows.append(_following(kinds, aims, chance))
        numbered = (Kill(index * kills + place + 1, *row) for place, row in enumerate(rows[:kills]))
        plans.append(TrialPlan(index + 1, tuple(numbered)))
    return plans


def _openings(kinds: Sequence[InterruptionKind], aims: _AimCycle, chance: random.Random) -> Iterator[Row]:
    """First kills, without end: a plain one, then two that are aimed."""
    for kind in itertools.cycle(kinds):
        yield kind, AtTime(chance.uniform(*_LATE))
        for _ in range(2):
            yield aims.next(late=True)


def _following(kinds: Sequence[InterruptionKind], aims: _AimCycle, chance: random.Random) -> Row:
    """A kill for an attempt that resumes with an unknown rest of the work."""
    if InterruptionKind.KILL_DURING_RESUME in kinds and (len(kinds) == 1 or chance.random() < 0.25):
        return InterruptionKind.KILL_DURING_RESUME, aims.resume()
    if chance.random() < 0.5:
        return aims.next(late=False)
    plain = [kind for kind in kinds if kind is not InterruptionKind.KILL_DURING_RESUME] or [InterruptionKind.KILL]
    return chance.choice(plain), AtTime(chance.uniform(*_LATER_SHARE))


class _AimCycle:
    """Deals the points of the baseline to the kinds, so that all are reached before one comes twice."""

    def __init__(self, profile: Profile, kinds: Sequence[InterruptionKind], chance: random.Random) -> None:
        self._events = profile.events
        self._chance = chance
        wanted = [kind for kind in kinds if kind is not InterruptionKind.KILL_DURING_RESUME] or [InterruptionKind.KILL]
        # No handler can soften a kill, so it gets two points where the others get one.
        self._kinds = itertools.cycle(
            sorted(
                [*wanted, *(kind for kind in wanted if kind is InterruptionKind.KILL)],
                key=lambda kind: kind is not InterruptionKind.KILL,
            )
        )
        self._touches = itertools.cycle((0, 1) if profile.events else (0,))
        self._points = {kind: itertools.cycle(self._ordered(kind)) for kind in wanted if self._ordered(kind)}

    def _ordered(self, kind: InterruptionKind) -> list[tuple[str, FilePoint]]:
        order = _REPLACING if kind in TWO_WRITERS else _DANGER
        known = [key for key in self._events if key[1] in order]
        return sorted(known, key=lambda key: (self._events[key] < 2, order.index(key[1]), key[0]))

    def resume(self) -> AtResume:
        """Before an attempt has touched anything that was left to it, or right after, by turns."""
        return AtResume(self._chance.uniform(0.2, 1.0), next(self._touches))

    def next(self, *, late: bool) -> Row:
        """The next kind at its next point; a plain moment for a program that touches no file."""
        kind = next(self._kinds)
        if kind not in self._points:
            return kind, AtTime(self._chance.uniform(0.1, 0.95) if late else self._chance.uniform(*_LATER_SHARE))
        family, point = next(self._points[kind])
        count = self._events[family, point]
        nth = max(1, round(count * self._chance.uniform(*_LATE_COUNT))) if late else 1
        return kind, AtEvent(family, point, nth)
