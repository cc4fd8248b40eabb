"""Retention and garbage collection: killed at every effect, with shared parts, leavings and other attempts."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from saving import WHEN, head_of, save

from stayfast.clock import ManualClock
from stayfast.errors import StoreUnavailableError
from stayfast.model.exit_codes import Outcome
from stayfast.runtime.checkpoint.checkpointer import Checkpointer
from stayfast.runtime.checkpoint.cleanup import CleanupResult, delete_unreferenced
from stayfast.runtime.checkpoint.policies import KeepAll, KeepAny, KeepEvery, KeepLast, apply_retention
from stayfast.runtime.run_record.commit_protocol import Delete, Effect, claim, commit, perform_effect, run_protocol
from stayfast.runtime.run_record.record import RECORD_KEY, AttemptRecord, CheckpointRecord, encode
from stayfast.storage.stores.memory import MemoryStore

Make = Callable[..., Checkpointer]


class Run:
    """A small run that saves, commits with retention, and collects; its weights are half frozen."""

    def __init__(self, store: MemoryStore, engine: Checkpointer, keep: int = 2) -> None:
        self.store, self.engine, self.keep = store, engine, KeepLast(keep)
        self.clock = ManualClock()
        self.tokens = map(str, itertools.count())
        self.held = run_protocol(claim("run", AttemptRecord(0, WHEN), lambda: next(self.tokens)), store, self.clock)

    def state(self, step: int) -> dict[str, Any]:
        return {"frozen": {str(n): np.full(9000, n) for n in range(4)}, "hot": np.full(9000, step)}

    def save(self, step: int) -> None:
        attempt = self.held.head.attempt
        persisted = self.engine.persist(self.engine.snapshot(step, self.state(step)), attempt)
        row = CheckpointRecord(step, attempt, WHEN, persisted.size, persisted.inventory_sha256)
        kept = apply_retention(self.keep, (row, *self.held.head.checkpoints))
        new = replace(self.held.head, checkpoints=kept)
        self.held = run_protocol(commit(self.held, new, lambda: next(self.tokens)), self.store, self.clock)
        self.engine.mark_committed(persisted)

    def check(self, make_engine: Make) -> None:
        """Every listed checkpoint restores to exactly what was saved."""
        engine = make_engine(self.store)
        for committed in self.held.head.checkpoints:
            state = engine.restore(committed)
            assert (state["hot"] == committed.step).all()
            assert all((state["frozen"][str(n)] == n).all() for n in range(4))


def stop_after(protocol: Any, store: MemoryStore, effects: int) -> bool:
    """Run a protocol and kill it after so many effects; true when it came to its end before that."""
    try:
        effect: Effect = next(protocol)
        for _ in range(effects):
            effect = protocol.send(perform_effect(effect, store, ManualClock()))
    except StopIteration:
        return True
    protocol.close()
    return False


def test_killed_at_every_effect_nothing_listed_is_lost(make_engine: Make) -> None:
    kills = 0
    for cut in itertools.count():
        store = MemoryStore()
        run = Run(store, make_engine(store, buffers=1))
        for step in range(4):
            run.save(step)
        run.engine.persist(run.engine.snapshot(9, {"x": np.ones(9000)}), 1)  # a leaving: never committed
        done = stop_after(delete_unreferenced(1), store, cut)
        run.check(make_engine)
        run.save(4)  # and the run goes on
        run.check(make_engine)
        result = run_protocol(delete_unreferenced(1), store, ManualClock())
        assert result.refused is None
        run.check(make_engine)
        if done:
            break
        kills += 1
    assert kills >= 6


def test_what_remains_is_exactly_what_is_needed(make_engine: Make) -> None:
    store = MemoryStore()
    run = Run(store, make_engine(store))
    for step in range(6):
        run.save(step)
        run_protocol(delete_unreferenced(1), store, ManualClock())
    run.check(make_engine)
    folders = {entry.key.split("/")[1][:12] for entry in store.keys("checkpoints/")}
    assert folders == {"000000000000", "000000000004", "000000000005"}  # step 0 wrote the frozen parts
    parts = [entry.key for entry in store.keys("checkpoints/000000000000")]
    assert parts
    assert not any(key.endswith(".json") for key in parts)


def test_an_inventory_goes_before_its_parts(make_engine: Make) -> None:
    store = MemoryStore()
    run = Run(store, make_engine(store), keep=1)
    for step in range(3):
        run.save(step)
    keys = run_protocol(delete_unreferenced(1, dry_run=True), store, ManualClock()).keys
    kinds = [key.endswith(".json") for key in keys]
    assert kinds == sorted(kinds, reverse=True)
    assert keys == run_protocol(delete_unreferenced(1), store, ManualClock()).keys
    assert run_protocol(delete_unreferenced(1), store, ManualClock()) == CleanupResult()


def test_in_flight_newer_and_foreign_objects_stay(make_engine: Make) -> None:
    store = MemoryStore()
    run = Run(store, make_engine(store))
    run.save(1)
    strange = [
        "checkpoints/000000000001-000001/part-09999.bin",  # in flight, says the caller
        "checkpoints/000000000009-000001/rank-00001/part-00000.bin",  # after the newest commit: perhaps in flight
        "checkpoints/000000000002-000007/part-00000.bin",  # of a newer attempt
        "checkpoints/000000000000-000007/part-00000.bin",  # of one that fell back to an older checkpoint
        "checkpoints/notes.txt",
        "checkpoints/000000000001-000001/part-00000.bin.bak",
        "elsewhere/part-00000.bin",
    ]
    for key in strange:
        store.put(key, b"x")
    run_protocol(delete_unreferenced(1, {"checkpoints/000000000001-000001"}), store, ManualClock())
    left = {entry.key for entry in store.keys("")}
    assert set(strange) <= left
    assert run_protocol(delete_unreferenced(1), store, ManualClock()).keys == (strange[0],)


def test_a_superseded_attempt_deletes_nothing(make_engine: Make) -> None:
    store = MemoryStore()
    run = Run(store, make_engine(store), keep=1)
    run.save(1)
    run.save(2)
    Run(store, make_engine(store))  # attempt 2 claims
    result = run_protocol(delete_unreferenced(1), store, ManualClock())
    assert result.keys == ()
    assert "attempt 2 owns the run" in str(result.refused)


def test_the_command_line_leaves_a_live_attempt_alone(make_engine: Make) -> None:
    store = MemoryStore()
    run = Run(store, make_engine(store), keep=1)
    for step in (1, 2):
        run.save(step)
    run.engine.persist(run.engine.snapshot(3, {"x": 1}), 1)
    run.engine.persist(run.engine.snapshot(2, {"x": 2}), 1)  # the newest step once more, on its way to another commit
    gone = run_protocol(delete_unreferenced(None), store, ManualClock()).keys
    assert gone
    assert all("000000000001-000001" in key for key in gone)
    over = replace(run.held.head.current_attempt, outcome=Outcome.INTERRUPTED)
    store.put(RECORD_KEY, encode(replace(run.held.head, attempts=(over,))))
    assert any(
        "000000000003-000001" in key for key in run_protocol(delete_unreferenced(None), store, ManualClock()).keys
    )
    run.check(make_engine)


def test_what_the_other_ranks_of_a_checkpoint_need_stays(make_engine: Make) -> None:
    store = MemoryStore()
    first, second = make_engine(store), make_engine(store, rank=1)
    rows = []
    for step in (1, 2, 3):
        mine = save(first, step, {"a": np.full(9000, step)})
        other = second.persist(second.snapshot(step, {"b": np.full(9000, step)}), 1)
        rows.insert(0, replace(mine, others=((str(other.inventory_sha256), other.size),)))
    store.put(RECORD_KEY, encode(head_of(*rows[:2])))
    for attempt in (None, 1):
        gone = run_protocol(delete_unreferenced(attempt), store, ManualClock()).keys
        assert all("/000000000001-000001/" in key for key in gone)
    assert {entry.key.split("/")[1] for entry in store.keys("checkpoints/")} == {row.name for row in rows[:2]}
    for row in rows[:2]:
        mine, theirs = row.ranks
        assert (first.restore(mine)["a"] == row.step).all()
        assert (second.restore(theirs)["b"] == row.step).all()


@pytest.mark.parametrize("how", ["damaged", "missing"])
def test_an_unreadable_inventory_stops_everything(how: str, make_engine: Make) -> None:
    store = MemoryStore()
    run = Run(store, make_engine(store))
    for step in range(4):
        run.save(step)
    newest = run.held.head.checkpoints[0]
    key = f"checkpoints/{newest.name}/inventory.json"
    if how == "damaged":
        store.put(key, store.get(key).data.replace(b"part", b"pArt"))
    else:
        store.delete(key)
    before = [entry.key for entry in store.keys("")]
    result = run_protocol(delete_unreferenced(1), store, ManualClock())
    assert "inventory.json" in str(result.refused)
    assert [entry.key for entry in store.keys("")] == before


def test_an_outage_deletes_nothing_more(make_engine: Make) -> None:
    store = MemoryStore()
    run = Run(store, make_engine(store), keep=1)
    for step in range(3):
        run.save(step)
    protocol = delete_unreferenced(1)
    effect = next(protocol)
    while not isinstance(effect, Delete):
        effect = protocol.send(perform_effect(effect, store, ManualClock()))
    with pytest.raises(StoreUnavailableError):
        protocol.throw(StoreUnavailableError("down"))
    run.check(make_engine)


def test_a_run_that_was_never_claimed() -> None:
    assert "never been claimed" in str(run_protocol(delete_unreferenced(None), MemoryStore(), ManualClock()).refused)


def test_random_histories(make_engine: Make) -> None:
    """Saves, failed saves, kills of the collector, new attempts that restore: always everything listed restores."""
    generator = random.Random(4)
    for _ in range(15):
        store = MemoryStore()
        run = Run(store, make_engine(store, buffers=1), keep=generator.randint(1, 3))
        step = 0
        for _ in range(12):
            choice = generator.randrange(4)
            attempt = run.held.head.attempt
            if choice == 0:
                step += 1
                run.save(step)
            elif choice == 1:
                run.engine.persist(run.engine.snapshot(step + 1, {"x": np.full(9000, step)}), attempt)
            elif choice == 2:
                stop_after(delete_unreferenced(attempt), store, generator.randrange(20))
            else:
                run = Run(store, make_engine(store, buffers=1), keep=2)
                run.engine.restore_newest(run.held.head)
            run.check(make_engine)


def _rows(*steps: int) -> tuple[CheckpointRecord, ...]:
    return tuple(CheckpointRecord(step, 1, WHEN) for step in steps)


def test_retention_policies() -> None:
    rows = _rows(100, 90, 80, 70, 60, 50, 40, 30, 20, 10)
    assert apply_retention(KeepLast(3), rows) == rows[:3]
    assert [row.step for row in apply_retention(KeepEvery(30), rows)] == [100, 90, 60, 30, 10]
    assert [row.step for row in apply_retention(KeepLast(2) | KeepEvery(50), rows)] == [100, 90, 50, 10]
    assert apply_retention(KeepAll(), rows) == rows
    assert apply_retention(KeepAny(), rows) == rows[:1]  # the newest always stays
    assert apply_retention(KeepLast(1), ()) == ()
    for bad in (lambda: KeepLast(0), lambda: KeepEvery(0)):
        with pytest.raises(ValueError, match="at least 1"):
            bad()


def test_head_helper_is_consistent() -> None:
    assert head_of(*_rows(2, 1)).newest == _rows(2)[0]
