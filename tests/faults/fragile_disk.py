"""A disk in memory that fails or kills at a chosen operation, and loses at a power cut what was not synced."""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import Any

from faults.memory_fs import Crash
from faults.sim.disk import Disk, is_inside
from faults.sim.runs import Oracle


class FragileDisk(Disk):
    """Fails or kills at the n-th operation that changes something, and tells who listens of every name."""

    def __init__(self) -> None:
        super().__init__()
        self.left = -1
        self.how = "kill"
        self.die_after_naming = ""
        self.oracles: dict[str, Oracle] = {}
        self.mkdir("/data")
        self.fsync_dir("/")

    def names_under(self, root: str) -> Callable[[str], bool]:
        return lambda key: f"{root}/{key}" in self.names

    def _spend(self) -> None:
        if self.left < 0:
            return
        if self.left == 0:
            if self.how == "kill":
                raise Crash
            self.left = -1
            raise OSError(errno.ENOSPC if self.how == "full" else errno.EIO, "this one fails")
        self.left -= 1

    def create(self, path: str, *, direct: bool = False) -> int:
        self._spend()
        return self.create_at(path, 1 << 60)

    def _tell(self, path: str, *, gone: bool) -> None:
        for root, oracle in self.oracles.items():
            if key := is_inside(path, root):
                oracle.gone(key) if gone else oracle.named(key, "")

    def link(self, source: str, target: str) -> None:
        self._spend()
        super().link(source, target)
        self._tell(target, gone=False)

    def replace(self, source: str, target: str) -> None:
        self._spend()
        super().replace(source, target)
        self._tell(target, gone=False)
        if target == self.die_after_naming:
            raise Crash

    def unlink(self, path: str) -> None:
        self._spend()
        super().unlink(path)
        self._tell(path, gone=True)

    def write(self, fd: int, data: Any, offset: int) -> None:
        self._spend()
        super().write(fd, data, offset)

    def fsync(self, fd: int) -> None:
        try:
            self._spend()
        except OSError:
            node: Any = self._open[fd]
            node.ruined = True
            raise
        super().fsync(fd)

    def fsync_dir(self, path: str) -> None:
        self._spend()
        super().fsync_dir(path)

    def mkdir(self, path: str) -> None:
        self._spend()
        super().mkdir(path)
