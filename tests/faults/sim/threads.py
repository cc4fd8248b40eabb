"""What the product takes from ``threading``, on the simulator's schedule: a worker's threads interleave by seed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from faults.sim.schedule import NEVER, Scheduler, Task


class Condition:
    """A condition with its lock; re-entrant, so that it serves as an ``RLock`` too."""

    def __init__(self, scheduler: Scheduler, what: str = "lock") -> None:
        self._scheduler, self._what = scheduler, what
        self._owner: Task | None = None
        self._depth = 0
        self._waiters: list[Task] = []
        self._queued: list[Task] = []

    def acquire(self) -> bool:
        me = self._scheduler.current
        if self._owner is not me:
            self._scheduler.point(self._what)
            while self._owner is not None and self._owner.process.alive:
                self._queued.append(me)
                self._scheduler.point(f"waits for {self._what}", ready_at=NEVER)
            self._owner = me
        self._depth += 1
        return True

    def release(self) -> None:
        self._depth -= 1
        if not self._depth:
            self._owner = None
            _wake(self._queued)

    def __enter__(self) -> Condition:
        self.acquire()
        return self

    def __exit__(self, *_: object) -> None:
        if self._owner is self._scheduler.current:
            self.release()

    def wait(self, timeout: float | None = None) -> bool:
        me, depth = self._scheduler.current, self._depth
        self._depth, self._owner = 0, None
        _wake(self._queued)
        self._waiters.append(me)
        ready_at = NEVER if timeout is None else self._scheduler.now + timeout
        self._scheduler.point("waits", ready_at=ready_at)
        told = me not in self._waiters
        if not told:
            self._waiters.remove(me)
        self.acquire()
        self._depth = depth
        return told

    def wait_for(self, predicate: Callable[[], Any], timeout: float | None = None) -> Any:
        until = None if timeout is None else self._scheduler.now + timeout
        while not (result := predicate()):
            left = None if until is None else until - self._scheduler.now
            if left is not None and left <= 0:
                return result
            self.wait(left)
        return result

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
        short = self._name.replace("holdfast-", "")
        self._task = self._scheduler.start(process, self._target, f"{process.name}/{short}")

    def join(self, timeout: float | None = None) -> None:
        until = NEVER if timeout is None else self._scheduler.now + timeout
        while self._task is not None and not self._task.done and self._scheduler.now < until:
            self._scheduler.sleep(0.01)


class Threading:
    """Stands in for the module in the worker's own files."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler

    def Condition(self) -> Condition:
        return Condition(self._scheduler)

    def Event(self) -> Event:
        return Event(self._scheduler)

    def Thread(self, *, target: Callable[..., Any], name: str = "", daemon: bool = False) -> Thread:
        return Thread(target, name, daemon, self._scheduler)
