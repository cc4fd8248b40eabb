"""A snapshot: one step's state in host memory, on its way to becoming a checkpoint.

The memory is page-aligned, touched once and used again and again. Fresh pages cost far more than copying into pages
that are there (each is zeroed and mapped on first touch), so a buffer is kept for the life of the engine. Two buffers
let one snapshot be written while the next is taken; each holds at most one copy of the state.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from typing import Any, Protocol

from stayfast.runtime.checkpoint.inventory import TREE, InventoryEntry, Part
from stayfast.runtime.checkpoint.layout import Layout, LayoutCache
from stayfast.runtime.state.encoding import encode, name_leaves
from stayfast.runtime.state.leaf import Leaf, bytes_leaf

HUGE_PAGE = 2 << 20
TOUCH_BYTES = 64 << 20
COPY_BYTES = 16 << 20


class HostBuffer:
    """One growable buffer. ``view`` and ``address`` change when it grows, never while a snapshot holds it."""

    def __init__(self, executor: Executor) -> None:
        self._executor = executor
        self._pages: mmap.mmap | None = None
        self.capacity = 0
        self.address = 0
        self.view = memoryview(b"")
        self.pinned = False
        self._unpin: Callable[[], None] | None = None

    def reserve(self, length: int) -> None:
        """Hold at least this many bytes; a smaller buffer is dropped first, so that two never exist at once."""
        if length <= self.capacity:
            return
        self.free()
        capacity = -(-length // HUGE_PAGE) * HUGE_PAGE
        self._pages, self.view, self.address = map_pages(capacity)
        self.capacity = capacity
        prefault(self.address, capacity, self._executor)

    def pin(self, register: Callable[[int, int], Callable[[], None] | None]) -> None:
        """Let a device copy into this memory without staging; ``register`` gives back how to undo it."""
        if not self.pinned and self.capacity:
            self._unpin = register(self.address, self.capacity)
            self.pinned = self._unpin is not None

    def free(self) -> None:
        """Give the memory back."""
        if self._unpin is not None:
            self._unpin()
        self._unpin, self.pinned = None, False
        self.view.release()
        self.view, self.address, self.capacity = memoryview(b""), 0, 0
        if self._pages is not None:
            with contextlib.suppress(BufferError):  # a tensor still looks at it: it goes with that tensor
                self._pages.close()
            self._pages = None


def map_pages(length: int) -> tuple[mmap.mmap, memoryview, int]:
    """Anonymous memory on a huge-page boundary; the memory lives as long as a view of it."""
    pages = mmap.mmap(-1, length + HUGE_PAGE)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        with contextlib.suppress(OSError):  # a kernel without huge pages: slower first touch, nothing else
            pages.madvise(mmap.MADV_HUGEPAGE)
    start = ctypes.addressof(ctypes.c_char.from_buffer(pages))
    skip = -start % HUGE_PAGE
    return pages, memoryview(pages)[skip : skip + length], start + skip


def prefault(address: int, length: int, executor: Executor) -> None:
    """Make the kernel hand out the pages now, by several threads, instead of under the first copy."""
    offsets = range(0, length, TOUCH_BYTES)
    list(executor.map(lambda at: ctypes.memset(address + at, 0, min(TOUCH_BYTES, length - at)), offsets))


class HostBufferPool:
    """The engine's few arenas; ``acquire`` waits until one is free."""

    def __init__(self, count: int, executor: Executor) -> None:
        self._free = [HostBuffer(executor) for _ in range(count)]
        self._count = count
        self._changed = threading.Condition()

    @property
    def free(self) -> int:
        with self._changed:
            return len(self._free)

    def acquire(self) -> HostBuffer:
        with self._changed:
            self._changed.wait_for(lambda: bool(self._free))
            # The largest first: the one that was used before needs no new pages.
            self._free.sort(key=lambda arena: arena.capacity)
            return self._free.pop()

    def release(self, arena: HostBuffer) -> None:
        with self._changed:
            self._free.append(arena)
            self._changed.notify()

    def drop(self) -> None:
        """Give back the memory of every free arena."""
        with self._changed:
            for arena in self._free:
                arena.free()


class CopiesUnderWay(Protocol):
    """Copies from devices that still arrive in the snapshot's memory. Host memory has none: it is copied at once."""

    @property
    def prints(self) -> Mapping[int, bytes]:
        """Fingerprints of parts, where they were taken."""

    def wait_for_part(self, part: int) -> None:
        """Block until this part has arrived."""

    def wait_all(self) -> None:
        """Block until no copy is under way, whether it succeeded or not."""


@dataclass(slots=True)
class Snapshot:
    """State that is safe from the training loop, held in one arena until it is released."""

    step: int
    layout: Layout
    leaves: list[Leaf]
    arena: HostBuffer
    pool: HostBufferPool
    seconds: float = 0.0
    copies: CopiesUnderWay | None = None
    unchanged_parts: Mapping[int, Part] = field(default_factory=dict)
    """Parts that were found unchanged on the device and not copied: the stored ones that they equal."""
    _released: bool = False
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def size(self) -> int:
        """Bytes that persisting writes at most."""
        return self.layout.total

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
        """The bytes of one part, padding included, once they have arrived."""
        if self.copies is not None:
            self.copies.wait_for_part(number)
        place = self.layout.parts[number]
        return self.arena.view[place.start : place.start + place.length]

    def release(self) -> None:
        """Give the arena back; the snapshot is not used afterwards. A second call does nothing."""
        with self._lock:
            if self._released:
                return
            self._released = True
        if self.copies is not None:
            self.copies.wait_all()  # no copy may still arrive when the next snapshot is written there
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
