"""What the product takes from ``threading``, on the simulator's schedule: a worker's threads interleave by seed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from faults.sim.schedule import NEVER, Scheduler, Task


class Lock:
    """Re-entrant, whatever it stands for: nobody here takes a plain one twice."""

    def __init__(self, scheduler: Scheduler, what: str = "lock") -> None:
        self.scheduler, self._what = scheduler, what
        self.owner: Task | None = None
        self.depth = 0
        self._queued: list[Task] = []

    def acquire(self) -> bool:
        me = self.scheduler.current
        if self.owner is not me:
            self.scheduler.point(self._what)
            while self.owner is not None and self.owner.process.alive:
                self._queued.append(me)
                self.scheduler.point(f"waits for {self._what}", ready_at=NEVER)
            self.owner, self.depth = me, 0
        self.depth += 1
        return True

    def release(self) -> None:
        self.depth -= 1
        if not self.depth:
            self.let_go()

    def let_go(self) -> int:
        """All of it; returns how often it was held."""
        depth, self.depth, self.owner = self.depth, 0, None
        _wake(self._queued)
        return depth

    def __enter__(self) -> Lock:
        self.acquire()
        return self

    def __exit__(self, *_: object) -> None:
        if self.owner is self.scheduler.current:
            self.release()


class Condition:
    """Waits on a lock, which it may share with other conditions."""

    def __init__(self, lock: Lock) -> None:
        self._lock, self._scheduler = lock, lock.scheduler
        self._waiters: list[Task] = []

    def __enter__(self) -> Condition:
        self._lock.acquire()
        return self

    def __exit__(self, *_: object) -> None:
        self._lock.__exit__()

    def wait(self, timeout: float | None = None) -> bool:
        me = self._scheduler.current
        depth = self._lock.let_go()
        self._waiters.append(me)
        ready_at = NEVER if timeout is None else self._scheduler.now + timeout
        self._scheduler.point("waits", ready_at=ready_at)
        told = me not in self._waiters
        if not told:
            self._waiters.remove(me)
        self._lock.acquire()
        self._lock.depth = depth
        return told

    def wait_for(self, predicate: Callable[[], Any], timeout: float | None = None) -> Any:
        until = None if timeout is None else self._scheduler.now + timeout
        while not (result := predicate()):
            left = None if until is None else until - self._scheduler.now
            if left is not None and left <= 0:
                return result
            self.wait(left)
        return result

    def notify(self) -> None:
        first, self._waiters = self._waiters[:1], self._waiters[1:]
        _wake(first)

    def notify_all(self) -> None:
        _wake(self._waiters)


def _wake(tasks: list[Task]) -> None:
    for task in tasks:
        task.wake_at = 0.0
    tasks.clear()


class Event:
    """Set once, seen by everybody."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._set = False
        self._waiters: list[Task] = []

    def is_set(self) -> bool:
        return self._set

    def set(self) -> None:
        self._set = True
        _wake(self._waiters)

    def wait(self, timeout: float | None = None) -> bool:
        if not self._set:
            me = self._scheduler.current
            self._waiters.append(me)
            self._scheduler.point("waits", ready_at=NEVER if timeout is None else self._scheduler.now + timeout)
            if me in self._waiters:
                self._waiters.remove(me)
        return self._set


class Thread:
    """A task of the process that makes it."""

    def __init__(
        self, target: Callable[..., Any], name: str = "", daemon: bool = False, scheduler: Scheduler | None = None
    ) -> None:
        assert scheduler is not None
        self._scheduler, self._target, self._name = scheduler, target, name
        self._task: Task | None = None

    def start(self) -> None:
        process = self._scheduler.current.process
        short = self._name.replace("stayfast-", "")
        self._task = self._scheduler.start(process, self._target, f"{process.name}/{short}")

    def join(self, timeout: float | None = None) -> None:
        until = NEVER if timeout is None else self._scheduler.now + timeout
        while self._task is not None and not self._task.done and self._scheduler.now < until:
            self._scheduler.sleep(0.01)


class Threading:
    """Stands in for the module in the worker's own files."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler

    def Condition(self, lock: Lock | None = None) -> Condition:
        return Condition(lock or Lock(self._scheduler))

    def RLock(self) -> Lock:
        return Lock(self._scheduler)

    Lock = RLock

    def Event(self) -> Event:
        return Event(self._scheduler)

    def Thread(self, *, target: Callable[..., Any], name: str = "", daemon: bool = False) -> Thread:
        return Thread(target, name, daemon, self._scheduler)
