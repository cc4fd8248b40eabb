"""Suite J: damage to stored bytes. Every flip and truncation is found, the file is named, the previous one is used."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from saving import head_of, save

from faults.counts import record
from faults.tiers import account, goal, seed_for, tier
from stayfast.errors import CheckpointError, CorruptError, FormatError
from stayfast.runtime.checkpoint import inventory as inventory_format
from stayfast.runtime.checkpoint.checkpointer import Checkpointer
from stayfast.runtime.checkpoint.inventory import Inventory, InventoryEntry, Part
from stayfast.runtime.checkpoint.reader import build_state, read_inventory
from stayfast.runtime.run_record import record as head_format
from stayfast.runtime.run_record.record import CheckpointRecord
from stayfast.storage.stores.memory import MemoryStore

Make = Callable[..., Checkpointer]
BLOCK = 4096


def small_state(seed: int = 0) -> dict[str, Any]:
    generator = np.random.default_rng(seed)
    return {
        "model": {"w": torch.from_numpy(generator.random(30_000)), "b": torch.ones(7, dtype=torch.bfloat16)},
        "loader": {"position": 17, "order": list(range(50))},
        "noise": generator.random(90_000),
    }


@pytest.mark.faults
def test_every_bit_of_the_records(make_engine: Make) -> None:
    """HEAD.json and inventory.json: each single bit, each truncation."""
    store = MemoryStore()
    committed = save(make_engine(store, part_bytes=1 << 20), 3, small_state())
    head = head_format.encode(head_of(committed))
    inventory = store.get(f"checkpoints/{committed.name}/inventory.json").data
    found = 0
    for data, decode in ((head, head_format.decode), (inventory, lambda d: _decode_checked(d, committed))):
        for bit in range(len(data) * 8):
            damaged = bytearray(data)
            damaged[bit // 8] ^= 1 << bit % 8
            found += _refused(decode, bytes(damaged))
        for length in range(len(data)):
            found += _refused(decode, data[:length])
        assert not _refused(decode, data)
    total = 9 * (len(head) + len(inventory))
    record("J", record_damages=total, detected=found)
    # HEAD.json is read by meaning, so a flip in its white space may change nothing; no value may ever differ.
    assert total - found <= 8 * head.count(b"\n")
    for bit in range(len(head) * 8):
        damaged = bytearray(head)
        damaged[bit // 8] ^= 1 << bit % 8
        if not _refused(head_format.decode, bytes(damaged)):
            assert head_format.decode(bytes(damaged)) == head_format.decode(head)


def _decode_checked(data: bytes, committed: CheckpointRecord) -> Inventory:
    """As a restore does: the record's sha256 as well as the inventory's own checksum."""
    found = inventory_format.decode(data, where="inventory.json")
    if hashlib.sha256(data).hexdigest() != committed.inventory_sha256:
        raise CorruptError("another inventory")
    return found


def _refused(decode: Callable[[bytes], Any], data: bytes) -> bool:
    try:
        decode(data)
    except CheckpointError:
        return True
    return False


@pytest.mark.faults
def test_one_flip_per_block_of_every_part(make_engine: Make) -> None:
    """Flips, truncations and zeroed blocks, until the suite's count is reached; each time the file is named."""
    store = MemoryStore()
    engine = make_engine(store, threads=1, part_bytes=16 << 10)
    old, new = save(engine, 1, small_state(1)), save(engine, 2, small_state(2))
    keys = [entry.key for entry in store.keys(f"checkpoints/{new.name}/") if entry.key.endswith(".bin")]
    generator = random.Random(5 if tier() == "pr" else seed_for("J"))
    damages = detected = round_ = 0
    wanted = goal("J")
    while damages < wanted:
        for key in keys:
            good = store.get(key).data
            for start in range(0, len(good), BLOCK):
                damages += 1
                detected += _found(store, engine, new, key, _damage(good, start, round_, generator))
            store.put(key, good)
        round_ += 1
    assert engine.restore_newest(head_of(new, old)) is not None
    assert detected == damages
    account("J", damages, detected=detected)


def _damage(good: bytes, start: int, round_: int, generator: random.Random) -> bytes:
    data = bytearray(good)
    kind = round_ % 8
    if kind == 6 and len(data) > BLOCK:
        return bytes(data[:start])
    if kind == 7:
        block = bytes(data[start : start + BLOCK])
        data[start : start + BLOCK] = bytes(BLOCK) if any(block) else b"\x01" * BLOCK
        return bytes(data)
    data[start + generator.randrange(min(BLOCK, len(data) - start))] ^= 1 << generator.randrange(8)
    return bytes(data)


def _found(store: MemoryStore, engine: Checkpointer, committed: CheckpointRecord, key: str, data: bytes) -> bool:
    """Whether reading the damaged part, as a restore reads it, is refused by name."""
    from stayfast.runtime.checkpoint.reader import read_chunk

    store.put(key, data)
    _, found = engine_inventory(store, committed)
    part = next(item for item in found.parts if item.key == key)
    try:
        for number in range(len(part.chunks)):
            read_chunk(store, found, part, number, memoryview(bytearray(part.length)))
    except CorruptError as error:
        return key in str(error)
    return False


_inventories: dict[str, tuple[str, Inventory]] = {}


def engine_inventory(store: MemoryStore, committed: CheckpointRecord) -> tuple[str, Inventory]:
    sha = committed.inventory_sha256
    assert sha is not None
    if sha not in _inventories:
        _inventories[sha] = read_inventory(store, committed)
    return _inventories[sha]


@pytest.mark.faults
def test_swapped_missing_zero_and_foreign_parts_fall_back(make_engine: Make) -> None:
    """Whole parts exchanged, through the real restore: the previous checkpoint comes back, byte for byte."""
    store, foreign = MemoryStore(), MemoryStore()
    engine = make_engine(store, part_bytes=64 << 10)
    old, new = save(engine, 1, small_state(1)), save(engine, 2, small_state(2))
    other = save(make_engine(foreign, part_bytes=64 << 10), 2, small_state(3))
    keys = [entry.key for entry in store.keys(f"checkpoints/{new.name}/")]
    good = {key: store.get(key).data for key in keys}
    cases: list[tuple[str, bytes | None]] = []
    for key in keys:
        cases += [
            (key, None),
            (key, b""),
            (key, bytes(len(good[key]))),
            (key, good[key] + b"\0"),
            (key, good[key][:-1]),
        ]
        cases += (
            [(key, foreign.get(key).data)] if key in [e.key for e in foreign.keys(f"checkpoints/{other.name}/")] else []
        )
        cases += [(key, good[second]) for second in keys if good[second] != good[key]]
    expected = small_state(1)
    detected = 0
    for key, data in cases:
        if data is None:
            store.delete(key)
        else:
            store.put(key, data)
        found = engine.restore_newest(head_of(new, old))
        assert found is not None
        longer = data is not None and data[: len(good[key])] == good[key] and key.endswith(".bin")
        if longer:  # bytes after the end of a part are never read
            assert found[0] == new
        else:
            assert found[0] == old, (key, None if data is None else len(data))
            assert torch.equal(found[1]["model"]["w"], expected["model"]["w"])
            detected += 1
        store.put(key, good[key])
    record("J", whole_part_damages=detected, detected=detected)
    assert engine.restore_newest(head_of(new, old))[0] == new  # type: ignore[index]


def valid_inventory() -> Inventory:
    digests = ("0" * 64,)
    parts = (
        Part("checkpoints/000000000001-000001/part-00000.bin", 8192, digests),
        Part("checkpoints/000000000001-000001/part-00001.bin", 4096, digests),
    )
    entries = (
        InventoryEntry("a", "numpy:<f4", (2000,), 0, 0, 8000),
        InventoryEntry("empty", "numpy:<f4", (0,), 0, 0, 0),
        InventoryEntry("(tree)", "json", (10,), 1, 0, 10),
    )
    return Inventory(1, 1, "sha256", 8192, parts, entries)


def _with_entry(number: int, **changes: Any) -> Inventory:
    base = valid_inventory()
    entries = list(base.entries)
    entries[number] = replace(entries[number], **changes)
    return replace(base, entries=tuple(entries))


def _with_part(number: int, **changes: Any) -> Inventory:
    base = valid_inventory()
    parts = list(base.parts)
    parts[number] = replace(parts[number], **changes)
    return replace(base, parts=tuple(parts))


KEY = "checkpoints/000000000001-000001/"
BROKEN = {
    "traversal in a key": _with_part(0, key="checkpoints/000000000001-000001/../../etc/passwd"),
    "absolute key": _with_part(0, key="/etc/passwd"),
    "key of another shape": _with_part(0, key="HEAD.json"),
    "key with a newline": _with_part(0, key=KEY + "part-00000.bin\n"),
    "name with a slash": _with_entry(0, name="a/b"),
    "name with a backslash": _with_entry(0, name="a\\b"),
    "name with a zero": _with_entry(0, name="a\0"),
    "empty name": _with_entry(0, name=""),
    "long name": _with_entry(0, name="x" * 513),
    "name twice": _with_entry(1, name="a"),
    "no tree": _with_entry(2, name="tree"),
    "overlap": _with_entry(2, part=0, offset=4000),
    "hole": _with_entry(0, length=4000, shape=(1000,)),
    "beyond the parts": _with_entry(2, part=2),
    "before the parts": _with_entry(2, part=-1),
    "negative offset": _with_entry(2, offset=-1),
    "negative length": _with_entry(2, length=-1),
    "negative shape": _with_entry(0, shape=(-2000,)),
    "longer than the parts": _with_entry(2, length=1 << 40),
    "part of odd length": _with_part(1, length=4097),
    "part of no length": _with_part(1, length=0),
    "part too long": _with_part(1, length=1 << 40),
    "too few checksums": _with_part(0, chunks=()),
    "checksum too short": _with_part(0, chunks=("0" * 63,)),
    "unknown algorithm": replace(valid_inventory(), algorithm="crc16"),
    "chunks of one byte": replace(valid_inventory(), chunk_bytes=1),
    "no entries": replace(valid_inventory(), entries=()),
    "no parts": replace(valid_inventory(), parts=()),
}


def test_the_valid_inventory_is_valid() -> None:
    data = inventory_format.encode(valid_inventory())
    assert inventory_format.decode(data, where="x") == valid_inventory()
    assert inventory_format.encode(inventory_format.decode(data, where="x")) == data


@pytest.mark.parametrize("name", BROKEN)
def test_broken_inventories_are_refused_before_anything_is_read(name: str) -> None:
    data = inventory_format.encode(BROKEN[name])  # with a right checksum: written by an enemy
    with pytest.raises((CorruptError, FormatError), match=r"inventory\.json|algorithm"):
        inventory_format.decode(data, where="inventory.json")


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=8,
)


@given(st.sampled_from(["step", "parts", "entries", "chunk_bytes", "algorithm", "format", "attempt"]), json_values)
@settings(max_examples=300, deadline=None)
def test_fuzzed_inventories_give_only_our_errors(field: str, value: Any) -> None:
    import json

    body = json.loads(inventory_format.encode(valid_inventory()))
    body.pop("checksum")
    body[field] = value
    body["checksum"] = inventory_format._digest(body)
    try:
        inventory_format.decode(json.dumps(body).encode(), where="x")
    except (CorruptError, FormatError):
        pass


@given(st.binary(max_size=200))
@settings(max_examples=200, deadline=None)
def test_random_inventories_give_only_our_errors(data: bytes) -> None:
    with pytest.raises((CorruptError, FormatError)):
        inventory_format.decode(data, where="x")


def test_fuzzed_parts_behind_right_checksums_give_only_our_errors(make_engine: Make) -> None:
    """An enemy who can write inventory and parts: the values may be nonsense, the errors are ours."""
    store = MemoryStore()
    engine = make_engine(store, part_bytes=1 << 20)
    committed = save(engine, 1, {"a": np.arange(5.0), "b": [1, (2, 3), b"x"], "t": torch.ones(3)})
    _, found = read_inventory(store, committed)
    memory = bytearray(b"".join(store.get(part.key).data for part in found.parts))
    generator = random.Random(9)
    survived = 0
    for _ in range(3000):
        damaged = bytearray(memory)
        for _ in range(generator.randint(1, 8)):
            damaged[generator.randrange(len(damaged))] = generator.randrange(256)
        try:
            build_state(found, memoryview(damaged))
            survived += 1
        except CheckpointError:
            pass
    assert survived < 3000
