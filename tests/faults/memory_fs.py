"""A disk in memory that speaks ``FS``, and one that also writes down every operation for the crash model."""

from __future__ import annotations

import contextlib
import errno
import os
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from stayfast.filesystem import Buffer, FileStat


class Node:
    """An inode: a directory when ``data`` is None."""

    __slots__ = ("data", "mtime_ns", "number", "version")

    def __init__(self, data: bytearray | None, mtime_ns: int = 0, number: int = 0) -> None:
        self.data = data
        self.mtime_ns = mtime_ns
        self.number = number
        self.version: object = 0


def _absent(path: str) -> FileNotFoundError:
    return FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)


class MemoryFS:
    """Names and nodes in a dictionary; as strict as a real disk about what exists."""

    def __init__(self, names: dict[str, Node] | None = None) -> None:
        self.names: dict[str, Node] = {"/": Node(None)} if names is None else names
        self._open: dict[int, Node] = {}
        self._next = 3
        self._mutex = threading.RLock()
        self._locked = threading.RLock()

    def create(self, path: str, *, direct: bool = False) -> int:
        with self._mutex:
            self._parent(path)
            if path in self.names:
                raise FileExistsError(errno.EEXIST, "File exists", path)
            node = self.names[path] = Node(bytearray(), 1 << 61)  # new: no sweep may take it for a leftover
            return self._handle(node)

    def open(self, path: str, *, direct: bool = False) -> int:
        with self._mutex:
            node = self.names.get(path)
            if node is None:
                raise _absent(path)
            if node.data is None:
                raise IsADirectoryError(errno.EISDIR, "Is a directory", path)
            return self._handle(node)

    def write(self, fd: int, data: Buffer, offset: int) -> None:
        content = self._file(fd)
        raw = bytes(data)
        if len(content) < offset:
            content.extend(bytes(offset - len(content)))
        content[offset : offset + len(raw)] = raw

    def read_into(self, fd: int, buffer: memoryview, offset: int) -> int:
        view = buffer.cast("B")
        piece = self._file(fd)[offset : offset + len(view)]
        view[: len(piece)] = piece
        return len(piece)

    def truncate(self, fd: int, size: int) -> None:
        content = self._file(fd)
        if size < len(content):
            del content[size:]
        else:
            content.extend(bytes(size - len(content)))

    def set_mtime(self, fd: int, mtime_ns: int) -> None:
        self._open[fd].mtime_ns = mtime_ns

    def fsync(self, fd: int) -> None:
        self._open[fd]  # a closed file is a bug of the caller

    def fsync_dir(self, path: str) -> None:
        node = self.names.get(path)
        if node is None:
            raise _absent(path)

    def close(self, fd: int) -> None:
        with self._mutex:
            del self._open[fd]

    def link(self, source: str, target: str) -> None:
        with self._mutex:
            node = self._existing(source)
            self._parent(target)
            if target in self.names:
                raise FileExistsError(errno.EEXIST, "File exists", target)
            self.names[target] = node

    def replace(self, source: str, target: str) -> None:
        with self._mutex:
            self._existing(source)
            self._parent(target)
            self.names[target] = self.names.pop(source)

    def unlink(self, path: str) -> None:
        with self._mutex:
            self._existing(path)
            del self.names[path]

    def mkdir(self, path: str) -> None:
        with self._mutex:
            self._parent(path)
            known = self.names.get(path)
            if known is not None and known.data is not None:
                raise FileExistsError(errno.EEXIST, "File exists", path)
            if known is None:
                self.names[path] = Node(None)

    def rmdir(self, path: str) -> None:
        with self._mutex:
            if path not in self.names:
                raise _absent(path)
            if self.listdir(path):
                raise OSError(errno.ENOTEMPTY, "Directory not empty", path)
            del self.names[path]

    def listdir(self, path: str) -> list[str]:
        with self._mutex:
            node = self.names.get(path)
            if node is None:
                raise _absent(path)
            if node.data is not None:
                raise NotADirectoryError(errno.ENOTDIR, "Not a directory", path)
            start = path.rstrip("/") + "/"
            size = len(start)
            return sorted(n[size:] for n in self.names if n.startswith(start) and len(n) > size and "/" not in n[size:])

    def stat(self, path: str) -> FileStat | None:
        node = self.names.get(path)
        return None if node is None else _stat(node)

    def fstat(self, fd: int) -> FileStat:
        return _stat(self._open[fd])

    @contextlib.contextmanager
    def lock(self, path: str, *, timeout_seconds: float) -> Iterator[None]:
        with self._locked:
            yield

    def copy(self) -> MemoryFS:
        """The same disk as a new process would find it, sharing nothing."""
        twins: dict[int, Node] = {}
        names = {}
        for path, node in self.names.items():
            twin = twins.get(id(node))
            if twin is None:
                data = None if node.data is None else bytearray(node.data)
                twin = twins[id(node)] = Node(data, node.mtime_ns, node.number)
            names[path] = twin
        return MemoryFS(names)

    def _handle(self, node: Node) -> int:
        fd = self._next
        self._next += 1
        self._open[fd] = node
        return fd

    def _file(self, fd: int) -> bytearray:
        data = self._open[fd].data
        assert data is not None
        return data

    def _existing(self, path: str) -> Node:
        node = self.names.get(path)
        if node is None:
            raise _absent(path)
        return node

    def _parent(self, path: str) -> None:
        parent = self.names.get(os.path.dirname(path))
        if parent is None:
            raise _absent(path)
        if parent.data is not None:
            raise NotADirectoryError(errno.ENOTDIR, "Not a directory", path)


def _stat(node: Node) -> FileStat:
    return FileStat(0 if node.data is None else len(node.data), node.mtime_ns, node.data is None)


@dataclass(frozen=True, slots=True)
class Op:
    """One recorded operation: of content (by inode number) or of a name (by path, in one directory)."""

    kind: str
    path: str = ""
    target: str = ""
    number: int = 0
    offset: int = 0
    data: bytes = b""
    mark: Any = None


class Crash(BaseException):
    """The recorded process dies here; ``BaseException`` so that no clean-up code survives it by accident."""


class RecordingFS(MemoryFS):
    """Writes down what changes the disk. ``fail_sync_at`` lets the n-th fsync fail, ``die_at`` kills at the n-th op."""

    def __init__(self, names: dict[str, Node] | None = None, log: list[Op] | None = None) -> None:
        super().__init__(names)
        self.log: list[Op] = [] if log is None else log
        self.numbers = 1 + max((node.number for node in self.names.values()), default=0)
        self.fail_sync_at = -1
        self.fail_only = ""  # a directory: then only its syncs are counted
        self.die_at = -1
        self._syncs = 0
        self._dead = False

    def mark(self, value: Any) -> None:
        """Note something that the harness knows, at this point of the log."""
        self.log.append(Op("mark", mark=value))

    def _add(self, op: Op) -> None:
        if self._dead or (self.die_at >= 0 and len(self.log) >= self.die_at):
            self._dead = True
            raise Crash
        self.log.append(op)

    def _sync(self, good: Op, bad: Op) -> None:
        if self.fail_only and good.path != self.fail_only:
            self._add(good)
            return
        self._syncs += 1
        if self._syncs - 1 == self.fail_sync_at:
            self._add(bad)
            raise OSError(errno.EIO, "Input/output error")
        self._add(good)

    def create(self, path: str, *, direct: bool = False) -> int:
        with self._mutex:
            fd = super().create(path)
            node = self._open[fd]
            node.number, self.numbers = self.numbers, self.numbers + 1
            try:
                self._add(Op("create", path, number=node.number))
            except Crash:
                del self.names[path]
                raise
            return fd

    def write(self, fd: int, data: Buffer, offset: int) -> None:
        with self._mutex:
            self._add(Op("write", number=self._open[fd].number, offset=offset, data=bytes(data)))
            super().write(fd, data, offset)

    def truncate(self, fd: int, size: int) -> None:
        with self._mutex:
            self._add(Op("truncate", number=self._open[fd].number, offset=size))
            super().truncate(fd, size)

    def set_mtime(self, fd: int, mtime_ns: int) -> None:
        with self._mutex:
            self._add(Op("mtime", number=self._open[fd].number, offset=mtime_ns))
            super().set_mtime(fd, mtime_ns)

    def fsync(self, fd: int) -> None:
        with self._mutex:
            number = self._open[fd].number
            self._sync(Op("fsync", number=number), Op("bad_fsync", number=number))

    def fsync_dir(self, path: str) -> None:
        with self._mutex:
            super().fsync_dir(path)
            self._sync(Op("fsync_dir", path), Op("bad_fsync_dir", path))

    def link(self, source: str, target: str) -> None:
        with self._mutex:
            if source in self.names and target not in self.names:
                self._add(Op("link", source, target, self.names[source].number))
            super().link(source, target)

    def replace(self, source: str, target: str) -> None:
        with self._mutex:
            if source in self.names:
                self._add(Op("replace", source, target, self.names[source].number))
            super().replace(source, target)

    def unlink(self, path: str) -> None:
        with self._mutex:
            if path in self.names:
                self._add(Op("unlink", path))
            super().unlink(path)

    def mkdir(self, path: str) -> None:
        with self._mutex:
            if path not in self.names:
                self._add(Op("mkdir", path))
            super().mkdir(path)

    def rmdir(self, path: str) -> None:
        with self._mutex:
            if path in self.names and not self.listdir(path):
                self._add(Op("rmdir", path))
            super().rmdir(path)
