"""Suite A: record the operations of real claims, saves and prunes, and recover from every disk a cut may leave."""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Iterator
from dataclasses import dataclass
from unittest import mock

from faults import subject
from faults.crash_model import cut_at, fingerprint, states
from faults.memory_fs import Crash, MemoryFS, Op, RecordingFS
from faults.subject import State
from faults.tiers import Lost
from stayfast.clock import ManualClock
from stayfast.errors import StayfastError
from stayfast.filesystem import FS
from stayfast.storage.stores.file import FileStore
from stayfast.storage.stores.protocol import Store

ROOT = "/data/runs/one"
KEEP = 2
PER_CUT = 32


def open_store(fs: FS) -> Store:
    """The product's own store, on a disk of ours."""
    return FileStore(ROOT, fs=fs, clock=ManualClock())


@dataclass
class Report:
    """What one run of the suite did."""

    states: int = 0
    distinct: int = 0
    traces: int = 0
    cuts: int = 0
    deaths: int = 0
    failed_syncs: int = 0


@contextlib.contextmanager
def deterministic(seed: int) -> Iterator[None]:
    """Temporary names and tokens from the seed, so that a seed replays to the byte."""
    names = random.Random(seed)
    with (
        mock.patch("secrets.token_hex", lambda count=16: names.randbytes(count).hex()),
        mock.patch(
            "stayfast.runtime.checkpoint.snapshot.HUGE_PAGE", 4096
        ),  # 2 MiB of zeros per state would be most of the time
    ):
        yield


def record_trace(rng: random.Random, report: Report) -> list[Op]:
    """One to three lives of a run: killed at a random operation, or told by an fsync that the disk failed."""
    log: list[Op] = [Op("mkdir", "/data"), Op("fsync_dir", "/")]
    fs = RecordingFS(log=log)
    MemoryFS.mkdir(fs, "/data")
    lives = rng.randint(1, 3)
    for life in range(lives):
        fs = RecordingFS(fs.copy().names, log)
        fault, early = rng.random(), rng.random() < 0.35  # early: while the directories are being made
        if life < lives - 1 and fault < 0.5:
            fs.die_at = len(log) + rng.randint(1, 6 if early else 110)
            report.deaths += 1
        elif fault < 0.8:
            fs.fail_sync_at = rng.randint(0, 3 if early else 26)
            if rng.random() < 0.3:  # of the claims and commits alone
                fs.fail_only, fs.fail_sync_at = ROOT, rng.randint(1, 4)
        with contextlib.suppress(Crash):
            _live(rng, fs, open_store(fs))
        report.failed_syncs += any(op.kind.startswith("bad") for op in log)
    return log


def _live(rng: random.Random, fs: RecordingFS, store: Store) -> None:
    """An attempt as a trainer lives it: a failed save is not acknowledged and the loop goes on."""
    try:
        attempt = subject.Attempt(store, keep=KEEP, inline=True)
        if rng.random() < 0.7:
            attempt.restore()
    except StayfastError:
        return
    first = attempt.ledger.head.next_step
    for step in range(first, first + rng.randint(1, 3)):
        state = subject.make_state(rng, step, parts=rng.randint(1, 2))
        fs.mark(("begin", step, state))
        try:
            attempt.save(step, state)
        except StayfastError:
            continue
        fs.mark(("ack", step, state))
        if rng.random() < 0.6:
            with contextlib.suppress(StayfastError):
                attempt.prune()


@dataclass
class Expected:
    """What may and must be found after a cut."""

    acked: tuple[int, State] | None
    unacked: list[tuple[int, State]]
    earlier: list[tuple[int, State]]


def expected_at(log: list[Op], length: int) -> Expected:
    """From the marks before the cut."""
    expected = Expected(None, [], [])
    for op in log[:length]:
        if op.kind == "mark":
            kind, step, state = op.mark
            if kind == "begin":
                expected.unacked.append((step, state))
            else:
                if expected.acked is not None:
                    expected.earlier.append(expected.acked)
                expected.acked = (step, state)
                expected.earlier += [item for item in expected.unacked if item != expected.acked]
                expected.unacked = []
    return expected


def check(fs: MemoryFS, expected: Expected) -> None:
    """Recover with the product's code; anything but the promise is ``Lost``."""
    store = open_store(fs)
    try:
        found = subject.restore_all(store)
    except StayfastError as error:
        raise Lost(f"the head lists what cannot be restored: {error}") from error
    newest = found[0] if found else None
    if newest != expected.acked and newest not in expected.unacked:
        raise Lost(f"restored {_name(newest)}, acknowledged was {_name(expected.acked)}")
    known = [*expected.unacked, *expected.earlier, *([expected.acked] if expected.acked else [])]
    for item in found:
        if item not in known:
            raise Lost(f"{_name(item)} was never saved like that")
    newer = [item for item in found if item in expected.unacked]
    if expected.acked and len(newer) < KEEP and expected.acked not in found:
        raise Lost(f"{_name(expected.acked)} was acknowledged and is not listed")
    _go_on(store, found[0][0] + 1 if found else 0, found)


def _go_on(store: Store, step: int, found: list[tuple[int, State]]) -> None:
    """The next attempt must be able to save, and must not damage what it found."""
    rng = random.Random(step)
    state = subject.make_state(rng, step, parts=1)
    try:
        attempt = subject.Attempt(store, keep=KEEP, inline=True)
        attempt.restore()
        attempt.save(step, state)
        attempt.prune()
        after = subject.restore_all(store)
    except StayfastError as error:
        raise Lost(f"the next attempt could not save: {error}") from error
    if after != [(step, state), *found][:KEEP]:
        raise Lost(f"after the next save of step {step}: {[_name(item) for item in after]}")


def _name(item: tuple[int, State] | None) -> str:
    if item is None:
        return "nothing"
    return f"step {item[0]}"


def run(seed: int, count: int, deadline_seconds: float | None = None) -> Report:
    """At least ``count`` crash states, unless the deadline comes first; raises ``Lost`` with how to replay it."""
    report = Report()
    began = time.process_time()
    with deterministic(seed):
        while report.states < count:
            if deadline_seconds is not None and time.process_time() - began > deadline_seconds:
                break
            _one_trace(seed, report)
    return report


def _one_trace(seed: int, report: Report) -> None:
    rng = random.Random(f"{seed}/{report.traces}")
    log = record_trace(rng, report)
    seen: set[object] = set()
    for length in range(2, len(log) + 1):
        if log[length - 1].mark and log[length - 1].mark[0] == "begin":
            continue  # nothing changed, neither on the disk nor in what was promised
        expected = expected_at(log, length)
        cut = cut_at(log, length)
        report.cuts += 1
        for number, fs in enumerate(states(cut, PER_CUT, rng)):
            report.states += 1
            key = (fingerprint(fs), expected.acked and expected.acked[0], len(expected.unacked))
            if key in seen:
                continue
            seen.add(key)
            report.distinct += 1
            try:
                check(fs.copy(), expected)
            except Lost as error:
                raise Lost(f"seed {seed}, trace {report.traces}, cut {length}, state {number}: {error}") from None
    report.traces += 1
