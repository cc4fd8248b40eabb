"""``stayfast work``: N worker processes, kept alive, warned, and kept in their leases from outside.

The heartbeat is here, in another process than the task: C code that holds the interpreter for minutes cannot starve it.
A worker that is stopped (SIGSTOP, a debugger) is not renewed: it is as good as gone, and fenced when it wakes.
"""

from __future__ import annotations

import contextlib
import logging
import selectors
import signal
import sys
import threading
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Protocol

from stayfast.backoff import Backoff
from stayfast.batch.queue.open_queue import open_queue
from stayfast.batch.queue.protocol import Depth, Queue, RetryPolicy
from stayfast.batch.worker.item_counts import ItemCounts
from stayfast.batch.worker.queue_at_end import LastLook
from stayfast.batch.worker.worker import WorkerOptions, renew_leases
from stayfast.batch.worker.worker_handle import WorkerHandle
from stayfast.errors import StayfastError
from stayfast.model.exit_codes import FINISHED, Outcome
from stayfast.runtime.interruption.guard import Guard

log = logging.getLogger("stayfast")

_TICK_SECONDS = 0.1
_BACKOFF = Backoff(0.1, 10.0)
_CRASHES_WITHOUT_PROGRESS = 5  # for each worker: all of them may be killed at one blow
_LAST_SECONDS = 0.4
_SILENT_SECONDS = 5.0
_AGAIN_SECONDS = 1.0  # items came in after the workers had ended


@dataclass(frozen=True, slots=True)
class PoolOptions:
    """What ``stayfast work`` was asked to do."""

    task: str
    queue: str
    sink: str
    workers: int = 1
    json_on_stdout: bool = False
    """Whether stdout is for our own JSON alone: what the task prints goes to stderr then."""
    worker: WorkerOptions = field(default_factory=WorkerOptions)
    policy: RetryPolicy = field(default_factory=RetryPolicy)


class Progress(Protocol):
    """Shows how far a pool is, a few times per second."""

    def show(self, pool: WorkerPool) -> None: ...

    def close(self) -> None: ...


class WorkerPool:
    """The processes and what is known about them."""

    def __init__(self, options: PoolOptions, guard: Guard, progress: Progress | None = None) -> None:
        self._options, self._guard, self._progress = options, guard, progress
        self._children: list[WorkerHandle] = []
        self._selector = selectors.DefaultSelector()
        self._lock = threading.Lock()
        self._opening = threading.Lock()  # its own: a server that is slow to answer must not delay a notice
        self._told = False
        self._over = threading.Event()
        self._queue: Queue | None = None
        self._ended = ItemCounts()  # of processes that are gone
        self._crashes = 0  # in a row, while no worker settled an item
        self._settled = 0  # items, at the last crash
        self._restarts: list[float] = []  # when to start a replacement
        self._opened = False  # a worker has opened queue and sink, so both exist
        self.fatal: str | None = None
        self._last = LastLook(self._open_queue, options.sink, guard)
        self._published: list[Callable[[], None]] = []

    def tally(self) -> ItemCounts:
        """The sum over all workers, living and gone."""
        total = ItemCounts(**self._ended.as_json())
        for child in self._children:
            total.add(child.tally.read())
        return total

    @property
    def depth(self) -> Depth | None:
        """What the queue said at the end; None when it could not be asked."""
        return self._last.depth

    @property
    def queue_url(self) -> str:
        """The queue without its password, once it was asked."""
        return self._last.url

    @property
    def num_workers(self) -> int:
        """Worker processes now."""
        return len(self._children)

    def start_metrics(self) -> None:
        """Metrics of all workers, where they are asked for."""
        settings = self._guard.settings
        if settings.metrics_port:
            from stayfast.batch.queue.depth_reader import QueueDepthReader
            from stayfast.batch.worker.pool_metrics import LOOK_SECONDS, sample_pool
            from stayfast.telemetry.metrics_server import start_metrics_server

            queue, sink, clock = self._options.queue, self._options.sink, self._guard.clock
            reader = QueueDepthReader(queue, sink, clock, pause_seconds=LOOK_SECONDS)
            self._published = [
                start_metrics_server(settings, lambda: sample_pool(self, self._guard, reader)),
                reader.close,
            ]

    def run(self) -> Outcome:
        """Work until the queue says that nothing is left, a notice comes, or the workers cannot go on."""
        heartbeat = threading.Thread(target=self._renew_leases, name="stayfast-heartbeat", daemon=True)
        heartbeat.start()
        try:
            self._restarts = [self._guard.clock.monotonic()] * self._options.workers
            while self._restarts:
                self._work()
                if self._opened:
                    self._ask()
                if self._guard.notice is None and self.fatal is None and self.depth is not None and self.depth.left:
                    self._restarts = [self._guard.clock.monotonic() + _AGAIN_SECONDS] * self._options.workers
        finally:
            if self._progress is not None:
                self._progress.close()
            self._over.set()
            self._signal_all(signal.SIGKILL)
            heartbeat.join(5.0)
            for end in self._published:
                end()
            if self._queue is not None and not self._last.is_asking:
                self._queue.close()
        return self._conclude()

    def _work(self) -> None:
        """Until no worker is there, and none is to be started."""
        while self._children or self._restarts:
            self._replace()
            self._poll_status()
            self._reap()
            if self._progress is not None:
                self._progress.show(self)
            if self._guard.notice is not None:
                self._stop_workers()
            elif self.fatal is not None:
                self._signal_all(signal.SIGTERM)
                self._restarts.clear()

    def _ask(self) -> None:
        settled = any(self.tally().as_json().values())
        self._last.ask(settled=settled, patient=self.fatal is None)
        self.fatal = self.fatal or self._last.error

    def _conclude(self) -> Outcome:
        """Finished is what the queue says, never what the workers do not say."""
        if self.fatal is None and self.depth is not None and self.depth.left == 0:
            return Outcome.FINISHED
        if self.fatal is None and self._guard.notice is not None:
            return Outcome.INTERRUPTED
        self.fatal = self.fatal or "the queue could not be asked whether anything is left"
        return Outcome.FAILED

    # -- starting and ending

    def _start(self, *, careful: bool) -> None:
        share = self._options.worker.prefetch_more and self._options.policy.max_failures > 1
        worker = {**asdict(self._options.worker), "isolate_items": careful, "prefetch_more": share}
        options = {
            "task": self._options.task,
            "queue": self._options.queue,
            "sink": self._options.sink,
            "policy": list(self._options.policy),
            "worker": worker,
            "create": not self._opened,  # a replacement must not make anew what was removed
        }
        child = WorkerHandle.start(options, 2 if self._options.json_on_stdout and sys.stderr is not None else None)
        with self._lock:
            self._children.append(child)
        self._selector.register(child.status_fd, selectors.EVENT_READ, child)

    def _replace(self) -> None:
        now = self._guard.clock.monotonic()
        due = [instant for instant in self._restarts if instant <= now]
        self._restarts = [instant for instant in self._restarts if instant > now]
        for _ in due:
            try:
                self._start(careful=self._crashes > 0 or self._options.worker.isolate_items)
            except OSError as error:
                self.fatal = f"cannot start a worker process: {error}"

    def _reap(self) -> None:
        for child in list(self._children):
            code = child.process.poll()
            if code is not None:
                self._read_status(child)
                self._handle_exit(child, code)
            elif child.status_closed_at and self._guard.clock.monotonic() - child.status_closed_at > _SILENT_SECONDS:
                log.warning(
                    "worker %d has closed its pipe, and perhaps more; it is ended",
                    child.process.pid,
                    extra={"action": "crashed"},
                )
                child.process.kill()
                child.process.wait()

    def _handle_exit(self, child: WorkerHandle, code: int) -> None:
        with self._lock:
            self._children.remove(child)
        if child.status_closed_at is None:
            self._selector.unregister(child.status_fd)
        child.close()
        self._ended.add(child.tally.read())
        interrupted = self._guard.settings.interrupted_code
        if self._guard.notice is not None:  # other mistakes show again in the next attempt; that one would not
            self.fatal = child.fatal if child.gone else self.fatal
        elif child.fatal is not None:
            self.fatal = child.fatal
        elif child.finished and code == FINISHED:
            pass
        elif child.warned and code == interrupted:  # somebody warned this one alone; the pool goes on
            self._restarts.append(self._guard.clock.monotonic())
        elif code >= 0 and not child.started:
            self.fatal = f"a worker left with {code} before it had started; look at what the task's module does"
        else:  # a code alone proves nothing: the task may have left with it
            self._handle_crash(child, code)

    def _handle_crash(self, child: WorkerHandle, code: int) -> None:
        """It died by itself: the items it held share the blame; its successor goes one by one to find the guilty."""
        what = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
        log.warning("worker %d died with %s; starting another", child.process.pid, what, extra={"action": "crashed"})
        if child.handles:
            try:
                self._open_queue().record_crash(child.handles, f"its worker died with {what} while it held this item")
            except StayfastError as error:
                log.warning("the dead worker's items wait for its lease to end: %s", error)
        settled = sum(self.tally().as_json().values())
        self._crashes = 1 if settled > self._settled else self._crashes + 1
        self._settled = settled
        workers = self._options.workers
        if self._crashes >= _CRASHES_WITHOUT_PROGRESS * workers:
            self.fatal = f"{self._crashes} workers in a row died with {what} without finishing an item"
            return
        pause = _BACKOFF.seconds(-(-self._crashes // workers))
        self._restarts.append(self._guard.clock.monotonic() + pause)

    def _stop_workers(self) -> None:
        """The notice goes to every worker; what is still there just before the deadline is ended.

        The heartbeat goes on: whoever finishes its item inside the grace must still hold it then.
        """
        self._restarts.clear()
        if not self._told:
            self._told = True
            self._signal_all(signal.SIGTERM)
        if self._guard.budget.remaining_seconds < _LAST_SECONDS:
            self._signal_all(signal.SIGKILL)

    def _signal_all(self, number: int) -> None:
        for child in self._children:
            with contextlib.suppress(ProcessLookupError):
                child.process.send_signal(number)

    # -- listening

    def _poll_status(self) -> None:
        for key, _ in self._selector.select(_TICK_SECONDS):
            self._read_status(key.data)

    def _read_status(self, child: WorkerHandle) -> None:
        if not child.read_status() and child.status_closed_at is None:  # its end, or the task closed the pipe
            child.status_closed_at = self._guard.clock.monotonic()
            self._selector.unregister(child.status_fd)
        self._opened = self._opened or child.started

    # -- leases

    def _open_queue(self) -> Queue:
        with self._opening:
            if self._queue is None:
                self._queue = open_queue(
                    self._options.queue, sink=self._options.sink, policy=self._options.policy, create=False
                )
            return self._queue

    def _renew_leases(self) -> None:
        interval = 1.0
        while not self._over.wait(interval):
            with self._lock:
                handles = [item for child in self._children if child.is_running() for item in child.handles]
            if handles:
                try:
                    queue = self._open_queue()
                except StayfastError as error:
                    log.warning("leases could not be renewed: %s", error, extra={"action": "renew_failed"})
                    continue
                renew_leases(queue, handles)
                interval = queue.lease_seconds / 3
