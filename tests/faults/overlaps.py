"""Suite G, for real: stop an attempt in the middle of a save, let the next one take over, wake the first again."""

from __future__ import annotations

import os
import random
import shutil
import signal
import tempfile
import time
import traceback
from dataclasses import dataclass

from faults import subject
from faults.hooked_fs import HookedFS, SignalAt
from faults.tiers import Lost
from stayfast.clock import SystemClock
from stayfast.errors import StayfastError, SupersededError
from stayfast.filesystem import SystemFS
from stayfast.storage.stores.file import FileStore

KEEP = 2
PATIENCE_SECONDS = 0.75
LIMIT_SECONDS = 60.0


@dataclass
class Report:
    stopped: int = 0
    superseded: int = 0
    held_the_lock: int = 0
    ended_before: int = 0


def state_of(seed: int, step: int, attempt: int) -> subject.State:
    """Each attempt's bytes are its own."""
    return subject.make_state(random.Random(f"{seed}/{step}/{attempt}"), step * 1000 + attempt)


@dataclass
class Process:
    """One attempt in a process of its own, and what it said."""

    pid: int
    reader: int

    def said(self) -> list[tuple[str, int]]:
        with os.fdopen(self.reader) as pipe:
            return [(kind, int(step)) for kind, step in (line.split() for line in pipe.read().splitlines())]


def start(root: str, seed: int, point: int | None, saves: int) -> Process:
    """Fork an attempt that stops itself at its n-th durable point."""
    reader, sender = os.pipe()
    pid = os.fork()
    if pid:
        os.close(sender)
        return Process(pid, reader)
    code = 1
    try:
        os.close(reader)
        disk = SystemFS() if point is None else HookedFS(SignalAt(point, signal.SIGSTOP))
        store = FileStore(root, fs=disk)
        _live(store, seed, saves, lambda kind, step: os.write(sender, f"{kind} {step}\n".encode()) and None)
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)
    raise AssertionError("unreachable")


def _live(store: FileStore, seed: int, saves: int, say: object) -> None:
    assert callable(say)
    try:
        attempt = subject.Attempt(store, keep=KEEP, clock=SystemClock())
        say("attempt", attempt.number)
        found = attempt.restore()
        say("resumed", -1 if found is None else found[0])
        first = 0 if found is None else found[0] + 1
        for step in range(first, first + saves):
            attempt.save(step, state_of(seed, step, attempt.number))
            say("ack", step)
            attempt.prune()
        say("done", first + saves - 1)
    except SupersededError as error:
        say("superseded", int(error.landed))


def wait(pid: int, seconds: float) -> str:
    """``stopped``, ``ended`` or ``running``; an end must be a good one."""
    deadline = time.monotonic() + seconds
    while True:
        done, status = os.waitpid(pid, os.WNOHANG | os.WUNTRACED)
        if done and os.WIFSTOPPED(status):
            return "stopped"
        if done:
            if status:
                raise Lost(f"an attempt ended with wait status {status}")
            return "ended"
        if time.monotonic() > deadline:
            return "running"
        time.sleep(0.001)


def run(seed: int, count: int, deadline_seconds: float | None = None) -> Report:
    """Overlap ``count`` times."""
    report = Report()
    began = time.monotonic()
    place = "/dev/shm" if os.path.isdir("/dev/shm") else None
    number = 0
    while report.stopped < count:
        if deadline_seconds is not None and time.monotonic() - began > deadline_seconds:
            break
        rng = random.Random(f"{seed}/{number}")
        root = tempfile.mkdtemp(prefix="stayfast-overlap-", dir=place)
        try:
            _one_overlap(rng, f"{root}/run", report)
        except Lost as error:
            raise Lost(f"seed {seed}, number {number}: {error}") from None
        finally:
            shutil.rmtree(root, ignore_errors=True)
        number += 1
    return report


def _one_overlap(rng: random.Random, root: str, report: Report) -> None:
    seed = rng.getrandbits(32)
    first = start(root, seed, rng.randint(0, 260), saves=4)
    if wait(first.pid, LIMIT_SECONDS) == "ended":
        report.ended_before += 1
        first.said()
        return
    report.stopped += 1
    second = start(root, seed, None, saves=2)
    woken = wait(second.pid, PATIENCE_SECONDS) == "running"  # stopped while it held the lock: wake it, then both go on
    report.held_the_lock += woken
    os.kill(first.pid, signal.SIGCONT)
    ends = {first.pid: wait(first.pid, LIMIT_SECONDS)}
    ends[second.pid] = wait(second.pid, LIMIT_SECONDS) if woken else "ended"
    for pid, end in ends.items():
        if end != "ended":
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            raise Lost(f"an attempt was {end} after {LIMIT_SECONDS:g} s")
    _check(root, seed, dict_of(first.said()), dict_of(second.said()), report)


def dict_of(said: list[tuple[str, int]]) -> dict[str, list[int]]:
    """What was said, by kind."""
    found: dict[str, list[int]] = {}
    for kind, step in said:
        found.setdefault(kind, []).append(step)
    return found


def _check(root: str, seed: int, first: dict[str, list[int]], second: dict[str, list[int]], report: Report) -> None:
    """The one that claimed last owns the run; what the other committed before that is kept, and nothing after."""
    report.superseded += "superseded" in first
    try:
        found = subject.restore_all(FileStore(root))
    except StayfastError as error:
        raise Lost(f"HEAD lists what cannot be restored: {error}") from error
    owners = {said["attempt"][-1]: said for said in (first, second) if "attempt" in said}
    newest = owners[max(owners)]
    older = first if newest is second else second
    if "done" not in newest:
        raise Lost(f"the owner did not finish: {newest}")
    if found[0] != (newest["done"][-1], state_of(seed, newest["done"][-1], newest["attempt"][-1])):
        raise Lost(f"the newest checkpoint is step {found[0][0]}, not the owner's {newest['done']}")
    resumed = newest["resumed"][-1]
    if any(step > resumed for step in older.get("ack", ())):
        raise Lost(f"the older attempt was told {older['ack']}, the newer resumed at {resumed}")
    if "superseded" not in older and older.get("done", [-1])[-1] > resumed:
        raise Lost(f"the older attempt went on unnoticed: {older}")
    for step, state in found:
        if not any(state == state_of(seed, step, number) for number in owners):
            raise Lost(f"step {step} is a mix of attempts")
