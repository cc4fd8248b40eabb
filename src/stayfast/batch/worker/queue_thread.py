"""The side of a worker that talks to queue and sink, on a thread of its own.

One cycle settles what the task has finished and claims what it will need next, in one transaction where the queue and
the sink share a database; so while the task works on one chunk, the next is already here and the last is on its way to
the disk. Elsewhere the order is what keeps items safe: record, and only then acknowledge.

A call that may be long is made alone: the books are closed before it begins and none is opened until it ends. If it
holds the interpreter, a transaction of ours would stand still half-way, and its locks would keep out everybody else,
and the heartbeat with them. Where results go to a bucket, or items come from Pub/Sub, the books are slow and hold few
locks: there the device does not wait for them.

Calls that are short share a transaction (``prefetch``): our thread is woken when half the shelf is used up, not by
every one of them, and when one takes long against all expectation, what lies behind it goes back to those who are free.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from typing import Any

from stayfast.backoff import Backoff
from stayfast.batch.queue.protocol import Lease, Queue
from stayfast.batch.sink.protocol import Sink
from stayfast.batch.worker.compute import ChunkResult, LeasedItem, decode_items
from stayfast.batch.worker.item_counts import ItemCounts
from stayfast.batch.worker.prefetch import PrefetchBuffer, PrefetchOptions, ResultBuffer
from stayfast.batch.worker.task import Task
from stayfast.clock import Clock
from stayfast.errors import LeaseLostError, QueueUnavailableError, SinkUnavailableError
from stayfast.telemetry.durations import Durations

log = logging.getLogger("stayfast")

_UNAVAILABLE = Backoff(0.05, 2.0)
_IDLE = Backoff(0.05, 1.0)
_LINGER_SECONDS = 0.05  # so long the outcomes of short calls wait for company
_OVERSTAYED_SECONDS = 0.25
_OVERLAPPING_CALLS = 20  # so many after one that could not be made alone: a far or slow database costs little


class QueueThread:
    """Keeps the task supplied and its results safe; ``get`` and ``put`` are the task's side."""

    def __init__(
        self,
        queue: Queue,
        sink: Sink,
        task: Task,
        clock: Clock,
        options: PrefetchOptions,
        durations: Durations | None = None,
        *,
        on_leases: Callable[[list[str]], None] = lambda _: None,
        on_settled: Callable[[ItemCounts], None] = lambda _: None,
    ) -> None:
        """``on_leases`` gets the renewal handles whenever they change, ``on_settled`` the tally after each commit."""
        self._queue, self._sink, self._task, self._clock = queue, sink, task, clock
        self._durations = durations or Durations()
        self.tally = ItemCounts()
        self._on_leases, self._on_settled = on_leases, on_settled
        self._fused = queue.database is not None and queue.database == sink.database
        self._shelf = PrefetchBuffer(options)
        self._current: Sequence[LeasedItem] = ()
        self._called = 0.0  # when the task was given them
        self._outbox = ResultBuffer()
        self._in_flight = ResultBuffer()
        lock = threading.RLock()
        self._changed = threading.Condition(lock)  # for the task's side
        self._wake = threading.Condition(lock)  # for our thread
        self._stopping = False  # no more claims
        self._busy = self._dozing = False  # what our thread is at: talking to queue or sink, or between two claims
        self._blocked = False  # the task's side waits for our thread
        self._alone = False  # the task is in a call beside which no transaction may be open
        self._quick = queue.database is not None and sink.database is not None
        self._overlapping = 0  # calls to come for which nobody waits
        self._over = False
        self.drained = False
        """Whether the queue had nothing left; otherwise the pump ended because it was told to."""
        self._error: BaseException | None = None
        self._handles: list[str] = []
        self._thread = threading.Thread(target=self._run, name="stayfast-pump", daemon=True)

    @property
    def options(self) -> PrefetchOptions:
        """How much is fetched ahead; may be changed while the pump runs."""
        return self._shelf.options

    @options.setter
    def options(self, options: PrefetchOptions) -> None:
        self._shelf.options = options

    # -- the task's side

    def start(self) -> None:
        """Begin to claim."""
        self._thread.start()

    def next_chunk(self, limit: int, *, ahead: int = 0, quiet_seconds: float = 0.0) -> Sequence[LeasedItem] | None:
        """The next items, at most ``limit``; None when there are none left or the worker is stopping.

        ``ahead`` is how many chunks may lie on the shelf when calls are short. ``quiet_seconds`` when computing them
        may take long: wait so long at most for the books to be closed; then no transaction is open until ``put``.
        """
        with self._changed:
            self._current, self._alone, self._shelf.ahead = (), False, ahead
            if not self._shelf:
                self._wait(lambda: self._shelf or self._stopping or self._over or self._error is not None)
                if not self._shelf:
                    return None
            self._current = chunk = self._shelf.take(limit)
            self._called = self._clock.monotonic()
            self._wake_thread()
            if quiet_seconds > 0 and self._quick:
                self._isolate_call(quiet_seconds)
            return chunk if self._current else None  # None: a notice came meanwhile, and its deadline

    def _isolate_call(self, seconds: float) -> None:
        if self._overlapping > 0:
            self._overlapping -= 1
            return
        self._alone = self._wait(self._is_idle, seconds) and bool(self._current)
        if not self._alone:
            self._overlapping = _OVERLAPPING_CALLS

    def _is_idle(self) -> bool:
        """Everything handed over is safe, and what should be fetched ahead is here or does not exist."""
        if self._busy or self._outbox or self._in_flight or self._shelf.has_surplus:
            return False
        return self._over or self._dozing or not self._claim_size()

    def submit(self, settled: ChunkResult, unstarted: Sequence[LeasedItem]) -> None:
        """Hand over what became of the items; waits only when the queue is far behind."""
        with self._changed:
            self._outbox.add(settled, unstarted)
            self._current, self._alone = (), False
            self._wake_thread()
            if len(self._outbox.leases) > self._shelf.size:
                self._wait(lambda: len(self._outbox.leases) <= self._shelf.size or self._error is not None)

    def _wait(self, condition: Callable[[], Any], seconds: float | None = None) -> bool:
        self._blocked = True
        self._wake_thread()
        reached = bool(self._changed.wait_for(condition, seconds))
        self._blocked = False
        return reached

    def _wake_thread(self) -> None:
        """Wake our thread if there is something to do for it: a switch of threads costs more than a short call."""
        if self._outbox if self._dozing else self._has_work():
            self._wake.notify()

    def release_unstarted(self) -> int:
        """Stop claiming and give back at once what the task has not begun; called from the notice's own thread."""
        with self._changed:
            self._stopping = True
            leases = self._shelf.clear()
            self._notify_all()
        return self._queue.release(leases)

    def release_current(self) -> int:
        """Give back the items in progress too: they will not end, or not before the deadline."""
        with self._changed:
            leases = [work.lease for work in self._current]
            self._current, self._alone = (), False
            self._notify_all()
        return self._queue.release(leases)

    def finish(self) -> None:
        """Wait until everything handed over is safe; raises what went wrong."""
        with self._changed:
            self._stopping = True
            self._notify_all()
        self._thread.join()
        if self._error is not None:
            raise self._error

    def _notify_all(self) -> None:
        self._wake.notify()
        self._changed.notify_all()

    # -- the queue's side

    def _run(self) -> None:
        try:
            idle = _IDLE.pauses()
            while self._wait_for_work():
                if self._release_surplus():
                    continue
                claimed = self._again_until_available(self._settle_and_claim)
                if claimed is None or claimed:
                    idle = _IDLE.pauses()
                    continue
                pause = next(idle)
                if self._nothing_held():
                    tail = self._again_until_available(self._queue.remaining)
                    if tail.drained:
                        self.drained = True
                        return
                    if tail.delayed_seconds is not None:
                        pause = min(pause, tail.delayed_seconds + 0.01)
                self._sleep(pause)
        except BaseException as error:  # noqa: BLE001 - raised by finish(), on the main thread
            self._error = error
        finally:
            with self._changed:
                self._over, self._busy = True, False
                self._changed.notify_all()

    def _wait_for_work(self) -> bool:
        """Sleep until there is something to settle or room to fetch; false when both are over."""
        with self._changed:
            self._busy = late = False
            self._changed.notify_all()
            while True:
                if not self._alone:
                    if self._has_work() or (late and self._outbox):
                        self._busy = True
                        return True
                    if self._stopping and not self._current:
                        return False
                late = not self._wake.wait(_LINGER_SECONDS if self._shelf.has_extra_chunks else None)
                if late and self._current and self._clock.monotonic() - self._called > _OVERSTAYED_SECONDS:
                    self._shelf.ahead = 0

    def _has_work(self) -> bool:
        """Whether to settle or fetch now; while calls are short, and nobody waits, only when half the shelf is gone."""
        if self._alone:
            return False
        if self._outbox and (self._stopping or self._blocked or not self._shelf.has_extra_chunks):
            return True
        return self._claim_size() > 0 or self._shelf.has_surplus

    def _claim_size(self) -> int:
        return 0 if self._stopping else self._shelf.claim_size(in_work=bool(self._current))

    def _nothing_held(self) -> bool:
        with self._changed:
            return not (self._shelf or self._current or self._outbox or self._in_flight)

    def _sleep(self, seconds: float) -> None:
        with self._changed:
            if not self._stopping and not self._outbox:
                self._busy, self._dozing = False, True
                self._changed.notify_all()
                self._wake.wait(seconds)
                self._dozing = False

    def _release_surplus(self) -> bool:
        """Items behind calls that have become long, at once, in a statement of their own, to those who are free."""
        with self._changed:
            surplus = self._shelf.take_surplus() if self._shelf.has_surplus else []
        if surplus:
            self._again_until_available(lambda: self._queue.release(surplus))
            self._report_handles([])
        return bool(surplus)

    def _again_until_available(self, action: Callable[[], Any]) -> Any:
        """A database that is locked, restarting or out of reach only delays the work; nothing is forgotten."""
        pauses = _UNAVAILABLE.pauses()
        failed = False
        while True:
            try:
                if failed:  # an answer may have been lost: give back what was claimed without our knowing
                    self._queue.release_all_except(self._held())
                return action()
            except (QueueUnavailableError, SinkUnavailableError) as error:
                log.warning("%s", error, extra={"action": "queue_unavailable"})
                failed = True
                self._clock.sleep(next(pauses))
            except LeaseLostError as error:
                log.warning("%s", error, extra={"action": "lease_lost"})
                with self._changed:
                    self._shelf.clear()

    def _held(self) -> list[Lease]:
        with self._changed:
            current = [work.lease for work in self._current]
            return [*self._shelf.leases(), *current, *self._outbox.held(), *self._in_flight.held()]

    def _settle_and_claim(self) -> int | None:
        """Settle and claim, once; None when no claim was wanted. What fails stays ``_in_flight`` and is tried again."""
        started = self._clock.monotonic()
        with self._changed:
            if not self._in_flight:
                self._in_flight, self._outbox = self._outbox, ResultBuffer()
            box = self._in_flight
            wanted = self._claim_size()
        results, replace = box.results, self.options.replace
        if results and not self._fused:
            self._sink.record_all(results, replace=replace)
        with self._queue.batch() as transaction:
            kept = self._queue.complete(box.leases)
            if results and self._fused:
                if len(kept) < len(box.leases):  # a lease that is lost must not even record
                    mine = {(lease.key, lease.generation) for lease in kept}
                    results = [row for row in results if (row.key, row.generation) in mine]
                self._sink.record_all(results, replace=replace, transaction=transaction)
            self._queue.complete(box.skipped)
            dead = self._queue.fail(box.failures) if box.failures else []
            self._queue.release(box.returned)
            claimed = self._queue.claim(wanted) if wanted else []
        with self._changed:
            self._in_flight = ResultBuffer()
            self._changed.notify_all()
        self._count(box, kept, dead)
        if box or claimed:
            kind, seconds = "record" if box else "claim", self._clock.monotonic() - started
            self._durations.add(kind, seconds, recorded=len(kept), failed=len(box.failures), claimed=len(claimed))
        self._add_claimed(claimed)
        return len(claimed) if wanted else None

    def _count(self, box: ResultBuffer, kept: list[Lease], dead: list[str]) -> None:
        self.tally.done += len(kept)
        self.tally.lost += len(box.leases) - len(kept)
        self.tally.skipped += len(box.skipped)
        self.tally.failed += len(box.failures)
        self.tally.dead += len(dead)
        self._on_settled(self.tally)

    def _report_handles(self, claimed: list[Lease]) -> None:
        handles = self._queue.handles(self._held() + claimed)
        if handles != self._handles:
            self._handles = handles
            self._on_leases(handles)

    def _add_claimed(self, claimed: list[Lease]) -> None:
        """Ask before computing, decode, and put on the shelf; a notice in between sends them straight back."""
        self._report_handles(claimed)
        if not claimed:
            return
        if self.options.replace:
            open_keys = {lease.key for lease in claimed}
        else:
            keys = [lease.key for lease in claimed]
            open_keys = set(self._again_until_available(lambda: self._sink.missing(keys)))
        skipped = [lease for lease in claimed if lease.key not in open_keys]
        fresh = [lease for lease in claimed if lease.key in open_keys] if skipped else claimed
        work, failures = decode_items(self._task, fresh)
        with self._changed:
            self._outbox.skipped += skipped
            self._outbox.failures += failures
            if self._stopping:
                self._outbox.returned += [each.lease for each in work]
            else:
                self._shelf.add(work)
            self._changed.notify_all()
