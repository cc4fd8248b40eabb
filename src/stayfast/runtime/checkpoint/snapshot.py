"""A snapshot: one step's state in host memory, on its way to becoming a checkpoint."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from typing import Any

from stayfast.runtime.checkpoint.arena import HostBuffer, HostBufferPool
from stayfast.runtime.checkpoint.inventory import TREE, InventoryEntry, Part
from stayfast.runtime.checkpoint.layout import Layout, LayoutCache
from stayfast.runtime.state.encoding import encode, name_leaves
from stayfast.runtime.state.numpy_arrays import Leaf, bytes_leaf

COPY_BYTES = 16 << 20
Wait = Callable[[int], None]


def _host_part_is_ready(_part: int) -> None:
    """Host memory: the copy was finished before the snapshot was handed out."""


def _no_pending_copies() -> None:
    """Host memory: no copy outlives the call that took the snapshot."""


@dataclass(slots=True)
class Snapshot:
    """State that is safe from the training loop, held in one arena until it is released."""

    step: int
    layout: Layout
    leaves: list[Leaf]
    arena: HostBuffer
    pool: HostBufferPool
    seconds: float = 0.0
    wait: Wait = _host_part_is_ready
    """Blocks until the given part has arrived from the device."""
    wait_all: Callable[[], None] = _no_pending_copies
    """Blocks until no copy is under way any more, whatever became of it."""
    unchanged_parts: dict[int, Part] = field(default_factory=dict)
    """Parts that were found unchanged on the device and not copied: the stored ones that they equal."""
    fingerprints: dict[int, bytes] = field(default_factory=dict)
    _released: bool = False
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def size(self) -> int:
        """Bytes that persisting writes at most."""
        return self.layout.total

    def drop_values(self) -> None:
        """Let go of the state itself: from here on only its description is needed."""
        for leaf in self.leaves:
            leaf.value = leaf.address = None

    def entries(self) -> tuple[InventoryEntry, ...]:
        """What the inventory says about each leaf."""
        name_leaves(self.leaves)
        layout, rows = self.layout, []
        for number, leaf in enumerate(self.leaves):
            part = layout.first_part_of[number] if leaf.length else 0
            offset = layout.positions[number] - layout.parts[part].start if leaf.length else 0
            rows.append(InventoryEntry(leaf.name, leaf.dtype, leaf.shape, part, offset, leaf.length, leaf.device))
        return tuple(rows)

    def part(self, number: int) -> memoryview:
        """The bytes of one part, padding included."""
        place = self.layout.parts[number]
        return self.arena.view[place.start : place.start + place.length]

    def release(self) -> None:
        """Give the arena back; the snapshot is not used afterwards. A second call does nothing."""
        with self._lock:
            if self._released:
                return
            self._released = True
        self.wait_all()  # no copy may still be landing when somebody else writes there
        self.pool.release(self.arena)


def flatten_state(state: Mapping[str, Any], planner: LayoutCache) -> tuple[list[Leaf], Layout]:
    """The leaves of a state, the tree as the last of them, and where each goes."""
    encoded = encode(state)
    tree = bytes_leaf(encoded.tree)
    tree.name, tree.dtype = TREE, "json"
    leaves = [*encoded.leaves, tree]
    return leaves, planner.plan(leaves)


def copy_host_leaves(leaves: Sequence[Leaf], layout: Layout, arena: HostBuffer, executor: Executor) -> None:
    """Copy everything that lies in host memory, by several threads, and return when it is done."""
    for start, length in layout.padding:
        ctypes.memset(arena.address + start, 0, length)
    jobs: list[list[tuple[int, int, int]]] = []
    batch: list[tuple[int, int, int]] = []
    filled = 0
    for number, leaf in enumerate(leaves):
        if leaf.address is None or not leaf.length:
            continue
        target = arena.address + layout.positions[number]
        for start in range(0, leaf.length, COPY_BYTES):
            length = min(COPY_BYTES, leaf.length - start)
            batch.append((target + start, leaf.address + start, length))
            filled += length
            if filled >= COPY_BYTES:
                jobs.append(batch)
                batch, filled = [], 0
    _copy(batch)  # the small rest on this thread: not worth a hand-over
    for _ in executor.map(_copy, jobs):
        pass


def _copy(batch: list[tuple[int, int, int]]) -> None:
    for target, source, length in batch:
        ctypes.memmove(target, source, length)  # releases the interpreter lock
