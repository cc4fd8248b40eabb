"""One seed, one history: a run on a local disk, a run in a bucket, or workers on a queue.

First the safety phase: everything goes wrong that may, and what must never happen is looked for at every step. Then
the faults stop and the world has so many ticks to come to rest: saved, drained, nobody holding anything.
"""

from __future__ import annotations

import contextlib
import functools
import json
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

from faults import subject
from faults.sim.bucket import Bucket, ProcessStore
from faults.sim.disk import Disk, ProcessFS, is_inside
from faults.sim.runs import Oracle, Trainer, prune_from_outside, read_from_outside
from faults.sim.schedule import Machine, Process, Scheduler, SimClock, Task
from faults.sim.work import WorkWorld
from faults.tiers import Lost
from stayfast.runtime.checkpoint.cleanup import delete_unreferenced
from stayfast.runtime.run_record import record as head_format
from stayfast.runtime.run_record.commit_protocol import read_head, run_protocol
from stayfast.storage.stores.file import FileStore
from stayfast.storage.stores.protocol import Store

ROOT = "/data/runs/one"
LIVENESS_TICKS = 6000
POINT_FAULTS = ("kill", "kill", "stop", "stop", "clock jump")
Wrap = Callable[[object], object]


@dataclass
class Report:
    """What a campaign did."""

    seeds: int = 0
    ticks: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    kinds: Counter[str] = field(default_factory=Counter)


class RunWorld:
    """One run: a trainer most of the time, sometimes two, readers and prunes from outside."""

    TICKS = (300, 600, 1200)

    def __init__(self, scheduler: Scheduler, wrap_fs: Wrap, wrap_store: Wrap) -> None:
        self.scheduler = scheduler
        self.wrap_fs, self.wrap_store = wrap_fs, wrap_store
        rng = scheduler.order
        self.keep = rng.choice((1, 2, 2, 3))
        self.oracle = Oracle(self.read, self.exists)
        self.count = 0
        self.trainers: list[Trainer] = []
        self.point_rate = rng.choice((0.0, 0.002, 0.005, 0.02))
        self.call_rate = rng.choice((0.0, 0.02, 0.05, 0.15))
        self.skew_seconds = rng.choice((0.0, 600.0))
        self.overlap = rng.choice((0.0, 0.1, 0.4))
        self.outsiders = rng.choice((0.0, 0.3, 0.6))
        scheduler.before_point = self.something_happens
        scheduler.operator = self.operate

    # -- what differs between disk and bucket

    def read(self, key: str) -> bytes | None:
        raise NotImplementedError

    def exists(self, key: str) -> bool:
        raise NotImplementedError

    def open_store(self, process: Process) -> Store:
        raise NotImplementedError

    def machine(self) -> Machine:
        raise NotImplementedError

    def another_fault(self, task: Task) -> None:
        raise NotImplementedError

    # -- who comes and goes

    def process(self, what: str) -> Process:
        self.count += 1
        return Process(f"{what}-{self.count}", self.machine())

    def start_trainer(self, saves: int) -> Trainer:
        process = self.process("trainer")
        store = self.open_store(process)
        trainer = Trainer(self.scheduler, process, store, self.oracle, self.keep)
        self.trainers.append(trainer)
        self.scheduler.start(process, lambda: trainer.live(saves))
        return trainer

    def operate(self) -> float:
        """A Job controller that restarts what died, sometimes before it has died; and people with a command line."""
        scheduler, rng = self.scheduler, self.scheduler.order
        alive = any(trainer.process.running for trainer in self.trainers)
        if not alive or rng.random() < self.overlap * 0.2:
            self.start_trainer(rng.randint(2, 5))
        if rng.random() < self.outsiders:
            process = self.process("reader" if rng.random() < 0.5 else "pruner")
            store = self.open_store(process)
            if process.name.startswith("reader"):
                scheduler.start(process, lambda: read_from_outside(process, scheduler, store, self.oracle))
            else:
                scheduler.start(process, lambda: prune_from_outside(process, scheduler, store))
        return float(rng.choice((0.05, 0.2, 1.0)))

    def something_happens(self, task: Task) -> None:
        kind = self.scheduler.fault(self.point_rate, (*POINT_FAULTS, "another"))
        process, detail = task.process, self.scheduler.detail
        if kind == "kill":
            self.scheduler.kill(process)
        elif kind == "stop":
            process.stopped_until = self.scheduler.now + detail.choice((0.5, 20.0, 1200.0))
        elif kind == "clock jump":
            process.machine.wall_offset += detail.uniform(-600.0, 600.0)
        elif kind:
            self.another_fault(task)

    # -- the two phases

    def play(self, ticks: int) -> None:
        scheduler = self.scheduler
        scheduler.run(lambda: False, ticks)
        scheduler.log("-- the faults stop --")
        scheduler.operator = None
        self.heal()
        if not scheduler.run(self.at_rest, LIVENESS_TICKS):
            names = [task.name for task in scheduler._tasks]
            raise Lost(f"{LIVENESS_TICKS} ticks after the faults stopped these have not ended: {names}")
        last = self.start_trainer(2)
        if not scheduler.run(lambda: last.finished, LIVENESS_TICKS) or last.end != "finished":
            raise Lost(f"the faults are over, and the next attempt ended {last.end}")
        scheduler.run(self.at_rest, LIVENESS_TICKS)
        self.check_end()

    def threads(self) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()

    def close(self) -> None:
        """Nothing is left outside of memory."""

    def heal(self) -> None:
        self.scheduler.stop_everything_bad()

    def at_rest(self) -> bool:
        return not self.scheduler._tasks

    def check_end(self) -> None:
        """Everything listed restores byte-equal, and one more prune leaves nothing that nobody needs."""
        process = self.process("auditor")
        audit = lambda: self.audit(process)  # noqa: E731
        self.scheduler.start(process, audit)
        if not self.scheduler.run(self.at_rest, 20 * LIVENESS_TICKS):
            raise Lost("the audit did not end")

    def audit(self, process: Process) -> None:
        store, clock = self.open_store(process), SimClock(self.scheduler, process)
        held = run_protocol(read_head(), store, clock)
        assert held is not None
        engine = subject.make_engine(store, clock, inline=True)
        for row in held.head.checkpoints:
            self.oracle.check_restored(row, engine.restore(row), row.step)
        run_protocol(delete_unreferenced(None), store, clock)
        left = {entry.key for entry in store.keys("checkpoints/")} - self.oracle.needed
        if left:
            raise Lost(f"nobody needs {sorted(left)[:3]}, and no prune removes it")


class BucketWorld(RunWorld):
    """Every process on a machine of its own, with a clock of its own."""

    TICKS = (150, 300, 600)

    def __init__(self, scheduler: Scheduler, wrap_fs: Wrap, wrap_store: Wrap) -> None:
        self.bucket = Bucket(scheduler, self.seen)
        super().__init__(scheduler, wrap_fs, wrap_store)

    def seen(self, what: str, key: str, writer: str) -> None:
        if what == "put":
            self.oracle.named(key, writer)
        else:
            self.oracle.gone(key)

    def read(self, key: str) -> bytes | None:
        found = self.bucket.objects.get(key)
        return None if found is None else found[0]

    def exists(self, key: str) -> bool:
        return key in self.bucket.objects

    def open_store(self, process: Process) -> Store:
        store = ProcessStore(self.bucket, self.scheduler, process, self.call_rate)
        return self.wrap_store(store)  # type: ignore[return-value]

    def machine(self) -> Machine:
        skew = self.skew_seconds
        return Machine(f"machine-{self.count}", self.scheduler.order.uniform(-skew, skew))

    def another_fault(self, task: Task) -> None:
        detail = self.scheduler.detail
        if detail.random() < 0.7:
            task.process.cut_off_until = self.scheduler.now + detail.choice((1.0, 12.0, 60.0))
        else:
            self.bucket.full_until = self.scheduler.now + detail.choice((0.1, 2.0))

    def heal(self) -> None:
        super().heal()
        self.bucket.full_until = 0.0
        self.bucket.deliver(all_of_it=True)


class DiskWorld(RunWorld):
    """All processes on one machine and one disk; the power may go."""

    def __init__(self, scheduler: Scheduler, wrap_fs: Wrap, wrap_store: Wrap) -> None:
        self.disk = Disk()
        self.disk.mkdir("/data")
        self.disk.fsync_dir("/")
        self.host = Machine("host")
        super().__init__(scheduler, wrap_fs, wrap_store)
        self.error_rate = self.call_rate * 0.3

    def read(self, key: str) -> bytes | None:
        node = self.disk.names.get(f"{ROOT}/{key}")
        return None if node is None or node.data is None else bytes(node.data)

    def exists(self, key: str) -> bool:
        return f"{ROOT}/{key}" in self.disk.names

    def open_store(self, process: Process) -> Store:
        def seen(what: str, path: str) -> None:
            key = is_inside(path, ROOT)
            if key and what == "named":
                self.oracle.named(key, process.name)
            elif key and what == "gone":
                self.oracle.gone(key)

        fs = ProcessFS(self.disk, self.scheduler, process, self.error_rate, seen)
        clock = SimClock(self.scheduler, process)
        return self.wrap_store(FileStore(ROOT, fs=self.wrap_fs(fs), clock=clock))  # type: ignore[return-value, arg-type]

    def machine(self) -> Machine:
        return self.host

    def another_fault(self, task: Task) -> None:
        detail = self.scheduler.detail
        if detail.random() < 0.3:
            self.disk.full_until = self.scheduler.now + detail.choice((0.05, 0.5))
            return
        self.scheduler.injected["power cut"] += 1
        self.scheduler.log("POWER CUT")
        for other in list(self.scheduler._tasks):
            self.scheduler.kill(other.process)
        self.disk.cut(detail)
        self.host.wall_offset += detail.choice((0.0, 0.0, -300.0, 300.0))
        self.oracle.power_came_back()

    def heal(self) -> None:
        super().heal()
        self.disk.full_until = 0.0


WORLDS: dict[str, Any] = {"bucket": BucketWorld, "disk": DiskWorld, "work": WorkWorld}


def compact(head: head_format.RunRecord) -> bytes:
    """``HEAD.json`` with its real checksum and without its white space, which would be a third of the time."""
    head = head_format._fold_old_attempts(head)
    body: dict[str, Any] = {"format": head_format.FORMAT, **_fields(head)}
    body["checkpoints"] = [_fields(row) for row in head.checkpoints]
    body["attempts"] = [_fields(row) for row in head.attempts]
    body["checksum"] = head_format._digest(body)
    return json.dumps(body).encode()


def _fields(value: Any) -> dict[str, Any]:
    return {name: getattr(value, name) for name in value.__dataclass_fields__}


@contextlib.contextmanager
def deterministic(seed: int) -> Iterator[None]:
    """Temporary names and tokens from the seed."""
    names = random.Random(f"{seed}/names")
    with (
        mock.patch("secrets.token_hex", lambda count=16: names.randbytes(count).hex()),
        mock.patch("os.getpid", return_value=4711),
        mock.patch("stayfast.runtime.checkpoint.snapshot.HUGE_PAGE", 4096),
        # Long ledgers would be most of the time.
        mock.patch("stayfast.runtime.run_record.record.MAX_ATTEMPT_RECORDS", 4),
        mock.patch("stayfast.runtime.run_record.commit_protocol.encode", compact),
        mock.patch("stayfast.runtime.run_record.commit_protocol.decode", functools.lru_cache(16)(head_format.decode)),
    ):
        yield


def same(thing: object) -> object:
    return thing


def play(
    seed: int,
    *,
    skip: frozenset[int] = frozenset(),
    say: Callable[[str], None] | None = None,
    wrap_fs: Wrap = same,
    wrap_store: Wrap = same,
    kind: str | None = None,
    watch: Callable[[Scheduler], None] | None = None,
) -> Scheduler:
    """One seed from beginning to end; ``Lost`` says what went wrong."""
    scheduler = Scheduler(seed, skip=skip, say=say)
    kind = kind or scheduler.order.choice(sorted(WORLDS))
    scheduler.kind = kind
    try:
        with deterministic(seed):
            scheduler.log(f"seed {seed}: {kind}")
            world = WORLDS[kind](scheduler, wrap_fs, wrap_store)
            with world.threads():
                try:
                    world.play(scheduler.order.choice(world.TICKS))
                finally:
                    scheduler.end()
                    world.close()
    finally:
        if watch is not None:
            watch(scheduler)
    return scheduler


def run(seed: int, count: int, deadline_seconds: float | None = None, **options: object) -> Report:
    """``count`` seeds from ``seed`` on."""
    report = Report()
    began = time.process_time()
    for number in range(seed, seed + count):
        if deadline_seconds is not None and time.process_time() - began > deadline_seconds:
            break
        played: list[Scheduler] = []
        try:
            play(number, watch=played.append, **options)  # type: ignore[arg-type]
        except Exception as error:  # a promise broken, or an error that nobody declared
            kind = f" --kind {played[0].kind}" if played else ""
            what = error if isinstance(error, Lost) else f"{type(error).__name__}: {error}"
            raise Lost(f"seed {number}: {what}; replay: python -m faults.sim --seed {number}{kind}") from error
        scheduler = played[0]
        report.seeds += 1
        report.ticks += scheduler.tick
        report.faults += scheduler.injected
        report.kinds[scheduler.kind] += 1
    return report
