"""How the loop has spent its time: working, waiting for copies, and since the newest commit."""

from __future__ import annotations

from stayfast.clock import Clock
from stayfast.runtime.checkpoint.policies import CadenceInput


class LoopTime:
    """The clock of one attempt's loop; all zero before it begins."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._started = 0.0
        self._saved_at = 0.0
        self._committed_at = 0.0  # when the state of the newest commit was copied: what came after is not safe yet
        self.saved_step = -1
        self.saves = 0
        self.stalled_seconds = 0.0
        """How long the loop has waited for copies: what checkpoints really cost it."""

    def begin(self, next_step: int) -> None:
        """Time counts from here."""
        self._started = self._saved_at = self._committed_at = self._clock.monotonic()
        self.saved_step = next_step - 1

    def add_copy(self, step: int, started: float) -> float:
        """The loop waited for a copy of its state since ``started``; returns when the copy was complete."""
        self._saved_at, self.saved_step = self._clock.monotonic(), step
        self.stalled_seconds += self._saved_at - started
        self.saves += 1
        return self._saved_at

    def add_commit(self, copied_at: float) -> None:
        """The state that was copied then is committed."""
        self._committed_at = copied_at

    def moment(self, step: int, *, persist_seconds: float, interruptions: int) -> CadenceInput:
        """What the cadence may look at, at the end of this step."""
        now = self._clock.monotonic()
        return CadenceInput(
            step=step,
            steps_since_save=step - self.saved_step,
            seconds_since_save=now - self._saved_at,
            save_seconds=self.stalled_seconds / self.saves if self.saves else 0.0,
            persist_seconds=persist_seconds,
            interruptions=interruptions,
            run_seconds=now - self._started,
            age_seconds=now - self._started,
        )

    @property
    def overhead(self) -> float:
        """The share of the loop's time that checkpoints have cost it."""
        spent = self._clock.monotonic() - self._started
        return self.stalled_seconds / spent if self._started and spent > 0 else 0.0

    def record_fields(self, *, lost: bool = False) -> dict[str, float]:
        """The times for the attempt's record; with ``lost``, what was done after the newest commit is not useful."""
        now = self._clock.monotonic()
        useful = round(max(0.0, now - (self._started or now) - self.stalled_seconds), 3)
        fields = {"useful_seconds": useful, "save_seconds": round(self.stalled_seconds, 3)}
        if lost and self._committed_at:
            lost_seconds = min(useful, max(0.0, now - self._committed_at))
            fields |= {
                "lost_seconds": round(lost_seconds, 3),
                "useful_seconds": round(useful - lost_seconds, 3),
            }
        return fields
