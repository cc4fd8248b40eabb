"""Simulated processes on simulated time: real code on real threads, of which exactly one runs at any moment.

Every call that crosses a seam passes ``Scheduler.point``; there one seeded stream decides who goes on, and another what
goes wrong. Nothing else can interleave, so a seed is a whole history: the same every time, on every machine.
"""

from __future__ import annotations

import hashlib
import os
import random
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

EPOCH = 1_700_000_000.0
NEVER = float("inf")


class Killed(BaseException):
    """The process is dead: raised by every seam it still touches, so that no clean-up code has any effect."""


@dataclass(eq=False)
class Machine:
    """Where processes run: its clocks, and what a power cut takes with it."""

    name: str
    wall_offset: float = 0.0
    monotonic_offset: float = 1000.0


@dataclass(eq=False)
class Process:
    """One simulated process; its tasks are its threads."""

    name: str
    machine: Machine
    alive: bool = True
    stopped_until: float = 0.0
    cut_off_until: float = 0.0
    on_death: list[Callable[[], None]] = field(default_factory=list)
    tasks: list[Task] = field(default_factory=list)

    @property
    def running(self) -> bool:
        return self.alive and any(not task.done for task in self.tasks)


class Task:
    """One thread of a process."""

    def __init__(self, name: str, process: Process, action: Callable[[], Any]) -> None:
        self.name, self.process, self.action = name, process, action
        self.go = threading.Lock()
        self.go.acquire()
        self.wake_at = 0.0  # ready once this has come; NEVER while it waits for somebody
        self.done = False


class Scheduler:
    """Who runs, what time it is, and what goes wrong."""

    def __init__(
        self, seed: int, *, skip: frozenset[int] = frozenset(), say: Callable[[str], None] | None = None
    ) -> None:
        self.seed = seed
        self.kind = ""
        self.order = random.Random(f"{seed}/order")
        self._chance = random.Random(f"{seed}/faults")
        self._skip, self._say = skip, say
        self.now = 0.0
        self.tick = 0
        self.step_seconds = 0.002
        self.sticky = self.order.choice((0.7, 0.9, 0.97, 0.99))
        self.faults_on = True
        self.injected: Counter[str] = Counter()
        self.ordinals = 0
        self.detail = random.Random(seed)  # of the fault that is being made: how long, how much, which
        self.before_point: Callable[[Task], None] | None = None
        self.operator: Callable[[], float] | None = None
        """Starts and ends processes from outside; returns after how many seconds it wants to look again."""
        self._operator_at = 0.0
        self.failure: BaseException | None = None
        self._tasks: list[Task] = []
        self._current: Task | None = None
        self._digest = hashlib.sha256()
        self._main = threading.Lock()
        self._main.acquire()
        self._until: Callable[[], bool] = lambda: False
        self._last_tick = 0

    # -- what happened

    def log(self, what: str) -> None:
        """One line of history; its digest is the identity of the run."""
        name = self._current.name if self._current is not None else "-"
        self._digest.update(f"{self.tick} {name} {what}\n".encode())
        if self._say is not None:
            self._say(f"{self.tick:6} {self.now:10.3f} {name:12} {what}")

    @property
    def fingerprint(self) -> str:
        return f"{self._digest.hexdigest()}-{self.tick}-{self.now:.6f}"

    def fault(self, rate: float, kinds: tuple[str, ...]) -> str:
        """What goes wrong now, if anything. Each call draws once, so that one fault less does not shift the others."""
        if not self.faults_on or self._chance.random() >= rate:
            return ""
        ordinal = self.ordinals
        self.ordinals += 1
        if ordinal in self._skip:
            return ""
        self.detail = random.Random(f"{self.seed}/fault/{ordinal}")
        kind = self.detail.choice(kinds)
        self.injected[kind] += 1
        self.log(f"FAULT {ordinal}: {kind}")
        return kind

    # -- processes

    def start(self, process: Process, action: Callable[[], Any], name: str = "") -> Task:
        """A new thread of a process."""
        task = Task(name or process.name, process, action)
        process.tasks.append(task)
        self._tasks.append(task)
        _lend_thread(self._body, task)
        return task

    def kill(self, process: Process) -> None:
        """At once and for good; what the kernel does for the dead happens now."""
        if not process.alive:
            return
        process.alive = False
        self.log(f"{process.name} is dead")
        for action in process.on_death:
            action()

    def _body(self, task: Task) -> None:
        task.go.acquire()
        try:
            if task.process.alive:
                task.action()
        except Killed:
            pass
        except BaseException as error:
            if self.failure is None and (task.process.alive or isinstance(error, AssertionError)):
                self.failure = error
        task.done = True
        self._tasks.remove(task)
        if task.process.alive and not any(not other.done for other in task.process.tasks):
            for action in task.process.on_death:
                action()
        self._pass_on()

    # -- running

    def run(self, until: Callable[[], bool], ticks: int) -> bool:
        """Go on until the condition holds; false when the ticks ran out first, or nobody can move."""
        self._until, self._last_tick = until, self.tick + ticks
        self._pass_on()
        self._main.acquire()
        if self.failure is not None:
            error, self.failure = self.failure, None
            raise error
        return until()

    def end(self) -> None:
        """Let every thread unwind."""
        self.operator = None
        self.faults_on = False
        for task in list(self._tasks):
            task.process.alive = False
        self._until, self._last_tick, self.failure = (lambda: False), self.tick + 1_000_000, None
        self._pass_on()
        self._main.acquire()
        assert not self._tasks, f"still there: {[task.name for task in self._tasks]}"

    def point(self, what: str, *, ready_at: float = 0.0) -> None:
        """A seam is crossed here: others may go first, and this may be as far as the process gets."""
        task = self._current
        assert task is not None
        if not task.process.alive:
            raise Killed
        self.tick += 1
        self.now += self.step_seconds
        self.log(what)
        if self.faults_on and self.before_point is not None:
            self.before_point(task)
        task.wake_at = ready_at
        following = self._choose(task)
        if following is not task:
            self._hand_over(following)
            task.go.acquire()
        if not task.process.alive:
            raise Killed

    def _pass_on(self) -> None:
        """The current thread ends or is the main one: whoever is next."""
        self._hand_over(self._choose(None))

    def _hand_over(self, following: Task | None) -> None:
        self._current = following
        (self._main if following is None else following.go).release()

    def _choose(self, task: Task | None) -> Task | None:
        """Whose turn it is; None for the main thread."""
        for other in self._tasks:
            if not other.process.alive and not other.done:
                return other
        if self.failure is not None or self.tick >= self._last_tick or self._until():
            return None
        while True:
            now = self.now
            if self.operator is not None and now >= self._operator_at:
                self._operator_at = now + self._operate(self.operator)
            goes_on = task is not None and task.wake_at <= now and task.process.stopped_until <= now
            if goes_on and self.order.random() < self.sticky:
                return task
            ready = [each for each in self._tasks if each.wake_at <= now and each.process.stopped_until <= now]
            if ready:
                return ready[self.order.randrange(len(ready))] if len(ready) > 1 else ready[0]
            soonest = min((max(each.wake_at, each.process.stopped_until) for each in self._tasks), default=NEVER)
            if self.operator is not None:
                soonest = min(soonest, self._operator_at)
            if soonest == NEVER or self.tick >= self._last_tick or self._until():
                return None
            self.now = soonest

    def _operate(self, operator: Callable[[], float]) -> float:
        before, self._current = self._current, None
        self.tick += 1
        seconds = operator()
        self.log(f"the operator looks again in {seconds:g} s")
        self._current = before
        return seconds

    # -- for those who wait

    @property
    def current(self) -> Task:
        assert self._current is not None
        return self._current

    def sleep(self, seconds: float) -> None:
        self.point(f"sleep {seconds:.3f}", ready_at=self.now + max(0.0, seconds))

    def stop_everything_bad(self) -> None:
        """The faults are over: whoever was stopped or cut off goes on."""
        self.faults_on = False
        for task in self._tasks:
            task.process.stopped_until = task.process.cut_off_until = 0.0


class SimClock:
    """The clocks of one machine, as one process sees them."""

    def __init__(self, scheduler: Scheduler, process: Process) -> None:
        self._scheduler, self._process = scheduler, process

    def monotonic(self) -> float:
        return self._scheduler.now + self._process.machine.monotonic_offset

    def wall(self) -> float:
        return EPOCH + self._scheduler.now + self._process.machine.wall_offset

    def sleep(self, seconds: float) -> None:
        self._scheduler.sleep(seconds)

    def wait(self, event: Any, seconds: float | None) -> bool:
        return bool(event.wait(seconds))


# -- threads that are used again: starting one costs as much as a whole save

_idle: list[_Thread] = []


class _Thread(threading.Thread):
    def __init__(self) -> None:
        super().__init__(name="simulated", daemon=True)
        self.job: tuple[Callable[[Task], None], Task] | None = None
        self.wake = threading.Lock()
        self.wake.acquire()
        self.start()

    def run(self) -> None:
        while True:
            self.wake.acquire()
            assert self.job is not None
            body, task = self.job
            self.job = None
            _idle_after(self, body, task)


def _idle_after(thread: _Thread, body: Callable[[Task], None], task: Task) -> None:
    body(task)
    _idle.append(thread)


def _lend_thread(body: Callable[[Task], None], task: Task) -> None:
    thread = _idle.pop() if _idle else _Thread()
    thread.job = (body, task)
    thread.wake.release()


os.register_at_fork(after_in_child=_idle.clear)
