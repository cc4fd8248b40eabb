"""A store on the local disk that survives power cuts and two processes at once.

An object is one file under the root. Its generation is its modification time in nanoseconds, set by us and strictly
increasing under one key, so that it survives restarts and needs no file beside the object. A put writes a temporary
file, makes it durable, and only then gives it its name; what holds the lock is the comparison and the rename alone, so
a process frozen at a bad moment keeps others waiting for as short a stretch of code as possible.

Whatever fails before the name is given leaves nothing written. If the disk fails to make the *name* durable, the write
is there and may not stay: that is a plain ``StoreError``, never retried and never read back as a success.
"""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterator
from urllib.parse import unquote

from stayfast.clock import Clock, SystemClock
from stayfast.errors import ConflictError, StoreError, StoreUnavailableError, UrlError
from stayfast.filesystem import DIRECT_ALIGNMENT, FS, Buffer, SystemFS
from stayfast.storage.network.urls import parse_url
from stayfast.storage.stores.file_directories import (
    DirectoryTree,
    DirectWriteRefusedError,
    durability_errors,
    os_errors,
)
from stayfast.storage.stores.protocol import ABSENT, TEMPORARY, Blob, Entry, check_key, check_prefix, is_key

DIRECT_FROM_BYTES = 1 << 20  # below this the page cache is as fast and needs no alignment
LOCK_TIMEOUT_SECONDS = 10.0
PREPARE_TRIES = 5


class FileStore:
    """Objects as files under one directory."""

    example = "file:///path, file://./path"
    enforces_preconditions = True

    @classmethod
    def open_url(cls, url: str) -> FileStore:
        """The store behind ``file:///absolute/path`` or ``file://./path``."""
        parts = parse_url(url)
        if parts.netloc in (".", ".."):
            return cls(os.path.abspath(unquote(parts.netloc + parts.path)))
        if parts.netloc not in ("", "localhost"):
            raise UrlError(
                f"the URL {url!r} names a host",
                help=f"write file:///{parts.netloc}{parts.path} for a path from the root, "
                f"file://./{parts.netloc}{parts.path} for one below the current directory",
            )
        if not parts.path:
            raise UrlError(f"the URL {url!r} has no path", help="write file:///absolute/path or file://./path")
        return cls(unquote(parts.path))

    def __init__(self, root: str, *, fs: FS | None = None, clock: Clock | None = None) -> None:
        if not root.startswith("/"):
            raise UrlError(f"the path {root!r} is not absolute", help="write file:///absolute/path")
        if "\0" in root:
            raise UrlError(f"the path {root!r} holds a NUL character", help="write file:///absolute/path")
        self.root = "/" + os.path.normpath(root).lstrip("/")  # two slashes at the start are kept by normpath
        self.url = "file://" + self.root
        self._fs = fs or SystemFS()
        self._clock = clock or SystemClock()
        self._tree = DirectoryTree(self.root, self._fs, self._clock)
        self._read_from: dict[str, None] = {}  # in order: directories of what was read since the last delete

    # -- reading

    def get(self, key: str, *, offset: int = 0, length: int | None = None) -> Blob:
        path = self._path(key)
        with os_errors(key, self.url, "read"):
            fd = self._fs.open(path)
            try:
                status = self._fs.fstat(fd)
                size = max(0, status.size - offset)
                buffer = memoryview(bytearray(size if length is None else min(size, length)))
                count = self._fs.read_into(fd, buffer, offset)
                self._read_from[os.path.dirname(path)] = None
                return Blob(bytes(buffer[:count]), str(status.mtime_ns))
            finally:
                self._fs.close(fd)

    def read_into(self, key: str, buffer: memoryview, *, offset: int = 0) -> int:
        path = self._path(key)
        with os_errors(key, self.url, "read"):
            fd = self._fs.open(path)
            try:
                return self._fs.read_into(fd, buffer, offset)
            finally:
                self._fs.close(fd)

    def keys(self, prefix: str = "") -> Iterator[Entry]:
        check_prefix(prefix)
        start = prefix.rpartition("/")[0]
        with os_errors(prefix or self.root, self.url, "list"):
            for entry in self._tree.walk(start):
                if entry.key.startswith(prefix) and is_key(entry.key):
                    yield entry

    # -- writing

    def put(self, key: str, data: Buffer, *, if_generation: str | None = None) -> str:
        path = self._path(key)
        view = memoryview(data).cast("B")
        with os_errors(key, self.url, "write"):
            current = self._generation(path)
            self._check(key, current, if_generation)
            try:
                temporary, generation = self._prepare(path, view, current, direct=_can_be_direct(view))
            except DirectWriteRefusedError:
                temporary, generation = self._prepare(path, view, current, direct=False)
            try:
                generation = self._publish(temporary, path, key, if_generation, generation)
            except BaseException:
                self._discard(temporary)
                raise
        with durability_errors(key, self.url):
            if if_generation == ABSENT:
                self._discard(temporary)  # its second name stays
            self._fs.fsync_dir(os.path.dirname(path))
        return str(generation)

    def _prepare(self, path: str, view: memoryview, current: str, *, direct: bool) -> tuple[str, int]:
        """The content, durable under a name of its own, and the generation it will have."""
        for _ in range(PREPARE_TRIES):
            directory = self._tree.ensure_durable(os.path.dirname(path))
            temporary = os.path.join(directory, f"{TEMPORARY}{os.getpid():x}-{secrets.token_hex(6)}")
            try:
                fd = self._fs.create(temporary, direct=direct)
            except FileNotFoundError:  # whoever deleted the last object beside it took the directory away
                self._tree.forget(directory)
                continue
            return temporary, self._write_durably(fd, temporary, view, current, direct=direct)
        raise StoreUnavailableError(f"{path} cannot be written: its directory keeps disappearing")

    def _write_durably(self, fd: int, temporary: str, view: memoryview, current: str, *, direct: bool) -> int:
        """Content first. A failed write or fsync kills this file for good: it is removed, never synced again."""
        try:
            try:
                with DirectWriteRefusedError.from_einval(direct=direct):
                    self._fs.write(fd, view, 0)
                generation = self._set_generation(fd, current)
                self._fs.fsync(fd)
            finally:
                self._fs.close(fd)
        except BaseException:
            with contextlib.suppress(OSError):
                self._fs.unlink(temporary)
            raise
        return generation

    def _set_generation(self, fd: int, current: str) -> int:
        """Now, or just after the current generation where the clock went back or the disk keeps whole seconds only."""
        least = 0 if current == ABSENT else int(current) + 1
        wanted = max(int(self._clock.wall() * 1e9), least)
        self._fs.set_mtime(fd, wanted)
        kept = self._fs.fstat(fd).mtime_ns
        if kept < least:
            self._fs.set_mtime(fd, (wanted // 1_000_000_000 + 1) * 1_000_000_000)
            kept = self._fs.fstat(fd).mtime_ns
        return kept

    def _publish(self, temporary: str, path: str, key: str, if_generation: str | None, generation: int) -> int:
        if if_generation == ABSENT:
            try:
                self._fs.link(temporary, path)  # exclusive by itself: needs no lock
            except FileExistsError:
                raise ConflictError(f"{key} in {self.url} exists already") from None
            return generation
        with self._fs.lock(self.root, timeout_seconds=LOCK_TIMEOUT_SECONDS):
            current = self._generation(path)
            self._check(key, current, if_generation)
            if current != ABSENT and int(current) >= generation:  # replaced while we wrote; only an unconditional put
                generation = self._raise_generation(temporary, current)
            self._fs.replace(temporary, path)
        return generation

    def _raise_generation(self, temporary: str, current: str) -> int:
        fd = self._fs.open(temporary)
        try:
            generation = self._set_generation(fd, current)
            self._fs.fsync(fd)
            return generation
        finally:
            self._fs.close(fd)

    def delete(self, key: str) -> None:
        path = self._path(key)
        with os_errors(key, self.url, "delete"):
            self._sync_read_directories()
            try:
                self._fs.unlink(path)
            except (FileNotFoundError, NotADirectoryError, IsADirectoryError):  # no such object
                return
            with contextlib.suppress(FileNotFoundError):  # somebody else deleted the last object beside it
                self._fs.fsync_dir(os.path.dirname(path))
            self._tree.remove_empty(os.path.dirname(path))

    def _sync_read_directories(self) -> None:
        """Whoever deletes has read what makes the object superfluous, and that may be a name not yet durable."""
        while self._read_from:
            directory, _ = self._read_from.popitem()
            try:
                self._fs.fsync_dir(directory)
            except FileNotFoundError:  # it is gone with all that was in it
                continue
            except BaseException:
                self._read_from[directory] = None
                raise

    def remove_leftovers(self) -> int:
        """Remove what dead writers left behind; returns the number of files."""
        with os_errors("leftovers", self.url, "delete"):
            return self._tree.remove_leftovers()

    def close(self) -> None:
        """Nothing is kept open."""

    # -- inside

    def _path(self, key: str) -> str:
        return os.path.join(self.root, check_key(key))

    def _generation(self, path: str) -> str:
        status = self._fs.stat(path)
        if status is not None and status.is_dir:
            raise StoreError(f"{path} is a directory, and a key cannot be both", help="use another key or another URL")
        return ABSENT if status is None else str(status.mtime_ns)

    def _check(self, key: str, current: str, if_generation: str | None) -> None:
        if if_generation is not None and current != if_generation:
            raise ConflictError(f"{key} in {self.url} is at generation {current}, not {if_generation}")

    def _discard(self, temporary: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            self._fs.unlink(temporary)


def _can_be_direct(view: memoryview) -> bool:
    """O_DIRECT wants length, offset and address aligned; the checkpoint engine's buffers are."""
    if len(view) < DIRECT_FROM_BYTES or len(view) % DIRECT_ALIGNMENT or view.readonly:
        return False
    import ctypes

    return ctypes.addressof(ctypes.c_char.from_buffer(view)) % DIRECT_ALIGNMENT == 0
