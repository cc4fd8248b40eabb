"""One rank's saved state, read piece by piece: what somebody asks for is read and verified, the rest never is.

Sharded state needs this. After a change of the world's size a rank wants slices of many other ranks' tensors, and none
of these as a whole. The outline (every value, with a ``LeafRef`` where a tensor belongs) costs one small read per rank.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any

from stayfast.errors import CorruptError, StateMismatchError
from stayfast.runtime.checkpoint.inventory import InventoryEntry, Part
from stayfast.runtime.checkpoint.reader import (
    chunk_length,
    chunks_of,
    part_starts,
    read_chunk,
    read_inventory,
    slice_of,
    wait_all_or_cancel,
)
from stayfast.runtime.checkpoint.snapshot import map_pages
from stayfast.runtime.run_record.record import CheckpointRecord
from stayfast.runtime.state.decoding import build_value, parse_tree
from stayfast.runtime.state.frameworks import build_leaf
from stayfast.storage.stores.protocol import Store

Row = tuple[Part, int, int, int]
"""A chunk: its part, its number there, its offset there, and its place in the whole."""

_LEAF_TAGS = ("tensor", "parameter", "parameter_fixed", "array", "leaf")


@dataclass(frozen=True, slots=True)
class UnreadTensor:
    """A tensor that has not been read: which one it is, and what it would be."""

    number: int
    dtype: str
    shape: tuple[int, ...]


class SavedRankState:
    """What one rank has saved in one committed checkpoint."""

    def __init__(self, store: Store, row: CheckpointRecord, executor: Executor) -> None:
        self.row = row
        self._store = store
        self._executor = executor
        self.key, self.inventory = read_inventory(store, row)
        self._starts = part_starts(self.inventory)
        self._memory = map_pages(max(self.inventory.size, 1))[1]  # pages nobody reads into are never there
        self._chunks = list(chunks_of(self.inventory))
        self._read: set[int] = set()
        self._loaded: set[int] = set()
        self._tree: dict[str, Any] | None = None

    @property
    def names(self) -> list[str]:
        """The tracked things in it."""
        return list(self._body())

    def structure(self, name: str) -> Any:
        """The state of one tracked thing with a ``LeafRef`` for every tensor in it."""
        return build_value(self._branch(name), self._reference)

    def load_object(self, name: str) -> Any:
        """The state of one tracked thing, read and verified."""
        branch = self._branch(name)
        self.read_leaves({number for number in _leaves(branch) if 0 <= number < len(self.inventory.entries)})
        return build_value(branch, self.read_leaf)

    def read_leaves(self, numbers: Collection[int]) -> None:
        """Read the chunks these leaves lie in, in parallel; each chunk once."""
        wanted = set(numbers) - self._loaded
        spans = sorted(self._span(self._entry(number)) for number in wanted)
        jobs = []
        for row in self._overlapping([span for span in spans if span[1] > span[0]]):
            if row[3] not in self._read:
                self._read.add(row[3])
                jobs.append(self._executor.submit(self._chunk, row))
        try:
            wait_all_or_cancel(jobs)
        except BaseException:
            self._read.clear()  # what was called off has not been read
            self._loaded.clear()
            raise
        self._loaded |= wanted

    def read_leaf(self, number: int) -> Any:
        """A leaf as a tensor, an array or bytes over the memory it was read into."""
        self.read_leaves([number])
        entry = self._entry(number)
        return build_leaf(entry.dtype, entry.shape, slice_of(entry, self._starts, self._memory))

    # -- inside

    def _body(self) -> dict[str, Any]:
        if self._tree is None:
            last = len(self.inventory.entries) - 1
            self.read_leaves([last])
            body = parse_tree(slice_of(self.inventory.entries[last], self._starts, self._memory))
            if type(body) is not dict or list(body) != ["map"] or type(body["map"]) is not dict:
                raise CorruptError(f"the tree of {self.key} is not a state: its outermost value is no map")
            self._tree = body["map"]
        return self._tree

    def _branch(self, name: str) -> Any:
        body = self._body()
        if name not in body:
            raise StateMismatchError(f"{name} is tracked, but {self.key} does not hold it")
        return body[name]

    def _entry(self, number: int) -> InventoryEntry:
        if not 0 <= number < len(self.inventory.entries):
            raise CorruptError(f"the tree of {self.key} refers to leaf {number}, which does not exist")
        return self.inventory.entries[number]

    def _reference(self, number: int) -> Any:
        entry = self._entry(number)
        if entry.dtype.startswith("torch:"):
            return UnreadTensor(number, entry.dtype.partition(":")[2], entry.shape)
        return self.read_leaf(number)

    def _span(self, entry: InventoryEntry) -> tuple[int, int]:
        start = self._starts[entry.part] + entry.offset if entry.length else 0
        return start, start + entry.length

    def _overlapping(self, spans: list[tuple[int, int]]) -> Iterator[Row]:
        """The chunks that hold a byte of any of these; both are in order of place."""
        rows = iter(self._chunks)
        row = next(rows, None)
        for start, end in spans:
            while row is not None and row[3] < end:
                if row[3] + chunk_length(self.inventory, row[0], row[1]) > start:
                    yield row
                    if row[3] + chunk_length(self.inventory, row[0], row[1]) >= end:
                        break  # the next span may lie in it too; it is read once all the same
                row = next(rows, None)

    def _chunk(self, row: Row) -> None:
        part, number, _, place = row
        target = self._memory[place : place + chunk_length(self.inventory, part, number)]
        read_chunk(self._store, self.inventory, part, number, target)


def _leaves(body: Any) -> Iterator[int]:
    """The numbers of all leaves a branch refers to; a key that looks like a tag only makes one more."""
    pending = [body]
    while pending:
        item = pending.pop()
        if type(item) is list:
            pending += item
        elif type(item) is dict:
            for tag, value in item.items():
                if tag in _LEAF_TAGS and type(value) is int:
                    yield value
                else:
                    pending.append(value)
