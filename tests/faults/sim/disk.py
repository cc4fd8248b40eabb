"""A local disk that several simulated processes share, and that forgets at a power cut what was never synced."""

from __future__ import annotations

import contextlib
import errno
import os
import random
from collections.abc import Callable, Iterator
from typing import Any

from faults.memory_fs import MemoryFS, Node
from faults.sim.schedule import NEVER, Process, Scheduler, SimClock, Task
from stayfast.filesystem import Buffer, FileStat

SECTOR = 512


class DiskNode(Node):
    """An inode, and what of it has certainly reached the platter."""

    __slots__ = ("durable", "kept", "kept_mtime_ns", "ruined")

    def __init__(self, data: bytearray | None, mtime_ns: int = 0) -> None:
        super().__init__(data, mtime_ns)
        self.kept = b""
        self.kept_mtime_ns = 0
        self.ruined = False  # an fsync failed: what was written before may be lost for ever
        self.durable: dict[str, DiskNode] = {}  # of a directory: the names that would survive


class Disk(MemoryFS):
    """All processes' view; ``cut`` leaves one of the states that a power cut may leave."""

    def __init__(self) -> None:
        super().__init__({"/": DiskNode(None)})
        self.pending: list[tuple[DiskNode, str, DiskNode | None]] = []
        self.full_until = 0.0
        self.holders: dict[str, Task] = {}
        self.waiting: list[Task] = []
        self.cuts = 0

    def _named(self, path: str, node: Any) -> None:
        folder, _, name = path.rpartition("/")
        parent: Any = self.names[folder or "/"]
        self.pending.append((parent, name, node))

    def create_at(self, path: str, mtime_ns: int) -> int:
        self._parent(path)
        if path in self.names:
            raise FileExistsError(errno.EEXIST, "File exists", path)
        node = self.names[path] = DiskNode(bytearray(), mtime_ns)
        self._named(path, node)
        return self._handle(node)

    def fsync(self, fd: int) -> None:
        node: Any = self._open[fd]
        if not node.ruined:
            node.kept, node.kept_mtime_ns = bytes(node.data), node.mtime_ns

    def fsync_dir(self, path: str) -> None:
        super().fsync_dir(path)
        folder: Any = self.names[path]
        rest = []
        for row in self.pending:
            if row[0] is folder:
                _apply(*row)
            else:
                rest.append(row)
        self.pending = rest

    def link(self, source: str, target: str) -> None:
        super().link(source, target)
        self._named(target, self.names[target])

    def replace(self, source: str, target: str) -> None:
        super().replace(source, target)
        self._named(target, self.names[target])
        self._named(source, None)

    def unlink(self, path: str) -> None:
        super().unlink(path)
        self._named(path, None)

    def mkdir(self, path: str) -> None:
        known = path in self.names
        if not known:
            self._parent(path)
            self.names[path] = DiskNode(None)
            self._named(path, self.names[path])
        else:
            super().mkdir(path)

    def rmdir(self, path: str) -> None:
        super().rmdir(path)
        self._named(path, None)

    # -- the power goes

    def cut(self, rng: random.Random) -> None:
        """Keep what was synced, and of the rest whatever the disk happened to have written."""
        self.cuts += 1
        mode = rng.choice(("nothing", "everything", "in order", "any", "any"))
        stop = rng.randint(0, len(self.pending))
        for number, row in enumerate(self.pending):
            if mode == "everything" or (mode == "in order" and number < stop) or (mode == "any" and rng.random() < 0.5):
                _apply(*row)
        self.pending = []
        found: dict[str, Node] = {}
        done: set[int] = set()
        self._gather("", self.names["/"], found, done, rng)  # type: ignore[arg-type]
        self.names = found
        self._open.clear()
        self.holders.clear()
        self.waiting.clear()
        self.full_until = 0.0

    def _gather(self, path: str, node: DiskNode, found: dict[str, Node], done: set[int], rng: random.Random) -> None:
        found[path or "/"] = node
        if node.data is None:
            for name, child in sorted(node.durable.items()):
                self._gather(f"{path}/{name}", child, found, done, rng)
        elif id(node) not in done:
            done.add(id(node))
            _tear(node, rng)


def _apply(folder: DiskNode, name: str, node: DiskNode | None) -> None:
    if node is None:
        folder.durable.pop(name, None)
    else:
        folder.durable[name] = node


def _tear(node: DiskNode, rng: random.Random) -> None:
    """Content that was not synced: as written, as before, torn at a sector, or a hole of the right length."""
    assert node.data is not None
    if bytes(node.data) != node.kept or node.mtime_ns != node.kept_mtime_ns:
        now = bytes(node.data)
        choice = rng.choice(("written", "kept", "torn", "hole"))
        if choice == "torn":
            now = now[: SECTOR * rng.randint(0, len(now) // SECTOR)]
        elif choice == "hole":
            now = bytes(len(now))
        node.data[:] = node.kept if choice == "kept" else now
        if choice != "written":
            node.mtime_ns = rng.choice((node.mtime_ns, node.kept_mtime_ns))
    node.kept, node.kept_mtime_ns, node.ruined = bytes(node.data), node.mtime_ns, False


class ProcessFS:
    """``FS`` for one process: each call is a point of the schedule, and may fail."""

    def __init__(
        self, disk: Disk, scheduler: Scheduler, process: Process, error_rate: float, seen: Callable[[str, str], None]
    ) -> None:
        self._disk, self._scheduler, self._process = disk, scheduler, process
        self._clock = SimClock(scheduler, process)
        self._error_rate = error_rate
        self._seen = seen  # told of every name that came or went
        process.on_death.append(self._drop_locks)

    def _enter(self, what: str, path: str) -> None:
        self._scheduler.point(f"{what} {path}")

    def _may_fail(self) -> None:
        if self._scheduler.now < self._disk.full_until:
            raise OSError(errno.ENOSPC, "No space left on device")

    def create(self, path: str, *, direct: bool = False) -> int:
        self._enter("create", path)
        self._may_fail()
        return self._disk.create_at(path, int(self._clock.wall() * 1e9))

    def open(self, path: str, *, direct: bool = False) -> int:
        self._enter("open", path)
        return self._disk.open(path)

    def write(self, fd: int, data: Buffer, offset: int) -> None:
        self._enter("write", str(len(memoryview(data).cast("B"))))
        if self._scheduler.now < self._disk.full_until:
            self._disk.write(fd, memoryview(data).cast("B")[: len(memoryview(data).cast("B")) // 2], offset)
        self._may_fail()
        self._disk.write(fd, data, offset)

    def read_into(self, fd: int, buffer: memoryview, offset: int) -> int:
        self._enter("read", "")
        return self._disk.read_into(fd, buffer, offset)

    def truncate(self, fd: int, size: int) -> None:
        self._disk.truncate(fd, size)

    def set_mtime(self, fd: int, mtime_ns: int) -> None:
        self._alive()
        self._disk.set_mtime(fd, mtime_ns)

    def fsync(self, fd: int) -> None:
        self._enter("fsync", "")
        if self._scheduler.fault(self._error_rate, ("fsync fails",)):
            node: Any = self._disk._open[fd]
            node.ruined = True
            raise OSError(errno.EIO, "Input/output error")
        self._disk.fsync(fd)

    def fsync_dir(self, path: str) -> None:
        self._enter("fsync_dir", path)
        if self._scheduler.fault(self._error_rate, ("fsync of a directory fails",)):
            raise OSError(errno.EIO, "Input/output error")
        self._disk.fsync_dir(path)
        self._seen("fsync_dir", path)

    def close(self, fd: int) -> None:
        self._alive()
        self._disk.close(fd)

    def link(self, source: str, target: str) -> None:
        self._enter("link", target)
        self._disk.link(source, target)
        self._seen("named", target)

    def replace(self, source: str, target: str) -> None:
        self._enter("replace", target)
        self._disk.replace(source, target)
        self._seen("named", target)

    def unlink(self, path: str) -> None:
        self._enter("unlink", path)
        self._disk.unlink(path)
        self._seen("gone", path)

    def mkdir(self, path: str) -> None:
        self._enter("mkdir", path)
        self._may_fail()
        self._disk.mkdir(path)

    def rmdir(self, path: str) -> None:
        self._enter("rmdir", path)
        self._disk.rmdir(path)

    def listdir(self, path: str) -> list[str]:
        self._enter("listdir", path)
        return self._disk.listdir(path)

    def stat(self, path: str) -> FileStat | None:
        self._enter("stat", path)
        return self._disk.stat(path)

    def fstat(self, fd: int) -> FileStat:
        self._alive()
        return self._disk.fstat(fd)

    def _alive(self) -> None:
        if not self._process.alive:
            self._enter("after death", "")

    @contextlib.contextmanager
    def lock(self, path: str, *, timeout_seconds: float) -> Iterator[None]:
        self._enter("lock", path)
        task, disk = self._scheduler.current, self._disk
        deadline = self._scheduler.now + timeout_seconds
        while path in disk.holders:
            if self._scheduler.now >= deadline:
                raise TimeoutError(f"another process held the lock on {path} for {timeout_seconds:g} s")
            disk.waiting.append(task)
            self._scheduler.point("waits for the lock", ready_at=min(deadline, NEVER))
        disk.holders[path] = task
        try:
            yield
        finally:
            if task.process.alive:
                self._free(path)

    def _free(self, path: str) -> None:
        self._disk.holders.pop(path, None)
        for other in self._disk.waiting:
            other.wake_at = 0.0
        self._disk.waiting.clear()

    def _drop_locks(self) -> None:
        for path, task in list(self._disk.holders.items()):
            if task.process is self._process:
                self._free(path)


def is_inside(path: str, root: str) -> str:
    """The key of a path in the store at root; empty when it is no object."""
    key = path[len(root) + 1 :] if path.startswith(root + "/") else ""
    return "" if os.path.basename(key).startswith(".tmp-") else key
