"""What a run shows while it lives: its counters as samples for a scrape, and its spans."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import TYPE_CHECKING

from stayfast.clock import from_rfc3339
from stayfast.model.exit_codes import Outcome
from stayfast.runtime.run_record.billing import bill_run, unaccounted_seconds
from stayfast.runtime.runs.run_spans import begin_run
from stayfast.telemetry.metric_table import METRICS
from stayfast.telemetry.metrics_server import start_metrics_server
from stayfast.telemetry.prometheus import PrometheusText

if TYPE_CHECKING:
    from stayfast.runtime.interruption.guard import Guard
    from stayfast.runtime.run_record.record import RunRecord
    from stayfast.runtime.runs.opening import OpenRun
    from stayfast.runtime.runs.saving import CheckpointSaver

Progress = Callable[[], tuple[int, int | None]]
"""The last step that was finished, and how many there are to do."""


def start_telemetry(guard: Guard, opened: OpenRun, saver: CheckpointSaver, progress: Progress) -> Callable[[], None]:
    """Begin with what the settings ask for; the returned function ends it."""
    settings = guard.settings
    ends: list[Callable[[], None]] = []
    if settings.metrics_port and settings.rank == 0:

        def read() -> PrometheusText:
            step, total = progress()
            return sample_run(guard, opened, saver, step=step, total=total)

        ends.append(start_metrics_server(settings, read))
    if settings.spans == "on":
        ends.append(begin_run(guard, opened, progress))

    def end() -> None:
        for each in ends:
            each()

    return end


def sample_run(
    guard: Guard, opened: OpenRun, saver: CheckpointSaver, *, step: int, total: int | None
) -> PrometheusText:
    """One scrape of a training process."""
    out = PrometheusText(METRICS)
    run = opened.url or ""
    add_notice(out, guard)
    out.add_sample("stayfast_step", step, run=run)
    out.add_sample("stayfast_total_steps", total, run=run)
    times = sorted(guard.durations.series("step"))
    for share in (0.5, 0.95):
        if times:
            out.add_sample(
                "stayfast_step_seconds", times[min(len(times) - 1, int(share * len(times)))], run=run, quantile=share
            )
    out.add_sample("stayfast_checkpoints_total", saver.loop_time.saves, run=run)
    out.add_sample("stayfast_checkpoint_failures_total", saver.failures, run=run)
    out.add_sample("stayfast_checkpoint_stall_seconds_total", saver.loop_time.stalled_seconds, run=run)
    out.add_sample("stayfast_checkpoint_persist_seconds_total", saver.persist_seconds, run=run)
    out.add_sample("stayfast_checkpoint_bytes_total", saver.committed_bytes, run=run)
    if opened.record is not None:
        _add_record(out, run, opened.record, guard)
    return out


def _add_record(out: PrometheusText, run: str, head: RunRecord, guard: Guard) -> None:
    bill = bill_run(head, guard.settings.run_usd_per_hour)
    out.add_sample(
        "stayfast_run_info",
        1,
        run=run,
        attempt=head.attempt,
        capacity=head.current_attempt.capacity,
        zone=head.current_attempt.zone,
    )
    out.add_sample("stayfast_attempts_total", bill["attempts"], run=run)
    causes: dict[str, int] = {}
    for row in head.attempts:
        if row.outcome in (Outcome.INTERRUPTED, Outcome.LOST):
            cause = "killed" if row.outcome is Outcome.LOST else row.cause or "unknown"
            causes[cause] = causes.get(cause, 0) + 1
    for cause, count in sorted(causes.items()):
        out.add_sample("stayfast_interruptions_total", count, run=run, cause=cause)
    out.add_sample("stayfast_failures_total", sum(row.outcome is Outcome.FAILED for row in head.attempts), run=run)
    safe = [row.safe_seconds for row in head.attempts if row.safe_seconds is not None]
    out.add_sample("stayfast_safe_seconds_sum", sum(safe), run=run)
    out.add_sample("stayfast_safe_seconds_count", len(safe), run=run)
    out.add_sample("stayfast_saved_step", head.next_step - 1, run=run)
    if head.newest is not None:
        out.add_sample("stayfast_checkpoint_size_bytes", sum(row.size for row in head.newest.ranks), run=run)
        age = guard.clock.wall() - from_rfc3339(head.newest.committed_at)
        out.add_sample("stayfast_checkpoint_age_seconds", max(0.0, age), run=run)
    for name in ("useful", "save", "lost", "paid"):
        out.add_sample(f"stayfast_{name}_seconds_total", bill[f"{name}_seconds"], run=run)
    pairs = pairwise(head.attempts)
    out.add_sample("stayfast_unaccounted_seconds_total", sum(unaccounted_seconds(*pair) for pair in pairs), run=run)
    out.add_sample("stayfast_goodput_ratio", bill["goodput"], run=run)
    out.add_sample("stayfast_cost_usd_total", bill["usd_priced"], run=run)


def add_notice(out: PrometheusText, guard: Guard) -> None:
    """Whether there is a notice, and how much time it leaves."""
    notice = guard.notice
    if notice is not None:
        out.add_sample("stayfast_notice", 1, cause=str(notice.cause))
        out.add_sample("stayfast_notice_remaining_seconds", guard.budget.remaining_seconds)
