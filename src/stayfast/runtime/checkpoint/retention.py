"""What to keep: small policies with one method that combine with ``|``. The newest checkpoint is always kept.

::

    KeepLast(3) | KeepEvery(10_000)
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from stayfast.runtime.run_record.record import CheckpointRecord


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
