"""What a worker has done, counted in memory that it shares with its pool."""

from __future__ import annotations

import mmap
import os
import struct
from dataclasses import asdict, dataclass

_LAYOUT = struct.Struct("=5q")


@dataclass(slots=True)
class ItemCounts:
    """What a worker has done so far."""

    done: int = 0
    skipped: int = 0  # recorded before: acknowledged without computing
    failed: int = 0
    dead: int = 0
    lost: int = 0  # finished, but the lease had gone to somebody else

    def as_json(self) -> dict[str, int]:
        """For progress and reports."""
        return asdict(self)

    def add(self, other: ItemCounts) -> None:
        """Count what another worker did."""
        for name, value in asdict(other).items():
            setattr(self, name, getattr(self, name) + value)


class SharedTally:
    """A tally in a memory file: the worker writes it after each commit, and it outlives the worker's death."""

    def __init__(self, fd: int) -> None:
        self._memory = mmap.mmap(fd, _LAYOUT.size)

    @staticmethod
    def create() -> int:
        """A descriptor of a new one, for both sides to open."""
        fd = os.memfd_create("stayfast-tally")
        os.ftruncate(fd, _LAYOUT.size)
        return fd

    def write(self, tally: ItemCounts) -> None:
        """Publish these counts."""
        _LAYOUT.pack_into(self._memory, 0, tally.done, tally.skipped, tally.failed, tally.dead, tally.lost)

    def read(self) -> ItemCounts:
        """The counts that were published last."""
        return ItemCounts(*_LAYOUT.unpack_from(self._memory))
