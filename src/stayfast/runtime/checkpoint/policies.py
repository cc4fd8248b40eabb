"""When to save and what to keep: small policies with one method that combine with ``|``.

::

    EverySteps(1000) | EverySeconds(600)
    YoungDaly()                                # the default
    HazardRule(lambda age: 1 / 7200)
    KeepLast(3) | KeepEvery(10_000)            # what to keep: the newest checkpoint always

The default balances what checkpoints cost against what interruptions destroy: saving every sqrt(2 · cost · M) seconds
loses least when interruptions come once every M seconds on average (J. W. Young 1974, J. T. Daly 2006). Cost and M are
measured in the run itself. On a notice and at the end the session saves whatever the cadence says.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from stayfast.runtime.run_record.record import CheckpointRecord

SHORTEST_SECONDS = 30.0
LONGEST_SECONDS = 1800.0
ASSUMED_MEAN_SECONDS = 4 * 3600.0
"""Mean time between interruptions until the run has seen one; any error in it is halved by the square root."""


@dataclass(frozen=True, slots=True)
class CadenceInput:
    """What a policy may look at, at the end of a step."""

    step: int
    steps_since_save: int
    seconds_since_save: float
    save_seconds: float = 0.0
    """What one save costs the training loop, measured; 0 until there was one."""
    persist_seconds: float = 0.0
    """How long a save takes in the background: saving more often than that is no use."""
    interruptions: int = 0
    """Interruptions of this run that the ledger knows."""
    run_seconds: float = 0.0
    """Seconds over which they were counted."""
    age_seconds: float = 0.0
    """How long this machine has been ours."""


class Cadence(ABC):
    """Base of the policies; anything with ``is_due`` may stand in for one."""

    @abstractmethod
    def is_due(self, moment: CadenceInput) -> bool:
        """Whether to save at the end of this step."""

    def next_check(self, _moment: CadenceInput) -> tuple[float, float]:
        """Seconds and steps from now before which ``is_due`` cannot turn true; whichever comes first ends the pause.

        It spares the hot loop the question. A policy that cannot tell is asked at every step.
        """
        return math.inf, 1

    def __or__(self, other: Cadence) -> Cadence:
        return AnyOf(self, other)


@dataclass(frozen=True, slots=True)
class EverySteps(Cadence):
    """After every ``count`` steps."""

    count: int
    """How many."""

    def __post_init__(self) -> None:
        _positive("count", self.count)

    def is_due(self, moment: CadenceInput) -> bool:
        return moment.steps_since_save >= self.count

    def next_check(self, moment: CadenceInput) -> tuple[float, float]:
        return math.inf, self.count - moment.steps_since_save


@dataclass(frozen=True, slots=True)
class EverySeconds(Cadence):
    """At the first step that ends ``seconds`` after the last save."""

    seconds: float
    """How many."""

    def __post_init__(self) -> None:
        _positive("seconds", self.seconds)

    def is_due(self, moment: CadenceInput) -> bool:
        return moment.seconds_since_save >= self.seconds

    def next_check(self, moment: CadenceInput) -> tuple[float, float]:
        return self.seconds - moment.seconds_since_save, math.inf


@dataclass(frozen=True, slots=True)
class YoungDaly(Cadence):
    """sqrt(2 · cost · mean time between interruptions), both measured, within limits."""

    shortest_seconds: float = SHORTEST_SECONDS
    """Never more often than this."""
    longest_seconds: float = LONGEST_SECONDS
    """Never more seldom."""
    assumed_mean_seconds: float = ASSUMED_MEAN_SECONDS
    """Between interruptions, until the run has seen some."""

    def is_due(self, moment: CadenceInput) -> bool:
        return moment.seconds_since_save >= self.interval_seconds(moment)

    def next_check(self, moment: CadenceInput) -> tuple[float, float]:
        return self.interval_seconds(moment) - moment.seconds_since_save, math.inf

    def interval_seconds(self, moment: CadenceInput) -> float:
        """What the rule says now."""
        # One assumed interruption counts like an observed one, so that the first real ones move the mean, not jump it.
        mean = (self.assumed_mean_seconds + moment.run_seconds) / (1 + moment.interruptions)
        return _clamp(math.sqrt(2 * moment.save_seconds * mean), self.shortest_seconds, self.longest_seconds, moment)


@dataclass(frozen=True, slots=True)
class HazardRule(Cadence):
    """sqrt(2 · cost / hazard(age)): for capacity whose risk changes with the age of the machine."""

    hazard: Callable[[float], float]
    """Interruptions per second at this age in seconds."""
    shortest_seconds: float = SHORTEST_SECONDS
    """Never more often than this."""
    longest_seconds: float = LONGEST_SECONDS
    """Never more seldom."""

    def is_due(self, moment: CadenceInput) -> bool:
        return moment.seconds_since_save >= self.interval_seconds(moment)

    def next_check(self, moment: CadenceInput) -> tuple[float, float]:
        return self.shortest_seconds - moment.seconds_since_save, math.inf  # the hazard may rise meanwhile

    def interval_seconds(self, moment: CadenceInput) -> float:
        """What the rule says at this age; no risk at all means the longest interval."""
        rate = self.hazard(moment.age_seconds)
        ideal = math.sqrt(2 * moment.save_seconds / rate) if rate > 0 else math.inf
        return _clamp(ideal, self.shortest_seconds, self.longest_seconds, moment)


class AnyOf(Cadence):
    """Due when any of them is."""

    def __init__(self, *policies: Cadence) -> None:
        self.policies = policies

    def is_due(self, moment: CadenceInput) -> bool:
        return any(policy.is_due(moment) for policy in self.policies)

    def next_check(self, moment: CadenceInput) -> tuple[float, float]:
        looks = [policy.next_check(moment) for policy in self.policies]
        return min(seconds for seconds, _ in looks), min(steps for _, steps in looks)


def _clamp(seconds: float, shortest: float, longest: float, moment: CadenceInput) -> float:
    return max(min(max(seconds, shortest), longest), moment.persist_seconds)


def _positive(name: str, value: float) -> None:
    if not value > 0:
        raise ValueError(f"{name} must be more than 0, not {value}")


class Retention(ABC):
    """Base of the policies; anything with ``keeps`` may stand in for one."""

    @abstractmethod
    def select(self, checkpoints: Sequence[CheckpointRecord]) -> set[CheckpointRecord]:
        """Those to keep, of all that are committed, newest first."""

    def __or__(self, other: Retention) -> Retention:
        return KeepAny(self, other)


@dataclass(frozen=True, slots=True)
class KeepLast(Retention):
    """The newest ``count``. Two is the least that survives a damaged newest one."""

    count: int = 2
    """How many."""

    def __post_init__(self) -> None:
        if self.count < 1:
            raise ValueError(f"count must be at least 1, not {self.count}")

    def select(self, checkpoints: Sequence[CheckpointRecord]) -> set[CheckpointRecord]:
        return set(checkpoints[: self.count])


@dataclass(frozen=True, slots=True)
class KeepEvery(Retention):
    """One per ``steps`` steps: the first checkpoint in each stretch of that many."""

    steps: int
    """How many."""

    def __post_init__(self) -> None:
        if self.steps < 1:
            raise ValueError(f"steps must be at least 1, not {self.steps}")

    def select(self, checkpoints: Sequence[CheckpointRecord]) -> set[CheckpointRecord]:
        first: dict[int, CheckpointRecord] = {}
        for committed in checkpoints:  # newest first, so the oldest of a stretch stays
            first[committed.step // self.steps] = committed
        return set(first.values())


class KeepAll(Retention):
    """Everything."""

    def select(self, checkpoints: Sequence[CheckpointRecord]) -> set[CheckpointRecord]:
        return set(checkpoints)


class KeepAny(Retention):
    """What any of them keeps."""

    def __init__(self, *policies: Retention) -> None:
        self.policies = policies

    def select(self, checkpoints: Sequence[CheckpointRecord]) -> set[CheckpointRecord]:
        return set().union(*(policy.select(checkpoints) for policy in self.policies))


def apply_retention(policy: Retention, checkpoints: Sequence[CheckpointRecord]) -> tuple[CheckpointRecord, ...]:
    """The list to write into the next head: newest first, and never without the newest."""
    kept = policy.select(checkpoints) | set(checkpoints[:1])
    return tuple(item for item in checkpoints if item in kept)
