"""Suite B for the local store: what was acknowledged before the power went is there after the machine came back."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import time

from faults import powercut, subject
from faults.hooked_fs import HookedFS, SignalAt
from faults.subject import State
from faults.tiers import Lost
from stayfast.clock import SystemClock
from stayfast.errors import StayfastError
from stayfast.storage.stores.file import FileStore

KEEP = 2
CUTS_PER_RUN = 12


def state_of(seed: int, step: int, attempt: int) -> State:
    """The parent can compute what the writer saved."""
    rng = random.Random(f"{seed}/{step}/{attempt}")
    return subject.make_state(rng, step * 1000 + attempt, parts=rng.randint(1, 2))


def writer(seed: int, point: int) -> powercut.Writer:
    """Claims, then saves step after step; freezes itself at its n-th durable point."""

    def write(path: str, ack: powercut.Ack) -> None:
        store = FileStore(f"{path}/runs/one", fs=HookedFS(SignalAt(point, signal.SIGSTOP)))
        attempt = subject.Attempt(store, keep=KEEP, clock=SystemClock())
        attempt.restore()
        head = attempt.ledger.head
        for step in range(head.next_step, head.next_step + 20):
            ack(json.dumps(["begin", step, attempt.number]).encode())
            attempt.save(step, state_of(seed, step, attempt.number))
            ack(json.dumps(["ack", step, attempt.number]).encode())
            if step % 2:
                attempt.prune()

    return write


def check(path: str, seed: int, lines: list[bytes], before: tuple[int, int] | None) -> tuple[int, int] | None:
    """Compare with what was promised; returns the (step, attempt) that is now newest."""
    acked, begun = before, []
    for kind, step, attempt in map(json.loads, lines):
        if kind == "begin":
            begun = [(step, attempt)]
        else:
            acked, begun = (step, attempt), []
    store = FileStore(f"{path}/runs/one")
    try:
        found = subject.restore_all(store)
    except StayfastError as error:
        raise Lost(f"after the cut (acknowledged {acked}): {error}") from error
    for key in [*begun, acked]:
        if key is None and not found:
            return None
        if key is not None and found and found[0] == (key[0], state_of(seed, *key)):
            if key != acked and acked is not None and (acked[0], state_of(seed, *acked)) not in found:
                raise Lost(f"{acked} was acknowledged and is gone")
            return key
    raise Lost(f"acknowledged {acked}, in flight {begun}, found {[item[0] for item in found]}")


def run_apart(seed: int, count: int) -> dict[str, int]:
    """``run`` where nobody else sees its mounts."""
    report: dict[str, int] = powercut.in_private_mounts(run, seed, count)
    return report


def run(seed: int, count: int, deadline_seconds: float | None = None) -> dict[str, int]:
    """Cut the power ``count`` times; call inside private mounts."""
    rng = random.Random(seed)
    acked = finished = 0
    began = time.monotonic()
    with powercut.Disk() as disk:
        newest: tuple[int, int] | None = None
        while disk.cuts < count:
            if deadline_seconds is not None and time.monotonic() - began > deadline_seconds:
                break
            if disk.cuts % CUTS_PER_RUN == 0:
                shutil.rmtree(f"{disk.path}/runs", ignore_errors=True)
                os.sync()
                newest = None
            point = rng.randint(0, 500)
            outcome = disk.run_and_cut(writer(seed, point))
            lines = [line for line in outcome.acknowledged if line]
            acked += sum(b'"ack"' in line for line in lines)
            finished += outcome.finished
            try:
                newest = check(disk.path, seed, lines, newest)
            except Lost as error:
                raise Lost(f"seed {seed}, cut {disk.cuts}, point {point}: {error}") from None
        return {"cuts": disk.cuts, "acknowledged": acked, "finished": finished}
