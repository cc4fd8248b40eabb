"""Who takes part in an attempt, and what they agree on: one process alone here, the ranks of a group in `rank_group`.

The loop, the saver and the restore call the same methods in both cases.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from stayfast.runtime.run_record.owner import RecordOwner, RetentionFilter
    from stayfast.runtime.run_record.record import AttemptRecord, CheckpointRecord, RunRecord


class SaveWish(NamedTuple):
    """What one process wants at the end of a step."""

    requested: bool
    """The program asked for a checkpoint."""
    idle: bool
    """No save is in flight, and there is no notice."""
    due: bool = False
    """The cadence wants a checkpoint."""
    next_check: tuple[float, float] = (0.0, 0.0)
    """Seconds and steps from now after which to decide again."""
    step_seconds: float = 0.0
    """How long a step takes."""


class Coordination(Protocol):
    """The processes of one attempt: one of them writes the run's record, all of them save and stop together."""

    rank: int
    size: int
    next_decision: float | None
    """The step at whose end the processes decide again whether to save; None when the cadence of this one decides."""

    @property
    def is_leader(self) -> bool:
        """Whether this process writes the run's record."""

    def claim(self, owner: RecordOwner, row: AttemptRecord, check: Callable[[RunRecord], None]) -> None:
        """Claim the run once for all processes; ``check`` may refuse what was claimed."""

    def reread(self, owner: RecordOwner) -> RunRecord | None:
        """The record as it is now; None where the processes must all judge by the record that was claimed."""

    def agree_on_restore(self, checkpoint: CheckpointRecord, problem: str | None) -> str | None:
        """The first problem that any process has with this checkpoint; None when all can restore it."""

    def watch(self, stop_at_next_boundary: Callable[[], int]) -> None:
        """Pass notices between the processes; the function holds the loop and returns the step it has reached."""

    def last_step(self, completed: int, reached: int, within_seconds: float = float("inf")) -> int | None:
        """The step after which all stop; None when a process does not answer before the deadline."""

    def leave_together(self, step: int) -> bool:
        """Whether all processes leave their loops early after this step."""

    def decides_after(self, step: int) -> bool:
        """Whether this process has to decide at the end of this step if there is a save."""

    def decide_save(self, step: int, wish: SaveWish) -> bool | None:
        """Whether all save after this step; None when the process that decides does not answer."""

    def commit(
        self, owner: RecordOwner, mine: CheckpointRecord, *, keep: RetentionFilter, finished: bool, **row: Any
    ) -> RunRecord:
        """Commit a checkpoint when every process has made its part durable."""

    def report_failed_save(self, step: int, reason: str) -> None:
        """This process has no part to commit: the others do not wait for one."""

    def check_owner(self, owner: RecordOwner) -> None:
        """Raise ``SupersededError`` when a newer attempt owns the run."""

    def close(self) -> None:
        """End the conversation."""


class SingleProcess:
    """One process: it decides for itself, at once."""

    rank = 0
    size = 1
    is_leader = True
    next_decision: float | None = None

    def claim(self, owner: RecordOwner, row: AttemptRecord, check: Callable[[RunRecord], None]) -> None:
        check(owner.claim(row))

    def reread(self, owner: RecordOwner) -> RunRecord | None:
        return owner.reread()

    def agree_on_restore(self, checkpoint: CheckpointRecord, problem: str | None) -> str | None:  # noqa: ARG002
        return problem

    def watch(self, stop_at_next_boundary: Callable[[], int]) -> None:
        pass

    def last_step(self, completed: int, reached: int, within_seconds: float = 0.0) -> int | None:  # noqa: ARG002
        return completed

    def leave_together(self, step: int) -> bool:  # noqa: ARG002
        return True

    def decides_after(self, step: int) -> bool:  # noqa: ARG002
        return True

    def decide_save(self, step: int, wish: SaveWish) -> bool | None:  # noqa: ARG002
        return wish.idle and (wish.requested or wish.due)

    def commit(
        self, owner: RecordOwner, mine: CheckpointRecord, *, keep: RetentionFilter, finished: bool, **row: Any
    ) -> RunRecord:
        return owner.commit(mine, keep=keep, finished=finished, **row)

    def report_failed_save(self, step: int, reason: str) -> None:
        pass

    def check_owner(self, owner: RecordOwner) -> None:
        owner.check_owner()

    def close(self) -> None:
        pass
