"""Workers on one queue: the real worker, pump, heartbeat, SQLite queue and sink, on simulated time and threads."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

from faults.sim.bucket import Bucket, ProcessStore
from faults.sim.database import Connection, Database
from faults.sim.schedule import Machine, Process, Scheduler, SimClock, Task
from faults.sim.threads import Lock, Threading
from faults.subject import INLINE
from faults.tiers import Lost
from stayfast.batch.queue.protocol import RetryPolicy
from stayfast.batch.queue.sqlite import SqliteQueue
from stayfast.batch.sink.objects import PREFIX, ObjectSink
from stayfast.batch.sink.sqlite import SqliteSink
from stayfast.batch.worker import queue_thread, worker
from stayfast.batch.worker.task import Task as WorkTask
from stayfast.batch.worker.worker import Worker, WorkerOptions
from stayfast.errors import Interrupted, StayfastError
from stayfast.model.notice import Cause, Notice
from stayfast.runtime.interruption.guard import Guard
from stayfast.settings import Settings

LIVENESS_TICKS = 40_000
LIVENESS_SECONDS = 3600.0
POLICY = RetryPolicy(max_failures=3, max_deliveries=10_000, backoff_seconds=1.0)
PLACE = "/dev/shm" if os.path.isdir("/dev/shm") else None


@functools.cache
def template() -> dict[str, bytes]:
    """An empty queue with its sink, made once: making the tables is most of a short history."""
    with tempfile.TemporaryDirectory(prefix="stayfast-sim-", dir=PLACE) as folder:
        queue, sink = SqliteQueue(f"{folder}/q.db"), SqliteSink(f"{folder}/q.db", "r")
        sink.close()
        queue.close()
        SqliteSink(f"{folder}/r.db", "r").close()
        return {path.name: path.read_bytes() for path in Path(folder).iterdir()}


class WatchedQueue(SqliteQueue):
    """Tells when leases were really renewed, and by whom; so that nobody loses one that is good."""

    world: WorkWorld
    process: Process

    def __init__(self, *args: Any, **options: Any) -> None:
        self._uncommitted: dict[int, float] = {}
        super().__init__(*args, **options)

    @contextlib.contextmanager
    def batch(self) -> Iterator[sqlite3.Connection]:
        """What is rolled back has renewed nothing."""
        try:
            with super().batch() as connection:
                yield connection
            if not self._depth:
                self._publish()
        finally:
            if not self._depth:
                self._uncommitted.clear()

    def _renewed(self, owner: int) -> None:
        self._uncommitted[owner] = self.world.scheduler.now
        if not self._depth:
            self._publish()

    def _publish(self) -> None:
        self.world.renewed |= {owner: (self, at) for owner, at in self._uncommitted.items()}
        self._uncommitted.clear()

    def _extend(self, owners: list[int]) -> int:
        count = super()._extend(owners)
        for owner in owners:
            self._renewed(owner)
        return count

    def _ensure_owner(self) -> int:
        owner = super()._ensure_owner()
        self._renewed(owner)
        return owner

    def _expire(self, owner: int) -> int:
        other, at = self.world.renewed.get(owner, (self, 0.0))
        age = self.world.scheduler.now - at
        if other is not self and other._owner == owner and other.process.running and age < self.lease_seconds - 1.0:
            raise Lost(f"{other.process.name} lives and renewed its lease {age:.1f} s ago, and it was given to others")
        return super()._expire(owner)


class WorkWorld:
    """A producer, workers that come and go, and the books that must be right after every commit."""

    TICKS = (600, 1200, 2400)

    def __init__(self, scheduler: Scheduler, wrap_fs: Any, wrap_store: Any) -> None:
        self.scheduler = scheduler
        rng = scheduler.order
        self.folder = tempfile.mkdtemp(prefix="stayfast-sim-", dir=PLACE)
        for name, data in template().items():
            Path(self.folder, name).write_bytes(data)
        self.path = os.path.join(self.folder, "q.db")
        self.where = rng.choice(("fused", "fused", "apart", "bucket"))
        self.items = {f"k{number:02d}": number for number in range(rng.randint(6, 30))}
        self.poison = {key for key in self.items if rng.random() < 0.08}
        self.acked: set[str] = set()
        self.first: dict[str, str] = {}
        self.host = Machine("host")
        self.boot = 0
        self.count = 0
        self.calls = 0
        self.all_settled = False
        self.workers: list[Process] = []
        self.guards: dict[Process, Guard] = {}
        self.renewed: dict[int, tuple[WatchedQueue, float]] = {}  # by owner, when it last was
        self.point_rate = rng.choice((0.0, 0.001, 0.003, 0.01))
        self.call_rate = rng.choice((0.0, 0.005, 0.02, 0.05))
        self.longest = rng.choice((0.1, 3.0, 40.0))
        self.chunk = rng.randint(1, 5)
        self.calm = False
        self.queue_file = Database(scheduler, self.path, self.look)
        self.sink_file = Database(scheduler, f"{self.folder}/r.db", self.look)
        self.bucket = Bucket(scheduler, lambda what, key, writer: self.look())
        self.eyes = sqlite3.connect(self.path, isolation_level=None, check_same_thread=False)
        self.sink_eyes = sqlite3.connect(f"{self.folder}/r.db", isolation_level=None, check_same_thread=False)
        scheduler.before_point = self.something_happens
        scheduler.log(f"{self.where}, {len(self.items)} items, chunks of {self.chunk}, tasks up to {self.longest} s")
        self.producer = self.process("producer")
        scheduler.operator = self.operate

    # -- what must hold after every commit

    def look(self) -> None:
        rows = dict(self.eyes.execute("SELECT key, holder FROM stayfast_item"))
        stored = self.stored()
        done = {key for key, holder in rows.items() if holder is None}
        if not self.acked <= rows.keys():
            raise Lost(f"{sorted(self.acked - rows.keys())} were enqueued and are gone")
        if done - stored.keys():
            raise Lost(f"{sorted(done - stored.keys())} are acknowledged and not recorded")
        if self.where == "fused" and stored.keys() - done:
            raise Lost(f"{sorted(stored.keys() - done)} are recorded and not acknowledged in the same transaction")
        dead = {key for key, holder in rows.items() if holder == -2}
        self.all_settled = len(done) + len(dead) == len(self.items)
        if dead - self.poison:
            raise Lost(f"{sorted(dead - self.poison)} are dead, and nothing is wrong with them")
        for key, payload in stored.items():
            if self.first.setdefault(key, payload) != payload:
                raise Lost(f"the result of {key} was replaced")
            if json.loads(payload)[0] != self.items[key] ** 2 or key in self.poison:
                raise Lost(f"{key} is recorded with the result of something else")

    def stored(self) -> dict[str, str]:
        if self.where == "bucket":
            found = {}
            for name, (data, _) in self.bucket.objects.items():
                found[name[len(PREFIX) :]] = data.partition(b"\n")[2].decode()
            return found
        eyes = self.eyes if self.where == "fused" else self.sink_eyes
        return dict(eyes.execute("SELECT key, payload FROM r"))

    # -- who comes and goes

    def process(self, what: str) -> Process:
        self.count += 1
        return Process(f"{what}-{self.count}", self.host)

    def open_queue(self, process: Process) -> SqliteQueue:
        queue: Any = WatchedQueue(self.path, clock=SimClock(self.scheduler, process), policy=POLICY)
        queue.world, queue.process = self, process
        queue.connection = Connection(queue.connection, self.queue_file, process, self.call_rate)
        queue._lock = Lock(self.scheduler, "queue")
        queue._boot = f"boot {self.boot}"
        process.on_death.append(queue._proof.close)
        return queue  # type: ignore[no-any-return]

    def open_sink(self, process: Process) -> Any:
        clock = SimClock(self.scheduler, process)
        if self.where == "bucket":
            sink: Any = ObjectSink(ProcessStore(self.bucket, self.scheduler, process, self.call_rate), clock=clock)
            sink._pool = INLINE
            return sink
        file = self.queue_file if self.where == "fused" else self.sink_file
        sink = SqliteSink(file.path, "r", clock=clock)
        sink._connection = Connection(sink._connection, file, process, self.call_rate)
        sink._lock = Lock(self.scheduler, "sink")
        return sink

    def enqueue(self) -> None:
        queue = self.open_queue(self.scheduler.current.process)
        keys = sorted(self.items)
        half = len(keys) // 2
        for part in (keys[:half], keys[half:], keys):  # the last time to be sure
            with contextlib.suppress(StayfastError):
                queue.enqueue([(key, json.dumps(self.items[key])) for key in part])
                self.acked |= set(part)
                self.scheduler.log(f"enqueued {len(part)}")
        queue.close()

    def compute(self, process: Process, item: int) -> list[object]:
        self.calls += 1
        key = f"k{item:02d}"
        if key not in self.acked and item not in self.items.values():
            raise Lost(f"{item} was handed out and never enqueued")
        SimClock(self.scheduler, process).sleep(self.scheduler.order.uniform(0.0, self.longest))
        if key in self.poison:
            raise ValueError("poison")
        return [item * item, self.calls]

    def work(self) -> None:
        process = self.scheduler.current.process
        queue, sink = self.open_queue(process), self.open_sink(process)
        guard = self.guards[process] = Guard(
            settings=Settings(grace_seconds=30.0, metadata="off"), clock=SimClock(self.scheduler, process)
        )
        task = WorkTask(lambda item: self.compute(process, item), key=None, each=True)
        end = "drained"
        try:
            Worker(task, queue, sink, guard, WorkerOptions(self.chunk, prefetch=self.chunk % 2)).run()
        except Interrupted:
            end = "interrupted"
        except StayfastError as error:
            end = f"{type(error).__name__}: {error}"
        with contextlib.suppress(StayfastError):
            sink.close()
        queue.close()
        self.scheduler.log(f"ends: {end}")

    def settled(self) -> set[str]:
        return {key for (key,) in self.eyes.execute("SELECT key FROM stayfast_item WHERE holder IS NULL OR holder=-2")}

    def start_worker(self) -> None:
        process = self.process("worker")
        self.workers.append(process)
        self.scheduler.start(process, self.work)

    def operate(self) -> float:
        scheduler, rng = self.scheduler, self.scheduler.order
        if not self.producer.running and not self.acked >= self.items.keys():
            self.producer = self.process("producer")
            scheduler.start(self.producer, self.enqueue)
        alive = [process for process in self.workers if process.running]
        if len(alive) < (1 if self.calm else 3) and self.acked and not self.all_settled and rng.random() < 0.6:
            self.start_worker()
        if alive and not self.calm and rng.random() < 0.03:
            self.notify(rng.choice(alive))
        return float(rng.choice((0.2, 2.0, 10.0)))

    def notify(self, process: Process) -> None:
        """SIGTERM: the notice is posted by a thread of the worker's own."""
        guard = self.guards.get(process)
        if guard is None:
            return
        self.scheduler.injected["notice"] += 1
        notice = Notice(Cause.PREEMPTION, guard.clock.monotonic(), 30.0, "")
        self.scheduler.start(process, lambda: guard.board.post(notice), f"{process.name}/signal")

    def something_happens(self, task: Task) -> None:
        kind = self.scheduler.fault(self.point_rate, ("kill", "kill", "stop", "stop", "clock jump", "reboot"))
        detail = self.scheduler.detail
        if kind == "kill":
            self.scheduler.kill(task.process)
        elif kind == "stop":
            task.process.stopped_until = self.scheduler.now + detail.choice((2.0, 14.0, 16.0, 60.0))
        elif kind == "clock jump":
            self.host.wall_offset += detail.choice((-1000.0, -60.0, 60.0, 1000.0))
        elif kind == "reboot" and detail.random() < 0.3:
            for other in list(self.scheduler._tasks):
                self.scheduler.kill(other.process)
            self.boot += 1
            self.host.monotonic_offset = -self.scheduler.now + detail.uniform(1.0, 60.0)

    # -- the two phases

    def play(self, ticks: int) -> None:
        scheduler = self.scheduler
        scheduler.run(lambda: self.all_settled, ticks)
        scheduler.log("-- the faults stop --")
        self.calm = True
        scheduler.stop_everything_bad()
        self.bucket.deliver(all_of_it=True)
        until = scheduler.now + LIVENESS_SECONDS
        scheduler.run(lambda: (self.all_settled and not scheduler._tasks) or scheduler.now > until, LIVENESS_TICKS)
        if scheduler._tasks or not self.all_settled:
            names = [task.name for task in scheduler._tasks]
            left = sorted(self.items.keys() - self.settled())
            raise Lost(f"the faults are over, and {left} are not done; still there: {names}")
        self.look()
        owners = self.eyes.execute("SELECT count(*) FROM stayfast_owner").fetchone()[0]
        leased = self.eyes.execute("SELECT count(*) FROM stayfast_item WHERE holder > 0").fetchone()[0]
        if leased:
            raise Lost(f"everything is over, and {leased} leases of {owners} owners are not free")

    def close(self) -> None:
        self.eyes.close()
        self.sink_eyes.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    @contextlib.contextmanager
    def threads(self) -> Iterator[None]:
        shim: Any = Threading(self.scheduler)
        with mock.patch.object(queue_thread, "threading", shim), mock.patch.object(worker, "threading", shim):
            yield
