"""From the store back to state: every chunk is verified before a single value is built from it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from typing import Any

from stayfast.errors import CorruptError, KeyMissingError, StoreUnavailableError
from stayfast.runtime.checkpoint import inventory as inventory_format
from stayfast.runtime.checkpoint.inventory import (
    FOLDER,
    INVENTORY_KEY,
    MAX_INVENTORY_BYTES,
    Inventory,
    InventoryEntry,
    Part,
    digest_named,
)
from stayfast.runtime.checkpoint.snapshot import map_pages
from stayfast.runtime.run_record.record import CheckpointRecord
from stayfast.runtime.state.decoding import decode
from stayfast.runtime.state.frameworks import build_leaf
from stayfast.storage.stores.protocol import Store

TRIES = 3
ASKED_BY_NAME = 10
"""Inventories are numbered; so many are asked for by name before one counts as missing."""


@dataclass(frozen=True, slots=True)
class DamagedFile:
    """One file of a checkpoint that does not verify."""

    key: str
    what: str


def read_inventory(store: Store, committed: CheckpointRecord) -> tuple[str, Inventory]:
    """The inventory that the commit record means, and its key.

    A save repeated in the same attempt after a failure leaves more than one under the folder; the record's sha256 says
    which one was committed.
    """
    if committed.inventory_sha256 is None:
        raise CorruptError(f"checkpoint {committed.name} holds only the step counter: there is nothing to read")
    stem = f"{FOLDER}/{committed.folder}/inventory"
    seen = False
    for key in _inventory_keys(store, stem):
        data = _get(store, key)
        if data is not None and matches_record(data, committed):
            break
        seen = seen or data is not None
    else:
        what = "does not match the sha256 in the commit record" if seen else "is missing"
        raise CorruptError(f"{stem}.json {what}")
    found = inventory_format.decode(data, where=key)
    if (found.step, found.attempt) != (committed.step, committed.attempt) or found.size != committed.size:
        raise CorruptError(f"{key} belongs to another checkpoint")
    return key, found


def _inventory_keys(store: Store, stem: str) -> Iterator[str]:
    """Where it may be, likeliest first. A listing may be late, which must not make a checkpoint look damaged."""
    yield f"{stem}.json"
    listed = [entry.key for entry in store.keys(stem) if INVENTORY_KEY.match(entry.key)]
    yield from (key for key in listed if key != f"{stem}.json")
    unlisted = (f"{stem}.{number}.json" for number in range(1, ASKED_BY_NAME))
    yield from (key for key in unlisted if key not in listed)


def _get(store: Store, key: str) -> bytes | None:
    """The bytes under a key, None when there is nothing; an outage is tried again."""
    for attempt in range(TRIES):
        try:
            return store.get(key, length=MAX_INVENTORY_BYTES + 1).data
        except KeyMissingError:
            return None
        except StoreUnavailableError:
            if attempt == TRIES - 1:
                raise
    raise AssertionError("unreachable: the last try returns or raises")


def matches_record(data: bytes, committed: CheckpointRecord) -> bool:
    """Whether these are the bytes that the commit record means."""
    return hashlib.sha256(data).hexdigest() == committed.inventory_sha256


def chunks_of(inventory: Inventory) -> Iterator[tuple[Part, int, int, int]]:
    """Each chunk as its part, its number in the part, its offset in the part, and its place in the whole."""
    start = 0
    for part in inventory.parts:
        for number in range(len(part.chunks)):
            offset = number * inventory.chunk_bytes
            yield part, number, offset, start + offset
        start += part.length


def read_chunk(store: Store, inventory: Inventory, part: Part, number: int, target: memoryview) -> None:
    """Read one chunk into memory and verify it; an outage is tried again, damage is not."""
    offset = number * inventory.chunk_bytes
    for attempt in range(TRIES):
        try:
            count = store.read_into(part.key, target, offset=offset)
            break
        except KeyMissingError as error:
            raise CorruptError(f"{part.key} is missing") from error
        except StoreUnavailableError:
            if attempt == TRIES - 1:
                raise
    if count != len(target):
        raise CorruptError(f"{part.key} ends at byte {offset + count} of {part.length}")
    if digest_named(inventory.algorithm)(target) != part.chunks[number]:
        raise CorruptError(f"{part.key} does not match its checksum at bytes {offset} to {offset + len(target)}")


def chunk_length(inventory: Inventory, part: Part, number: int) -> int:
    """All chunks are equally long but the last of a part."""
    return min(inventory.chunk_bytes, part.length - number * inventory.chunk_bytes)


def read_all(store: Store, inventory: Inventory, executor: Executor) -> memoryview:
    """All parts, verified, one after the other in fresh memory."""
    _, memory, _ = map_pages(max(inventory.size, 1))

    def job(row: tuple[Part, int, int, int]) -> None:
        part, number, _, place = row
        read_chunk(store, inventory, part, number, memory[place : place + chunk_length(inventory, part, number)])

    wait_all_or_cancel([executor.submit(job, row) for row in chunks_of(inventory)])
    return memory


def wait_all_or_cancel(futures: list[Future[None]]) -> None:
    """Wait for all; after an error the rest is called off, and nobody writes into the memory once this returns."""
    try:
        for future in futures:
            future.result()
    except BaseException:
        for future in futures:
            future.cancel()
        for future in futures:
            if not future.cancelled():
                future.exception()
        raise


def build_state(inventory: Inventory, memory: memoryview) -> dict[str, Any]:
    """Arrays and tensors over the very bytes that were read, and the tree around them."""
    starts = part_starts(inventory)
    built: dict[int, Any] = {}

    def fetch(number: int) -> Any:
        if not 0 <= number < len(inventory.entries) - 1:
            raise CorruptError(f"the tree refers to leaf {number}, which does not exist")
        if number not in built:
            entry = inventory.entries[number]
            built[number] = build_leaf(entry.dtype, entry.shape, slice_of(entry, starts, memory))
        return built[number]

    tree = slice_of(inventory.entries[-1], starts, memory)
    return decode(tree, fetch)


def part_starts(inventory: Inventory) -> list[int]:
    """Where each part begins when all lie one after the other."""
    starts, total = [], 0
    for part in inventory.parts:
        starts.append(total)
        total += part.length
    return starts


def slice_of(entry: InventoryEntry, starts: list[int], memory: memoryview) -> memoryview:
    """The bytes of one entry."""
    start = starts[entry.part] + entry.offset if entry.length else 0
    return memory[start : start + entry.length]


def verify_checkpoint(
    store: Store, committed: CheckpointRecord, executor: Executor, buffer_of: Any = bytearray
) -> Iterator[DamagedFile | int]:
    """Read everything; yields the bytes of each good chunk and a ``Damage`` for each bad file."""
    try:
        _, inventory = read_inventory(store, committed)
    except CorruptError as error:
        yield DamagedFile(f"{FOLDER}/{committed.folder}/inventory.json", error.message)
        return

    def job(row: tuple[Part, int, int, int]) -> DamagedFile | int:
        part, number, _, _ = row
        length = chunk_length(inventory, part, number)
        try:
            read_chunk(store, inventory, part, number, memoryview(buffer_of(length)))
        except CorruptError as error:
            return DamagedFile(part.key, error.message)
        return length

    yield from executor.map(job, chunks_of(inventory))
