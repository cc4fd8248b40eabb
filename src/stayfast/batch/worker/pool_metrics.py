"""What a scrape reads: the counters of a run or of a pool of workers, turned into samples."""

from __future__ import annotations

import threading
from dataclasses import asdict
from itertools import pairwise
from typing import TYPE_CHECKING

from stayfast.batch.queue.open_queue import open_queue
from stayfast.batch.queue.protocol import Depth, Queue
from stayfast.batch.sink.open_sink import open_sink
from stayfast.clock import Clock, from_rfc3339
from stayfast.errors import StayfastError, UrlError
from stayfast.model.exit_codes import Outcome
from stayfast.model.queue_age import Backlog
from stayfast.runtime.run_record.billing import account, unaccounted_seconds
from stayfast.runtime.run_record.record import Head
from stayfast.telemetry.metric_table import Exposition

if TYPE_CHECKING:
    from stayfast.batch.worker.pool import Pool
    from stayfast.runtime.interruption.guard import Guard
    from stayfast.runtime.runs.books import Books
    from stayfast.runtime.runs.saving import Saver

_COUNT_SHARE = 20.0  # counting a deep queue takes time: at most a twentieth of it
_LOOK_SECONDS = 5.0


def read_run(guard: Guard, books: Books, saver: Saver, *, step: int, total: int | None) -> Exposition:
    """One scrape of a training process."""
    out = Exposition()
    run = books.url or ""
    _read_notice(out, guard)
    out.add("stayfast_step", step, run=run)
    out.add("stayfast_total_steps", total, run=run)
    times = sorted(guard.durations.series("step"))
    for share in (0.5, 0.95):
        if times:
            out.add(
                "stayfast_step_seconds", times[min(len(times) - 1, int(share * len(times)))], run=run, quantile=share
            )
    out.add("stayfast_checkpoints_total", books.saves, run=run)
    out.add("stayfast_checkpoint_failures_total", saver.failures, run=run)
    out.add("stayfast_checkpoint_stall_seconds_total", books.stalled_seconds, run=run)
    out.add("stayfast_checkpoint_persist_seconds_total", saver.total_seconds, run=run)
    out.add("stayfast_checkpoint_bytes_total", books.committed_bytes, run=run)
    if books.head is not None:
        _read_ledger(out, run, books.head, guard)
    return out


def _read_ledger(out: Exposition, run: str, head: Head, guard: Guard) -> None:
    bill = account(head, guard.settings.run_usd_per_hour)
    out.add("stayfast_run_info", 1, run=run, attempt=head.attempt, capacity=head.row.capacity, zone=head.row.zone)
    out.add("stayfast_attempts_total", bill["attempts"], run=run)
    causes: dict[str, int] = {}
    for row in head.attempts:
        if row.outcome in (Outcome.INTERRUPTED, Outcome.LOST):
            cause = "killed" if row.outcome is Outcome.LOST else row.cause or "unknown"
            causes[cause] = causes.get(cause, 0) + 1
    for cause, count in sorted(causes.items()):
        out.add("stayfast_interruptions_total", count, run=run, cause=cause)
    out.add("stayfast_failures_total", sum(row.outcome is Outcome.FAILED for row in head.attempts), run=run)
    safe = [row.safe_seconds for row in head.attempts if row.safe_seconds is not None]
    out.add("stayfast_safe_seconds_sum", sum(safe), run=run)
    out.add("stayfast_safe_seconds_count", len(safe), run=run)
    out.add("stayfast_saved_step", head.next_step - 1, run=run)
    if head.newest is not None:
        out.add("stayfast_checkpoint_size_bytes", sum(row.size for row in head.newest.ranks), run=run)
        age = guard.clock.wall() - from_rfc3339(head.newest.committed_at)
        out.add("stayfast_checkpoint_age_seconds", max(0.0, age), run=run)
    for name in ("useful", "save", "lost", "paid"):
        out.add(f"stayfast_{name}_seconds_total", bill[f"{name}_seconds"], run=run)
    pairs = pairwise(head.attempts)
    out.add("stayfast_unaccounted_seconds_total", sum(unaccounted_seconds(*pair) for pair in pairs), run=run)
    out.add("stayfast_goodput_ratio", bill["goodput"], run=run)
    out.add("stayfast_cost_usd_total", bill["usd_priced"], run=run)


def read_pool(pool: Pool, guard: Guard, reader: QueueReader) -> Exposition:
    """One scrape of ``stayfast work``."""
    out = Exposition()
    _read_notice(out, guard)
    out.add("stayfast_workers", pool.living)
    for outcome, count in pool.tally().as_json().items():
        out.add("stayfast_items_total", count, outcome=outcome)
    depth = reader.depth()
    out.add("stayfast_queue_up", int(depth is not None), queue=reader.name)
    if depth is not None:
        for state, count in asdict(depth).items():
            out.add("stayfast_queue_items", count, queue=reader.name, state=state)
        out.add("stayfast_queue_oldest_seconds", reader.oldest_seconds(), queue=reader.name)
    return out


def _read_notice(out: Exposition, guard: Guard) -> None:
    notice = guard.notice
    if notice is not None:
        out.add("stayfast_notice", 1, cause=str(notice.cause))
        out.add("stayfast_notice_remaining_seconds", guard.budget.remaining_seconds)


class QueueReader:
    """Looks at a queue through a connection of its own, no more often than its counting is worth."""

    def __init__(self, url: str, sink: str, clock: Clock) -> None:
        self._url, self._sink, self._clock = url, sink, clock
        self.name = _name(url)
        self._queue: Queue | None = None
        self._depth: Depth | None = None
        self._next = float("-inf")
        self._backlog = Backlog()
        self._lock = threading.Lock()

    def depth(self) -> Depth | None:
        """Counts by state, at most a few seconds old; None when the queue cannot be reached."""
        with self._lock:
            started = self._clock.monotonic()
            if started < self._next:
                return self._depth
            try:
                self._depth = self._open().depth()
                self._backlog.add(started, self._depth.enqueued, self._depth.done + self._depth.dead)
            except UrlError:  # the workers have not made it yet
                return None
            except StayfastError:
                self._depth = None
            took = self._clock.monotonic() - started
            self._next = started + max(_LOOK_SECONDS, _COUNT_SHARE * took)
            return self._depth

    def oldest_seconds(self) -> float:
        """How long the oldest open item has waited, as far as we have seen."""
        return self._backlog.oldest_seconds(self._clock.monotonic())

    def close(self) -> None:
        """Give the connection back."""
        with self._lock:
            self._next = float("inf")
            if self._queue is not None:
                self._queue.close()

    def _open(self) -> Queue:
        if self._queue is None:
            missing = open_sink(self._sink, create=False).missing
            self._queue = open_queue(self._url, sink=self._sink, create=False)
            self._queue.missing = missing
        return self._queue


def _name(url: str) -> str:
    """``?queue=name``, or the last part of the path; never the whole URL, which may hold a password."""
    plain, _, query = url.partition("?")
    chosen = next((part[6:] for part in query.split("&") if part.startswith("queue=")), None)
    return chosen or plain.rpartition("/")[2]
