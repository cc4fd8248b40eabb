"""Host memory that snapshots are copied into: page-aligned, touched once, used again and again.

Fresh pages cost far more than copying into pages that are there (each is zeroed and mapped on first touch), so a
buffer is kept for the life of the engine. Two buffers let one snapshot be written while the next is taken; each holds
at most one copy of the state.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import threading
from collections.abc import Callable
from concurrent.futures import Executor

HUGE_PAGE = 2 << 20
TOUCH_BYTES = 64 << 20


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
