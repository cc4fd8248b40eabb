"""Damaged bytes and vanishing parts: never a wrong state; the newest that verifies, or an error that says so."""

from __future__ import annotations

import random
import time
from unittest import mock

from faults import subject
from faults.tiers import Lost
from stayfast.clock import ManualClock
from stayfast.errors import StayfastError
from stayfast.runtime.run_record.commit_protocol import read_head, run_protocol
from stayfast.runtime.run_record.record import RECORD_KEY, RunRecord
from stayfast.storage.stores.memory import MemoryStore
from stayfast.storage.stores.protocol import Blob

KINDS = ("flip", "cut short", "empty", "gone", "of another checkpoint")


class WatchedStore(MemoryStore):
    """Calls back before the n-th read, as if another process acted at that moment."""

    def __init__(self) -> None:
        super().__init__()
        self.reads_left = -1
        self.then = lambda: None

    def get(self, key: str, *, offset: int = 0, length: int | None = None) -> Blob:
        self.reads_left -= 1
        if self.reads_left == 0:
            self.then()
        return super().get(key, offset=offset, length=length)


def run(seed: int, count: int, deadline_seconds: float | None = None) -> int:
    """``count`` damaged runs and as many restores during a prune; how many were done."""
    began = time.process_time()
    for number in range(count):
        if deadline_seconds is not None and time.process_time() - began > deadline_seconds:
            return number
        rng = random.Random(f"{seed}/{number}")
        try:
            with mock.patch("stayfast.runtime.checkpoint.snapshot.HUGE_PAGE", 4096):  # else 2 MiB of zeros per restore
                _damage_one(rng)
                _prune_under_a_reader(rng)
        except Lost as error:
            raise Lost(f"seed {seed}, number {number}: {error}") from None
    return count


def _saved(store: MemoryStore, steps: int) -> tuple[subject.Attempt, list[subject.State]]:
    attempt = subject.Attempt(store, inline=True)
    states = [subject.make_state(random.Random(step), step) for step in range(steps)]
    for step, state in enumerate(states):
        attempt.save(step, state)
    return attempt, states


def _damage_one(rng: random.Random) -> None:
    store = MemoryStore()
    attempt, states = _saved(store, 2)
    if rng.random() < 0.5:
        attempt.restore()  # whatever was good a moment ago may be damaged now
    keys = [entry.key for entry in store.keys("checkpoints/")]
    key = rng.choice([name for name in keys if name.startswith("checkpoints/000000000001")])
    kind = rng.choice(KINDS)
    data = bytearray(store.get(key).data)
    if kind == "gone":
        store.delete(key)
    else:
        if kind == "flip":
            at = rng.randrange(len(data))
            data[at] ^= 1 << rng.randrange(8)
        elif kind == "of another checkpoint":
            other = rng.choice([name for name in keys if name != key and name.rpartition(".")[2] == key[-4:]] or [key])
            if store.get(other).data == bytes(data):
                return
            data = bytearray(store.get(other).data)
        else:
            data = data[: 0 if kind == "empty" else rng.randrange(len(data))]
        store.put(key, bytes(data))
    try:
        found = attempt.restore()
    except StayfastError:
        return
    if found is None or found[1] != states[found[0]]:
        raise Lost(f"{key} was damaged ({kind}) and step {found and found[0]} came back wrong")
    if found[0] == 1:
        raise Lost(f"{key} was damaged ({kind}) and nobody noticed")


def _prune_under_a_reader(rng: random.Random) -> None:
    """The owner saves and prunes between two reads of somebody who restores."""
    store = WatchedStore()
    owner, states = _saved(store, 2)
    reader = subject.make_engine(store, ManualClock(), inline=True)
    more = [subject.make_state(random.Random(step), step) for step in (2, 3)]

    def prune() -> None:
        for step, state in zip((2, 3), more, strict=True):
            owner.save(step, state)
        owner.prune()

    def head() -> RunRecord | None:
        held = run_protocol(read_head(), store, ManualClock())
        return held.head if held else None

    first = head()
    assert first is not None
    store.then, store.reads_left = prune, rng.randint(1, 6)
    try:
        found = reader.restore_newest(first, reread=head)
    except StayfastError as error:
        raise Lost(f"a prune of {RECORD_KEY}'s owner left a reader with nothing: {error}") from error
    if found is None or found[1] != [*states, *more][found[0].step]:
        raise Lost("a prune under a reader gave it a wrong state")
