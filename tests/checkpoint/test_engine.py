"""Snapshot, persist, restore: isolation, memory, leftovers, unchanged parts, full disks, vanished parts."""

from __future__ import annotations

import gc
import logging
import os
import threading
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from saving import head_of, save

from stayfast.errors import (
    AccessDeniedError,
    CorruptError,
    FormatError,
    KeyMissingError,
    OutcomeUnknownError,
    StoreFullError,
    StoreUnavailableError,
)
from stayfast.filesystem import SystemFS
from stayfast.runtime.checkpoint import inventory as inventory_format
from stayfast.runtime.checkpoint.checkpointer import Checkpointer
from stayfast.runtime.checkpoint.reader import read_inventory
from stayfast.runtime.run_record.record import CheckpointRecord
from stayfast.storage.stores.file import FileStore
from stayfast.storage.stores.memory import MemoryStore

Make = Callable[..., Checkpointer]


def training() -> tuple[torch.nn.Module, torch.optim.Optimizer, Any]:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.BatchNorm1d(128), torch.nn.Linear(128, 8))
    optimizer = torch.optim.AdamW(model.parameters())
    schedule = torch.optim.lr_scheduler.MultiStepLR(optimizer, [3, 5])
    for _ in range(2):
        model(torch.randn(16, 64)).sum().backward()
        optimizer.step()
        schedule.step()
    return model, optimizer, schedule


@pytest.mark.parametrize("place", ["file", "memory"])
@pytest.mark.parametrize("algorithm", ["xxh3_128", "sha256"])
def test_training_state_round_trips(place: str, algorithm: str, make_engine: Make, tmp_path: Path) -> None:
    store = FileStore(str(tmp_path)) if place == "file" else MemoryStore()
    model, optimizer, schedule = training()
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "schedule": schedule.state_dict()}
    committed = save(make_engine(store, algorithm=algorithm), 7, state)
    back = make_engine(store).restore(committed)  # another engine, and whatever algorithm it prefers
    assert list(back) == list(state)
    for key, value in state["model"].items():
        assert torch.equal(back["model"][key], value)
    optimizer.load_state_dict(back["optimizer"])
    schedule.load_state_dict(back["schedule"])
    assert back["schedule"]["milestones"] == schedule.milestones
    for number, row in state["optimizer"]["state"].items():
        assert all(torch.equal(back["optimizer"]["state"][number][key], value) for key, value in row.items())


def test_a_snapshot_is_safe_from_the_loop(make_engine: Make) -> None:
    engine = make_engine(MemoryStore())
    weights, array, counters = torch.ones(5000), np.ones(5000), [1, 2]
    snapshot = engine.snapshot(1, {"w": weights, "a": array, "c": counters})
    weights.zero_()
    array[:] = 0
    counters.append(3)
    persisted = engine.persist(snapshot, 1)
    state = engine.restore(CheckpointRecord(1, 1, "", persisted.size, persisted.inventory_sha256))
    assert state["w"].sum() == 5000
    assert state["a"].sum() == 5000
    assert state["c"] == [1, 2]


def test_restored_arrays_can_be_written(make_engine: Make) -> None:
    engine = make_engine(MemoryStore())
    state = engine.restore(save(engine, 1, {"w": torch.ones(4), "a": np.ones(4)}))
    state["w"].add_(1)
    state["a"] += 1
    assert state["w"].tolist() == state["a"].tolist() == [2.0] * 4


def test_restore_fills_existing_tensors(make_engine: Make) -> None:
    engine = make_engine(MemoryStore())
    saved = {
        "model": {"big": torch.randn(70_000), "small": torch.randn(3), "gone": torch.randn(4)},
        "n": 5,
        "b": b"x" * 9999,
    }
    committed = save(engine, 1, saved)
    into = {"model": {"big": torch.zeros(70_000), "small": torch.zeros(3), "gone": torch.zeros(5)}}
    state = engine.restore(committed, into=into)
    assert state["model"]["big"] is into["model"]["big"]
    assert torch.equal(into["model"]["big"], saved["model"]["big"])
    assert torch.equal(into["model"]["small"], saved["model"]["small"])
    assert torch.equal(state["model"]["gone"], saved["model"]["gone"])  # another shape here: beside it
    assert not into["model"]["gone"].any()
    assert (state["n"], state["b"]) == (5, saved["b"])


def test_large_leaves_run_over_several_parts(make_engine: Make, tmp_path: Path) -> None:
    engine = make_engine(FileStore(str(tmp_path)))
    state = {"m": {"a": np.arange(100_000), "b": np.arange(33_000), "c": np.arange(10)}, "o": np.arange(50_000, 0, -1)}
    committed = save(engine, 1, state)
    _, found = read_inventory(FileStore(str(tmp_path)), committed)
    assert len(found.parts) > 10
    back = engine.restore(committed)
    assert np.array_equal(back["m"]["a"], state["m"]["a"])
    assert np.array_equal(back["o"], state["o"])
    assert sum(file.stat().st_size for file in tmp_path.rglob("*.bin")) == committed.size


def test_padding_is_zero_though_buffers_are_reused(make_engine: Make, tmp_path: Path) -> None:
    engine = make_engine(FileStore(str(tmp_path)), buffers=1)
    save(engine, 1, {"a": np.full(60_000, 255, np.uint8)})
    save(engine, 2, {"a": np.full(100, 1, np.uint8)})
    (part,) = tmp_path.glob("checkpoints/000000000002-*/part-*")
    data = part.read_bytes()
    assert data.count(b"\xff") == 0
    assert len(data) == 4096


def test_unchanged_parts_are_referenced(make_engine: Make, tmp_path: Path) -> None:
    store = FileStore(str(tmp_path))
    engine = make_engine(store)
    state = {"base": {str(n): np.random.default_rng(n).random(8000) for n in range(20)}, "lora": {"a": np.zeros(10)}}
    first = engine.persist(engine.snapshot(1, state), 1)
    engine.mark_committed(first)
    state["lora"]["a"] += 1
    second = engine.persist(engine.snapshot(2, state), 1)
    assert first.written_bytes >= first.size
    assert second.written_bytes < first.written_bytes / 20
    assert second.size == first.size
    back = make_engine(store).restore(CheckpointRecord(2, 1, "", second.size, second.inventory_sha256))
    assert back["lora"]["a"].tolist() == [1.0] * 10
    assert np.array_equal(back["base"]["3"], state["base"]["3"])


@pytest.mark.parametrize("changed", [0, 4096 * 7 + 5, 65_535])
def test_a_part_of_many_chunks_is_unchanged_only_as_a_whole(
    changed: int, make_engine: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stayfast.runtime.checkpoint.checkpointer.CHUNK_BYTES", 4096)
    engine = make_engine(MemoryStore())
    state = np.zeros(3 * 65_536, np.uint8)
    first = save(engine, 1, {"a": state})
    state[65_536 + changed] = 1
    second = save(engine, 2, {"a": state})
    assert not engine.restore(first)["a"].any()
    assert (engine.restore(second)["a"] == state).all()


def test_a_save_that_was_never_committed_is_never_referenced(make_engine: Make) -> None:
    engine = make_engine(MemoryStore())
    engine.persist(engine.snapshot(1, {"a": np.ones(9000)}), 1)
    again = engine.persist(engine.snapshot(2, {"a": np.ones(9000)}), 1)
    assert again.written_bytes >= again.size


def test_a_restored_checkpoint_is_referenced(make_engine: Make) -> None:
    store = MemoryStore()
    committed = save(make_engine(store), 1, {"a": np.ones(9000)})
    engine = make_engine(store)
    engine.restore(committed)
    assert engine.persist(engine.snapshot(2, {"a": np.ones(9000)}), 2).written_bytes < 5000


def test_the_same_step_twice_never_overwrites(make_engine: Make, tmp_path: Path) -> None:
    store = FileStore(str(tmp_path))
    engine = make_engine(store)
    first = engine.persist(engine.snapshot(5, {"a": np.zeros(9000)}), 1)
    before = {entry.key: store.get(entry.key) for entry in store.keys("")}
    second = engine.persist(engine.snapshot(5, {"a": np.ones(9000)}), 1)
    assert {key: store.get(key) for key in before} == before
    old = CheckpointRecord(5, 1, "", first.size, first.inventory_sha256)
    new = CheckpointRecord(5, 1, "", second.size, second.inventory_sha256)
    assert not engine.restore(old)["a"].any()
    assert engine.restore(new)["a"].all()


class FailingFS(SystemFS):
    """The disk is full after so many bytes."""

    def __init__(self, room: int, error: int) -> None:
        self.room, self.error = room, error
        self._lock = threading.Lock()

    def write(self, fd: int, data: Any, offset: int) -> None:
        with self._lock:
            self.room -= len(data)
            if self.room < 0:
                raise OSError(self.error, os.strerror(self.error))
        super().write(fd, data, offset)


@pytest.mark.parametrize("room", [0, 70_000, 200_000, 483_500])
def test_a_full_disk_leaves_the_previous_checkpoint_and_no_growing_garbage(
    room: int, make_engine: Make, tmp_path: Path
) -> None:
    import errno

    disk = FailingFS(1 << 40, errno.ENOSPC)
    engine = make_engine(FileStore(str(tmp_path), fs=disk))
    first = save(engine, 1, {"a": np.zeros(60_000)})
    disk.room = room
    snapshot = engine.snapshot(2, {"a": np.ones(60_000)})
    with pytest.raises(StoreFullError, match="no space left"):
        engine.persist(snapshot, 1)
    assert not list(tmp_path.glob("checkpoints/000000000002-*/*"))  # what it wrote is gone again
    assert not engine.restore(first)["a"].any()
    disk.room = 1 << 40
    persisted = engine.persist(snapshot, 1)  # the snapshot is still there: space came back
    assert engine.restore(CheckpointRecord(2, 1, "", persisted.size, persisted.inventory_sha256))["a"].all()
    assert engine.free_buffers == 2


def test_a_failed_save_takes_back_what_it_wrote_and_not_what_it_refers_to(make_engine: Make, tmp_path: Path) -> None:
    """Unchanged parts belong to the checkpoint before it: without them there would be none at all."""
    import errno

    disk = FailingFS(1 << 40, errno.ENOSPC)
    engine = make_engine(FileStore(str(tmp_path), fs=disk), part_bytes=1 << 16)
    state = {"same": np.arange(60_000.0), "other": np.zeros(60_000)}
    first = save(engine, 1, state)
    disk.room = 200_000
    with pytest.raises(StoreFullError):
        engine.persist(engine.snapshot(2, {**state, "other": np.ones(60_000)}), 1)
    assert list(engine.verify(first)), "something was read"
    restored = engine.restore(first)
    assert (restored["same"] == state["same"]).all()
    assert not restored["other"].any()


def test_lost_permission_is_one_sentence(make_engine: Make, tmp_path: Path) -> None:
    import errno

    engine = make_engine(FileStore(str(tmp_path), fs=FailingFS(0, errno.EACCES)))
    with pytest.raises(AccessDeniedError, match="permission denied"):
        engine.persist(engine.snapshot(1, {"a": 1}), 1)


class Flaky(MemoryStore):
    """Puts whose answer is lost, or that fail, so many times."""

    def __init__(self, error: type[Exception], times: int, applied: bool) -> None:
        super().__init__()
        self.error, self.times, self.applied = error, times, applied

    def put(self, key: str, data: Any, *, if_generation: str | None = None) -> str:
        if self.times:
            self.times -= 1
            if self.applied:
                super().put(key, data, if_generation=if_generation)
            raise self.error("no answer")
        return super().put(key, data, if_generation=if_generation)


@pytest.mark.parametrize(
    ("error", "applied"),
    [(OutcomeUnknownError, True), (OutcomeUnknownError, False), (StoreUnavailableError, False)],
)
def test_lost_answers_are_tried_again_under_another_name(
    error: type[Exception], applied: bool, make_engine: Make
) -> None:
    from stayfast.clock import ManualClock

    store = Flaky(error, 3, applied)
    engine = make_engine(store, clock=ManualClock())
    state = engine.restore(save(engine, 1, {"a": np.arange(40_000)}))
    assert state["a"].sum() == 40_000 * 39_999 // 2
    store.times = 1000
    with pytest.raises(error):
        engine.persist(engine.snapshot(2, {"a": 1}), 1)


def test_a_damaged_newest_is_named_and_the_one_before_is_used(
    make_engine: Make, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = FileStore(str(tmp_path))
    engine = make_engine(store)
    old, new = save(engine, 1, {"a": np.zeros(9000)}), save(engine, 2, {"a": np.ones(9000)})
    part = next(tmp_path.glob("checkpoints/000000000002-*/part-00000.bin"))
    data = bytearray(part.read_bytes())
    data[1234] ^= 4
    part.write_bytes(data)
    with caplog.at_level(logging.WARNING, "stayfast"):
        found = engine.restore_newest(head_of(new, old))
    assert found is not None
    assert found[0] == old
    assert not found[1]["a"].any()
    assert "000000000002-000001" in caplog.text
    assert "part-00000.bin" in caplog.text
    (tmp_path / "checkpoints" / old.name / "part-00000.bin").unlink()
    with pytest.raises(CorruptError, match="none of the committed checkpoints"):
        engine.restore_newest(head_of(new, old))


def test_a_reader_whose_checkpoint_was_pruned_reads_head_again(make_engine: Make) -> None:
    store = MemoryStore()
    engine = make_engine(store)
    old = save(engine, 1, {"a": np.zeros(9000)})
    new = save(engine, 2, {"a": np.ones(9000)})
    for entry in list(store.keys(f"checkpoints/{old.name}")):
        store.delete(entry.key)
    found = engine.restore_newest(head_of(old), reread=lambda: head_of(new))
    assert found is not None
    assert found[0] == new


def test_an_outage_is_not_damage(make_engine: Make) -> None:
    class Down(MemoryStore):
        def read_into(self, key: str, buffer: memoryview, *, offset: int = 0) -> int:
            raise StoreUnavailableError("down")

    store = Down()
    engine = make_engine(store)
    committed = save(engine, 1, {"a": 1})
    with pytest.raises(StoreUnavailableError):
        engine.restore_newest(head_of(committed))


def test_nothing_to_restore(make_engine: Make) -> None:
    engine = make_engine(MemoryStore())
    assert engine.restore_newest(head_of()) is None
    counter = CheckpointRecord(3, 1, "")
    assert engine.restore_newest(head_of(counter)) == (counter, {})
    with pytest.raises(CorruptError, match="only the step counter"):
        engine.restore(counter)


def test_a_missing_inventory_and_another_runs_inventory(make_engine: Make) -> None:
    store = MemoryStore()
    engine = make_engine(store)
    committed = save(engine, 1, {"a": 1})
    with pytest.raises(CorruptError, match="is missing"):
        engine.restore(replace(committed, step=9))
    with pytest.raises(CorruptError, match="belongs to another"):
        engine.restore(replace(committed, size=1))


def test_a_newer_format_is_named_and_not_passed_over(make_engine: Make) -> None:
    import hashlib
    import json

    store = MemoryStore()
    engine = make_engine(store)
    old, new = save(engine, 1, {"a": 1}), save(engine, 2, {"a": 2})
    key = f"checkpoints/{new.name}/inventory.json"
    body = json.loads(store.get(key).data)
    body["format"] = 2
    body.pop("checksum")
    body["checksum"] = inventory_format._digest(body)
    data = inventory_format._canonical(body)
    store.put(key, data)
    new = replace(new, inventory_sha256=hashlib.sha256(data).hexdigest())
    with pytest.raises(FormatError, match="upgrade stayfast"):
        engine.restore_newest(head_of(new, old))


def test_buffers_are_reused_and_bound(make_engine: Make) -> None:
    """At most one copy of the state per buffer; a third snapshot waits for a buffer."""
    engine = make_engine(MemoryStore(), buffers=2)
    state = {"a": np.ones(1 << 20)}
    first, second = engine.snapshot(1, state), engine.snapshot(2, state)
    assert engine.free_buffers == 0
    arenas = {first.arena.address, second.arena.address}
    assert first.arena.capacity <= first.size + (2 << 20)
    third: list[Any] = []
    waiter = threading.Thread(target=lambda: third.append(engine.snapshot(3, state)))
    waiter.start()
    waiter.join(0.2)
    assert waiter.is_alive()
    first.release()
    waiter.join(30)
    assert third[0].arena.address in arenas
    first.release()  # a second release of the same snapshot gives nothing back
    assert engine.free_buffers == 0


def test_a_snapshot_does_not_wait_for_the_save_before_it(make_engine: Make) -> None:
    class Slow(MemoryStore):
        gate = threading.Event()

        def put(self, key: str, data: Any, *, if_generation: str | None = None) -> str:
            self.gate.wait(30)
            return super().put(key, data, if_generation=if_generation)

    store = Slow()
    engine = make_engine(store)
    state = {"a": np.ones(6 << 20)}  # larger than one copy job: other threads have to help
    first = engine.snapshot(1, state)
    saving = threading.Thread(target=engine.persist, args=(first, 1))
    saving.start()
    second: list[Any] = []
    taking = threading.Thread(target=lambda: second.append(engine.snapshot(2, state)))
    taking.start()
    taking.join(20)
    assert second
    assert saving.is_alive()
    store.gate.set()
    saving.join(30)


def test_python_memory_stays_flat_over_many_saves(make_engine: Make, tmp_path: Path) -> None:
    engine = make_engine(FileStore(str(tmp_path)), buffers=1)
    state = {"a": np.ones(200_000)}
    save(engine, 0, state)
    gc.collect()
    tracemalloc.start()
    for step in range(1, 6):
        state["a"] += 1
        save(engine, step, state)
    current, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert current < 400_000
    assert peak < 1_000_000  # the state is 1.6 MB: no hidden copy of it is ever made


def test_a_failed_encoding_gives_the_buffer_back(make_engine: Make) -> None:
    engine = make_engine(MemoryStore(), buffers=1)
    for _ in range(3):
        with pytest.raises(Exception, match="cannot store"):
            engine.snapshot(1, {"a": object()})
    assert engine.free_buffers == 1


def test_estimates_learn_and_err_on_the_slow_side(make_engine: Make) -> None:
    engine = make_engine(MemoryStore())
    assert engine.estimate_seconds(10**9) == (1.0, 10.0)
    for step in range(3):
        save(engine, step, {"a": np.random.default_rng(step).random(1 << 18)})
    snapshot_seconds, persist_seconds = engine.estimate_seconds(1 << 21)
    assert 0 < snapshot_seconds < 5
    assert 0 < persist_seconds < 5


def test_prepare_gets_the_memory_ahead(make_engine: Make) -> None:
    engine = make_engine(MemoryStore())
    state = {"a": np.ones(1 << 18)}
    engine.preallocate(state)
    assert engine.free_buffers == 2
    before = [arena.address for arena in engine._pool._free]
    assert engine.snapshot(1, state).arena.address in before


def test_verify_reports_every_damaged_file(make_engine: Make) -> None:
    store = MemoryStore()
    engine = make_engine(store)
    committed = save(engine, 1, {"a": np.arange(100_000)})
    assert sum(engine.verify(committed)) == committed.size
    keys = sorted(entry.key for entry in store.keys("checkpoints") if entry.key.endswith(".bin"))
    store.delete(keys[0])
    store.put(keys[2], store.get(keys[2]).data[:-1])
    damaged = [item.key for item in engine.verify(committed) if not isinstance(item, int)]
    assert damaged == [keys[0], keys[2]]
    store.delete(f"checkpoints/{committed.name}/inventory.json")
    (only,) = engine.verify(committed)
    assert "inventory.json" in only.key


def test_in_flight_folders_are_known_until_committed(make_engine: Make) -> None:
    engine = make_engine(MemoryStore())
    persisted = engine.persist(engine.snapshot(4, {"a": 1}), 2)
    assert engine.unfinished_folders == {"checkpoints/000000000004-000002"}
    engine.mark_committed(persisted)
    assert engine.unfinished_folders == frozenset()


def test_missing_key_error_is_the_cause(make_engine: Make) -> None:
    store = MemoryStore()
    engine = make_engine(store)
    committed = save(engine, 1, {"a": np.ones(9000)})
    store.delete(f"checkpoints/{committed.name}/part-00000.bin")
    with pytest.raises(CorruptError, match=r"part-00000\.bin is missing") as caught:
        engine.restore(committed)
    assert isinstance(caught.value.__cause__, KeyMissingError)
