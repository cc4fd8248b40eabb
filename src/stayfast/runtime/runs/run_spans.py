"""The spans of one attempt: its steps between saves, its saves, and the notice that ended it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from stayfast.model.exit_codes import Outcome
from stayfast.telemetry import spans

if TYPE_CHECKING:
    from stayfast.runtime.interruption.guard import Guard
    from stayfast.runtime.runs.opening import OpenRun
    from stayfast.runtime.runs.run_metrics import Progress


class RunSpanRecorder(spans.SpanRecorder):
    """Knows about steps: those between two saves are one span, and saves say which step they hold."""

    def __init__(self, provider: Any, guard: Guard, opened: OpenRun, progress: Progress) -> None:
        settings = guard.settings
        about = {"run": opened.url or "", "attempt": opened.attempt, "rank": settings.rank}
        about |= {"capacity": settings.capacity, "zone": settings.zone, "machine": settings.machine}
        super().__init__(provider, guard.clock, spans.ATTEMPT, about)
        self._guard, self._opened, self._progress = guard, opened, progress
        self._since, self._covered_step = guard.clock.wall(), opened.next_step - 1

    def on_measurement(self, kind: str, seconds: float, about: Mapping[str, Any]) -> None:
        """Add the step, where it is known."""
        now = self._clock.wall()
        if kind == "restore":
            self._since, self._covered_step = now, int(about["step"])
        elif kind == "snapshot":
            about = {"step": self._progress()[0]}
            self._steps(now - seconds)
            self._since = now
        elif kind == "persist" and self._opened.record is not None and self._opened.record.newest is not None:
            newest = self._opened.record.newest
            about = {"step": newest.step, "bytes": newest.size}
        super().on_measurement(kind, seconds, about)

    def _steps(self, until: float) -> None:
        """All that were done since the last save."""
        last = self._progress()[0]
        if last > self._covered_step:
            self.add(spans.STEPS, self._since, until, {"first_step": self._covered_step + 1, "last_step": last})
            self._covered_step = last

    def finish(self) -> None:
        """How it ended, as the run's own record has it."""
        now = self._clock.wall()
        self._steps(now)
        row = self._opened.record.current_attempt if self._opened.record is not None else None
        notice = self._guard.notice
        if notice is not None:
            began = now - max(0.0, self._clock.monotonic() - notice.received_at)
            safe = row.safe_seconds if row is not None else None
            about = {"cause": str(notice.cause), "safe": safe is not None}
            self.add(spans.NOTICE, began, now if safe is None else began + safe, about)
        outcome = row.outcome if row is not None else None
        ended: dict[str, Any] = {"saved_step": self._opened.next_step - 1}
        if row is not None and outcome is not None:
            ended |= {"outcome": outcome.value, "cause": row.cause or ""}
        self.end(ended, failed=outcome is Outcome.FAILED, seconds=self._guard.budget.remaining_seconds / 2)


def begin_run(guard: Guard, opened: OpenRun, progress: Progress) -> Callable[[], None]:
    """Spans of one attempt, until the returned function is called."""
    provider = spans.find_provider()
    if provider is None:
        return lambda: None
    recorder = RunSpanRecorder(provider, guard, opened, progress)
    guard.durations.listen(recorder.on_measurement)

    def end() -> None:
        guard.durations.listen(None)
        recorder.finish()

    return end
