"""The side of a worker that talks to queue and sink, on a thread of its own.

One cycle settles what the task has finished and claims what it will need next, in one transaction where the queue and
the sink share a database; so while the task works on one chunk, the next is already here and the last is on its way to
the disk. Elsewhere the order is what keeps items safe: record, and only then acknowledge.

A call that may be long is made alone: the books are closed before it begins and none is opened until it ends. If it
holds the interpreter, a transaction of ours would stand still half-way, and its locks would keep out everybody else,
and the heartbeat with them. Where results go to a bucket, or items come from Pub/Sub, the books are slow and hold few
locks: there the device does not wait for them.
"""

from __future__ import annotations

import json
import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from holdfast.clock import Clock
from holdfast.errors import LeaseLostError, QueueUnavailableError, SinkUnavailableError
from holdfast.queue.base import Failure, Lease, Queue
from holdfast.runtime.budget import Durations
from holdfast.runtime.compute import Settled, Work
from holdfast.runtime.task import Task
from holdfast.sink.base import Sink

log = logging.getLogger("holdfast")

_decode = json.JSONDecoder().raw_decode  # what ``json.loads`` comes down to, at half its price
_LONGEST_PAUSE_SECONDS = 2.0
_IDLE_SECONDS = 0.05
_LONGEST_IDLE_SECONDS = 1.0
_OVERLAPPING_CALLS = 20  # so many after one that could not be made alone: a far or slow database costs little


@dataclass(slots=True)
class Tally:
    """What a worker has done so far."""

    done: int = 0
    skipped: int = 0  # recorded before: acknowledged without computing
    failed: int = 0
    dead: int = 0
    lost: int = 0  # finished, but the lease had gone to somebody else

    def as_json(self) -> dict[str, int]:
        """For progress and reports."""
        return {name: getattr(self, name) for name in ("done", "skipped", "failed", "dead", "lost")}


@dataclass(frozen=True, slots=True)
class PumpOptions:
    """How much is fetched ahead, and how results are treated."""

    chunk: int = 100
    prefetch: int = 1  # chunks held beside the one being computed
    replace: bool = False


@dataclass(slots=True)
class _Outbox:
    settled: list[Settled] = field(default_factory=list)
    skipped: list[Lease] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    returned: list[Lease] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.settled or self.skipped or self.failures or self.returned)


class Pump:
    """Keeps the task supplied and its results safe; ``get`` and ``put`` are the task's side."""

    def __init__(
        self,
        queue: Queue,
        sink: Sink,
        task: Task,
        clock: Clock,
        options: PumpOptions,
        durations: Durations | None = None,
    ) -> None:
        self._queue, self._sink, self._task, self._clock = queue, sink, task, clock
        self._durations = durations or Durations()
        self.options = options
        queue.missing = sink.missing
        self.tally = Tally()
        self.on_leases: Callable[[list[str]], None] = lambda _: None
        """Told the renewal handles whenever they change, for the heartbeat."""
        self._fused = queue.database is not None and queue.database == sink.database
        self._ready: deque[list[Work]] = deque()
        self._current: Sequence[Work] = ()
        self._outbox = _Outbox()
        self._in_flight = _Outbox()
        self._changed = threading.Condition()
        self._stopping = False  # no more claims
        self._busy = self._dozing = False  # what our thread is at: talking to queue or sink, or between two claims
        self._alone = False  # the task is in a call beside which no transaction may be open
        self._quick = queue.database is not None and sink.database is not None
        self._overlapping = 0  # calls to come for which nobody waits
        self._over = False
        self.drained = False
        """Whether the queue had nothing left; otherwise the pump ended because it was told to."""
        self._error: BaseException | None = None
        self._handles: list[str] = []
        self._thread = threading.Thread(target=self._run, name="holdfast-pump", daemon=True)

    # -- the task's side

    def start(self) -> None:
        """Begin to claim."""
        self._thread.start()

    def get(self, limit: int, *, quiet_seconds: float = 0.0) -> Sequence[Work] | None:
        """The next items, at most ``limit``; None when there are none left or the worker is stopping.

        ``quiet_seconds`` when computing them may take long: wait so long at most for the books to be closed; then no
        transaction is open until ``put``.
        """
        with self._changed:
            self._current = ()
            self._alone = False
            self._changed.notify_all()
            while not self._ready:
                if self._stopping or self._over or self._error is not None:
                    return None
                self._changed.wait()
            chunk = self._ready.popleft()
            if len(chunk) > limit:
                self._ready.appendleft(chunk[limit:])
                chunk = chunk[:limit]
            self._current = chunk
            self._changed.notify_all()
            if quiet_seconds > 0 and self._quick:
                self._become_alone(quiet_seconds)
            return chunk if self._current else None  # None: a notice came meanwhile, and its deadline

    def _become_alone(self, seconds: float) -> None:
        if self._overlapping > 0:
            self._overlapping -= 1
            return
        self._alone = self._changed.wait_for(self._at_rest, seconds) and bool(self._current)
        if not self._alone:
            self._overlapping = _OVERLAPPING_CALLS

    def _at_rest(self) -> bool:
        """Everything handed over is safe, and what should be fetched ahead is here or does not exist."""
        if self._busy or self._outbox or self._in_flight:
            return False
        return self._over or self._dozing or not self._wants()

    def put(self, settled: Settled, unstarted: Sequence[Work]) -> None:
        """Hand over what became of the items; waits only when the queue is far behind."""
        with self._changed:
            self._outbox.settled.append(settled)
            self._outbox.returned += [work.lease for work in unstarted]
            self._current = ()
            self._alone = False
            self._changed.notify_all()
            limit = self.options.chunk * (1 + self.options.prefetch)
            while sum(len(each.leases) for each in self._outbox.settled) > limit and self._error is None:
                self._changed.wait()

    def release_unstarted(self) -> int:
        """Stop claiming and give back at once what the task has not begun; called from the notice's own thread."""
        with self._changed:
            self._stopping = True
            leases = [work.lease for chunk in self._ready for work in chunk]
            self._ready.clear()
            self._changed.notify_all()
        return self._queue.release(leases)

    def abandon_current(self) -> int:
        """Give back the items in progress too: they will not end, or not before the deadline."""
        with self._changed:
            leases = [work.lease for work in self._current]
            self._current = ()
            self._alone = False
            self._changed.notify_all()
        return self._queue.release(leases)

    def finish(self) -> None:
        """Wait until everything handed over is safe; raises what went wrong."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        self._thread.join()
        if self._error is not None:
            raise self._error

    # -- the queue's side

    def _run(self) -> None:
        try:
            idle = _IDLE_SECONDS
            while self._wait_for_work():
                claimed = self._again_until_available(self._cycle)
                if claimed is None or claimed:
                    idle = _IDLE_SECONDS
                    continue
                pause = idle
                if self._nothing_held():
                    tail = self._again_until_available(self._queue.tail)
                    if tail.drained:
                        self.drained = True
                        return
                    if tail.delayed_seconds is not None:
                        pause = min(pause, tail.delayed_seconds + 0.01)
                idle = min(_LONGEST_IDLE_SECONDS, idle * 2)
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
            self._busy = False
            self._changed.notify_all()
            while True:
                if not self._alone:
                    if self._outbox or self._in_flight:
                        return self._begin()
                    if self._stopping and not self._current:
                        return False
                    if not self._stopping and self._wants():
                        return self._begin()
                self._changed.wait()

    def _begin(self) -> bool:
        self._busy = True
        return True

    def _wants(self) -> bool:
        """Whether another chunk should be fetched: one is on the shelf while one is computed, or none if careful."""
        if self._stopping or len(self._ready) >= max(1, self.options.prefetch):
            return False
        return self.options.prefetch > 0 or not (self._current or self._ready)

    def _nothing_held(self) -> bool:
        with self._changed:
            return not (self._ready or self._current or self._outbox or self._in_flight)

    def _sleep(self, seconds: float) -> None:
        with self._changed:
            if not self._stopping and not self._outbox:
                self._busy, self._dozing = False, True
                self._changed.notify_all()
                self._changed.wait(seconds)
                self._dozing = False

    def _again_until_available(self, action: Callable[[], Any]) -> Any:
        """A database that is locked, restarting or out of reach only delays the work; nothing is forgotten."""
        pause = 0.05
        failed = False
        while True:
            try:
                if failed:  # an answer may have been lost: give back what was claimed without our knowing
                    self._queue.hold(self._held())
                return action()
            except (QueueUnavailableError, SinkUnavailableError) as error:
                log.warning("%s", error, extra={"action": "queue_unavailable"})
                failed = True
                self._clock.sleep(pause)
                pause = min(_LONGEST_PAUSE_SECONDS, pause * 2)
            except LeaseLostError as error:
                log.warning("%s", error, extra={"action": "lease_lost"})
                with self._changed:
                    self._ready.clear()

    def _held(self) -> list[Lease]:
        with self._changed:
            boxes = (self._outbox, self._in_flight)
            leases = [work.lease for chunk in (*self._ready, self._current) for work in chunk]
            for box in boxes:
                leases += [lease for settled in box.settled for lease in settled.leases]
                leases += [failure.lease for settled in box.settled for failure in settled.failures]
                leases += [*box.skipped, *box.returned, *(failure.lease for failure in box.failures)]
            return leases

    def _cycle(self) -> int | None:
        """Settle and claim, once; None when no claim was wanted. What fails stays ``_in_flight`` and is tried again."""
        started = self._clock.monotonic()
        with self._changed:
            if not self._in_flight:
                self._in_flight, self._outbox = self._outbox, _Outbox()
            box = self._in_flight
            wanted = self.options.chunk if self._wants() else 0
        results = [result for settled in box.settled for result in settled.results]
        leases = [lease for settled in box.settled for lease in settled.leases]
        failures = [*box.failures, *(failure for settled in box.settled for failure in settled.failures)]
        if results and not self._fused:
            self._sink.record_all(results, replace=self.options.replace)
        with self._queue.batch() as transaction:
            kept = self._queue.complete(leases)
            if results and self._fused:
                if len(kept) < len(leases):  # a lease that is lost must not even record
                    mine = {(lease.key, lease.generation) for lease in kept}
                    results = [row for row in results if (row.key, row.generation) in mine]
                self._sink.record_all(results, replace=self.options.replace, transaction=transaction)
            self._queue.complete(box.skipped)
            dead = self._queue.fail(failures) if failures else []
            self._queue.release(box.returned)
            claimed = self._queue.claim(wanted) if wanted else []
        with self._changed:
            self._in_flight = _Outbox()
            self._changed.notify_all()
        self._count(kept, leases, box, failures, dead)
        if box or claimed:
            kind, seconds = "record" if box else "claim", self._clock.monotonic() - started
            self._durations.add(kind, seconds, recorded=len(kept), failed=len(failures), claimed=len(claimed))
        self._supply(claimed)
        return len(claimed) if wanted else None

    def _count(
        self, kept: list[Lease], leases: list[Lease], box: _Outbox, failures: list[Failure], dead: list[str]
    ) -> None:
        self.tally.done += len(kept)
        self.tally.lost += len(leases) - len(kept)
        self.tally.skipped += len(box.skipped)
        self.tally.failed += len(failures)
        self.tally.dead += len(dead)

    def _supply(self, claimed: list[Lease]) -> None:
        """Ask before computing, decode, and put on the shelf; a notice in between sends them straight back."""
        handles = self._queue.handles(self._held() + claimed)
        if handles != self._handles:
            self._handles = handles
            self.on_leases(handles)
        if not claimed:
            return
        if self.options.replace:
            open_keys = {lease.key for lease in claimed}
        else:
            keys = [lease.key for lease in claimed]
            open_keys = set(self._again_until_available(lambda: self._sink.missing(keys)))
        skipped = [lease for lease in claimed if lease.key not in open_keys]
        work, failures = self._decode([lease for lease in claimed if lease.key in open_keys] if skipped else claimed)
        with self._changed:
            stopping = self._stopping
            self._outbox.skipped += skipped
            self._outbox.failures += failures
            if stopping:
                self._outbox.returned += [each.lease for each in work]
            elif work:
                self._ready.append(work)
            self._changed.notify_all()

    def _decode(self, leases: list[Lease]) -> tuple[list[Work], list[Failure]]:
        """Items from payloads, each by itself; one that cannot be read, or is not what its key says, dies alone."""
        work, failures = [], []
        plain = self._task.key is None
        for lease in leases:
            if plain:
                try:
                    item, end = _decode(lease.payload)
                except (ValueError, RecursionError):
                    end = -1
                if end == len(lease.payload):
                    work.append(Work(lease, item))
                    continue
            problem, item = self._decode_one(lease)
            if problem is None:
                work.append(Work(lease, item))
            else:
                failures.append(Failure(lease, problem, final=True))
        return work, failures

    def _decode_one(self, lease: Lease) -> tuple[str | None, Any]:
        try:
            item = json.loads(lease.payload)
        except (ValueError, RecursionError) as error:
            return f"the payload is not JSON: {error}", None
        if self._task.key is not None:
            try:
                key = self._task.key(item)
            except Exception as error:  # noqa: BLE001 - user code; told in the dead-letter
                return f"the key function failed: {type(error).__name__}: {error}", None
            if key != lease.key:
                return f"the item was enqueued as {lease.key!r}, and the task's key function says {key!r}", None
        return None, item
