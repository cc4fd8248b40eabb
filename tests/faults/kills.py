"""Suite D: real trainers, killed at random instants and at named points, again and again until each run is done.

This program is the fork server: everything is imported once, then each attempt is a fork (one in twenty a full start
of the interpreter). It prints one JSON object.
"""

from __future__ import annotations

import collections
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from dataclasses import dataclass, field
from pathlib import Path
from unittest import mock

from faults import subject, trainer
from faults.hooked_fs import HookedFS, SignalAt
from faults.tiers import Lost
from stayfast.errors import StayfastError
from stayfast.storage.stores.file import FileStore

EXEC_SHARE = 0.05
KEPT = 2  # what stayfast.run keeps by itself
LONGEST_LIFE_SECONDS = 60.0


@dataclass
class Report:
    kills: int = 0
    by_point: int = 0
    by_time: int = 0
    execs: int = 0
    runs: int = 0
    acknowledged: int = 0
    leftovers: int = 0
    points: collections.Counter[str] = field(default_factory=collections.Counter)


@dataclass
class Life:
    """One attempt, seen from outside."""

    lines: list[tuple[str, int]]
    killed: bool


def run(seed: int, count: int, deadline_seconds: float | None = None) -> Report:
    """Kill at least ``count`` times."""
    report = Report()
    began = time.monotonic()
    place = "/dev/shm" if os.path.isdir("/dev/shm") else None  # a kill does not ask what was synced
    while report.kills < count:
        if deadline_seconds is not None and time.monotonic() - began > deadline_seconds:
            break
        rng = random.Random(f"{seed}/{report.runs}")
        root = tempfile.mkdtemp(prefix="stayfast-kills-", dir=place)
        try:
            _one_run(rng, root, report)
        except Lost as error:
            raise Lost(f"seed {seed}, run {report.runs}: {error}") from None
        finally:
            shutil.rmtree(root, ignore_errors=True)
        report.runs += 1
    return report


def _one_run(rng: random.Random, root: str, report: Report) -> None:
    seed, total = rng.getrandbits(32), rng.randint(6, 16)
    states = trainer.reference(seed, total)
    store_root = f"{root}/run"
    acked = -1
    for _ in range(200):
        life = _one_life(rng, store_root, seed, total, report)
        begun: set[int] = set()
        for kind, step in life.lines:
            if kind == "resumed" and step != acked:
                raise Lost(f"resumed at {step} although {acked} was acknowledged")
            if kind == "begin":
                begun.add(step)
            elif kind == "ack":
                acked, begun = step, set()
                report.acknowledged += 1
        acked = _check(store_root, states, acked, begun)
        if not life.killed:
            if ("done", total - 1) not in life.lines:
                raise Lost(f"the attempt ended without being done: {life.lines[-3:]}")
            if acked != total - 1:
                raise Lost(f"done, but the newest checkpoint is of step {acked}")
            report.leftovers += sum(path.name.startswith(".tmp-") for path in Path(store_root).rglob("*"))
            return
    raise Lost("200 attempts and still not done")


def _check(root: str, states: list[subject.State], acked: int, begun: set[int]) -> int:
    """After every kill: acknowledged is restorable, bit for bit what the uninterrupted run had at that step."""
    try:
        found = subject.restore_all(FileStore(root))
    except StayfastError as error:
        raise Lost(f"acknowledged {acked}, in flight {begun}: {error}") from error
    for step, state in found:
        if trainer.digest(state["model"]) != trainer.digest(states[step]):
            raise Lost(f"step {step} was restored with other content than the uninterrupted run had")
    newest = found[0][0] if found else -1
    if newest != acked and newest not in begun:
        raise Lost(f"acknowledged {acked}, in flight {begun}, found {newest}")
    newer = [step for step, _ in found if step in begun]
    if acked >= 0 and len(newer) < KEPT and acked not in [step for step, _ in found]:
        raise Lost(f"{acked} was acknowledged and is no longer listed")
    return newest


def _one_life(rng: random.Random, root: str, seed: int, total: int, report: Report) -> Life:
    reader, sender = os.pipe()
    kind = rng.random()
    point, seconds = -1, LONGEST_LIFE_SECONDS
    if kind < EXEC_SHARE:
        seconds = rng.uniform(0.05, 0.6)
        report.execs += 1
        command = [
            sys.executable,
            os.path.abspath(trainer.__file__),
            f"file://{root}",
            str(seed),
            str(total),
            str(sender),
        ]
        with open(f"{root}.stderr", "w") as log:
            pid = subprocess.Popen(
                command, pass_fds=[sender], env=os.environ, stderr=log, cwd=os.path.dirname(root)
            ).pid
    else:
        if kind < 0.6:
            point = rng.randint(0, 260)
        else:
            seconds = rng.uniform(0.0, 0.1)
        pid = os.fork()
        if pid == 0:
            _child(root, seed, total, point, reader, sender)
    os.close(sender)
    status = _end(pid, seconds)
    with os.fdopen(reader, "rb") as pipe:
        lines = [(kind, int(step)) for kind, step in (line.split() for line in pipe.read().decode().splitlines())]
    killed = os.WIFSIGNALED(status)
    if killed:
        report.kills += 1
        report.by_point += point >= 0
        report.by_time += point < 0
    elif status != 0:
        raise Lost(f"the trainer failed by itself (wait status {status}): {Path(f'{root}.stderr').read_text()[-2000:]}")
    return Life(lines, killed)


def _child(root: str, seed: int, total: int, point: int, reader: int, sender: int) -> None:
    code = 1
    try:
        os.close(reader)
        os.chdir(os.path.dirname(root))
        os.dup2(os.open(f"{root}.stderr", os.O_CREAT | os.O_WRONLY | os.O_TRUNC), 2)
        fs = HookedFS(SignalAt(point, signal.SIGKILL))
        with mock.patch("stayfast.storage.stores.file.SystemFS", return_value=fs):
            trainer.attempt(f"file://{root}", seed, total, trainer.talk(sender))
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def _end(pid: int, seconds: float) -> int:
    """Wait that long, then kill."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return status
        time.sleep(0.0005)
    os.kill(pid, signal.SIGKILL)
    status = os.waitpid(pid, 0)[1]
    if seconds == LONGEST_LIFE_SECONDS:
        raise Lost(f"the trainer hung for {seconds:g} s")
    return status


def main() -> None:
    seed, count = int(sys.argv[1]), int(sys.argv[2])
    deadline = float(sys.argv[3]) if len(sys.argv) > 3 else None
    try:
        report = run(seed, count, deadline)
    except Lost as error:
        print(json.dumps({"lost": str(error)}))
    else:
        row = {name: value for name, value in vars(report).items() if isinstance(value, int)}
        print(json.dumps(row))


if __name__ == "__main__":
    main()
