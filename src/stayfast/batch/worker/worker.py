"""A worker: lease, compute, record, acknowledge, until nothing is left or the machine goes away."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass

from stayfast.batch.queue.protocol import Queue
from stayfast.batch.sink.protocol import Sink
from stayfast.batch.worker.compute import run_task
from stayfast.batch.worker.item_counts import ItemCounts
from stayfast.batch.worker.prefetch import PrefetchOptions
from stayfast.batch.worker.queue_thread import QueueThread
from stayfast.batch.worker.task import Task
from stayfast.errors import Interrupted
from stayfast.model.notice import Cause
from stayfast.runtime.interruption.guard import Guard

log = logging.getLogger("stayfast")

_LAST_SECONDS = 0.7  # before the deadline: enough to give back a chunk
_FITS_SHARE = 0.8  # one call of the task may take this share of the grace window
_EACH_SECONDS = 0.1
_LONG_SECONDS = 0.25  # a call that may take longer is made with no transaction open beside it
_CALLS_AFTER_LONG_CALL = 100  # after one that did, so many more are taken for long
_FIRST_QUIET_SECONDS = 2.0  # how long the first call waits for that; the others a twentieth of what they may take
_QUIET_SECONDS = 0.25
_QUIET_SHARE = 0.05
_CAREFUL_ITEMS = 200
_AHEAD_SECONDS = 0.1  # of work, and so many items at most, are fetched and settled together when chunks are smaller
_AHEAD_ITEMS = 100


@dataclass(frozen=True, slots=True)
class WorkerOptions:
    """What can be chosen about a worker."""

    chunk: int = 100
    prefetch: int = 1
    replace: bool = False
    isolate_items: bool = False
    """After a crash: one item at a time at first, so that the blame for another crash is exact."""
    prefetch_more: bool = True
    """Whether short chunks are fetched and settled together; not where one crash costs all that is held its life."""


class Worker:
    """Runs one task on one queue and one sink, in this process."""

    def __init__(
        self,
        task: Task,
        queue: Queue,
        sink: Sink,
        guard: Guard,
        options: WorkerOptions,
        *,
        on_leases: Callable[[list[str]], None] | None = None,
        on_settled: Callable[[ItemCounts], None] = lambda _: None,
    ) -> None:
        """``on_leases`` gets the handles to renew whenever they change; by default a thread here renews them.

        ``on_settled`` gets the tally after each commit.
        """
        self._task, self._queue, self._guard, self._options = task, queue, guard, options
        ahead = PrefetchOptions(
            chunk=1 if options.isolate_items else options.chunk,
            prefetch=0 if options.isolate_items else options.prefetch,
            replace=options.replace,
        )
        self._over = threading.Event()
        self._heartbeat: LeaseHeartbeat | None = None
        if on_leases is None:
            self._heartbeat = LeaseHeartbeat(queue, self._over)
            on_leases = self._heartbeat.set_handles
        self._pump = QueueThread(
            queue, sink, task, guard.clock, ahead, guard.durations, on_leases=on_leases, on_settled=on_settled
        )
        self._item_seconds: float | None = None
        self._wary = 0

    @property
    def drained(self) -> bool:
        """Whether the queue said that every item is done or dead."""
        return self._pump.drained

    @property
    def tally(self) -> ItemCounts:
        """What has been done so far."""
        return self._pump.tally

    def run(self) -> None:
        """Work until the queue is drained; raises ``Interrupted`` on a notice, after everything finished is safe."""
        if self._heartbeat is not None:
            self._heartbeat.start()
        self._guard.board.on_notice(self._notified)
        self._pump.start()
        try:
            self._work()
        finally:
            try:
                self._pump.finish()
            finally:
                self._over.set()
                if self._heartbeat is not None:
                    self._heartbeat.join()
        if not self._pump.drained and self._guard.should_stop():
            notice = self._guard.notice
            raise Interrupted(
                self._guard.settings.interrupted_code, cause=str(notice.cause if notice else Cause.UNKNOWN)
            )

    def _work(self) -> None:
        while True:
            limit = self._limit()
            part = self._pump.next_chunk(
                limit, ahead=self._extra_chunks(), quiet_seconds=self._isolation_wait_seconds(limit)
            )
            if part is None:
                return
            started = self._guard.clock.monotonic()
            try:
                settled, unstarted = run_task(self._task, part, lambda: self._guard.notice is not None)
            except BaseException:
                self._pump.release_current()
                raise
            count = len(settled.results) + len(settled.failures)
            if count:
                seconds = self._guard.clock.monotonic() - started
                self._update_item_seconds(seconds, count)
                self._guard.durations.add("compute", seconds, items=count, failed=len(settled.failures))
            self._pump.submit(settled, unstarted)
            self._restore_chunk_size()

    def _limit(self) -> int:
        """How many items one call gets.

        A task over lists gets whole chunks, unless they would not end inside the grace window. A task over single items
        gets what it does in a tenth of a second, so that on a notice nearly everything counts as not begun.
        """
        seconds = self._item_seconds
        if seconds is None:
            return 1 if self._task.each else self._options.chunk
        seconds = max(seconds, 1e-9)
        if self._task.each:
            return max(1, min(self._options.chunk, int(_EACH_SECONDS / seconds)))
        window = self._guard.settings.window_seconds * _FITS_SHARE
        if seconds * self._options.chunk <= window:
            return self._options.chunk
        return max(1, int(window / seconds))

    def _extra_chunks(self) -> int:
        """How many chunks to hold beside the one in work, if that is more than was asked for.

        No more than is done in no time: on SIGKILL that much is done again, and in the end others have nothing to do
        for so long. None while calls surprise us, and none after a crash, when all that is held shares the blame.
        """
        if self._options.isolate_items or not self._options.prefetch_more or self._item_seconds is None or self._wary:
            return 0
        return int(min(_AHEAD_ITEMS, _AHEAD_SECONDS / max(self._item_seconds, 1e-9)) / self._options.chunk)

    def _isolation_wait_seconds(self, items: int) -> float:
        """How long a call of so many items may wait for open transactions to end; not at all when it is short."""
        if self._item_seconds is None:
            return _FIRST_QUIET_SECONDS
        seconds = self._item_seconds * items
        if self._wary == 0 and seconds <= _LONG_SECONDS:
            return 0.0
        return max(_QUIET_SECONDS, _QUIET_SHARE * seconds)

    def _update_item_seconds(self, seconds: float, count: int) -> None:
        each, known = seconds / count, self._item_seconds
        self._item_seconds = each if known is None else 0.7 * known + 0.3 * each
        self._wary = _CALLS_AFTER_LONG_CALL if seconds > _LONG_SECONDS else max(0, self._wary - 1)

    def _restore_chunk_size(self) -> None:
        tally = self.tally
        if self._options.isolate_items and tally.done + tally.failed >= _CAREFUL_ITEMS:
            self._pump.options = PrefetchOptions(self._options.chunk, self._options.prefetch, self._options.replace)

    # -- the notice

    def _notified(self) -> None:
        threading.Thread(target=self._drain, name="stayfast-release", daemon=True).start()

    def _drain(self) -> None:
        """At once, beside a task that may run for long: give back what was not begun; near the deadline, the rest."""
        try:
            count = self._pump.release_unstarted()
            log.warning("%d items that were not begun are free for others", count, extra={"action": "items_released"})
            while not self._over.is_set():
                left = self._guard.budget.remaining_seconds - _LAST_SECONDS
                if left <= 0:
                    self._pump.release_current()
                    return
                self._guard.clock.wait(self._over, min(left, 0.5))
        except Exception as error:  # noqa: BLE001 - the lease ends by itself; leaving must go on
            log.warning("items could not be released: %s", error, extra={"action": "release_failed"})


class LeaseHeartbeat:
    """Renews leases from a thread; where the task may hold the interpreter, `stayfast work` does it from outside."""

    def __init__(self, queue: Queue, over: threading.Event) -> None:
        self._queue, self._over = queue, over
        self._handles: list[str] = []
        self._thread = threading.Thread(target=self._run, name="stayfast-heartbeat", daemon=True)

    def start(self) -> None:
        """Begin to renew."""
        self._thread.start()

    def set_handles(self, handles: list[str]) -> None:
        """These, from now on."""
        self._handles = handles

    def join(self) -> None:
        """Wait for the thread's end."""
        self._thread.join(5.0)

    def _run(self) -> None:
        while not self._over.wait(self._queue.lease_seconds / 3):
            renew_leases(self._queue, self._handles)


def renew_leases(queue: Queue, handles: list[str]) -> None:
    """One beat; whatever goes wrong is tried again at the next."""
    try:
        queue.renew(list(handles))
    except Exception as error:  # noqa: BLE001 - tried again at the next beat
        log.warning("leases could not be renewed: %s", error, extra={"action": "renew_failed"})
