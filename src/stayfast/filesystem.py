"""Local file operations, as one of the three seams.

Everything that must survive a power cut goes through an ``FS``, so that a test can record the operations, enumerate
the crash states they allow, and make any single one of them fail. It is a thin layer over system calls on purpose:
durability is decided by their order, and the order has to be visible in the code that calls them.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
import threading
import time
from collections.abc import Iterator
from typing import NamedTuple, Protocol

from stayfast.forks import close_descriptor, forks, forks_held_off, open_descriptor
from stayfast.libc import load_libc

Buffer = bytes | bytearray | memoryview
DIRECT_ALIGNMENT = 4096
COLD_READ_FROM_BYTES = 1 << 20
_COLD_READS = threading.BoundedSemaphore(8)
"""More direct reads at once slow the disk down; whoever waits here leaves the processor to those who verify."""

# statfs(2) magic numbers of file systems on which rename and fsync do not mean what a commit needs.
_NOT_ATOMIC = {
    0x6969: "NFS",
    0x65735546: "FUSE (gcsfuse and the like)",
    0xFF534D42: "CIFS",
    0xFE534D42: "SMB2",
    0x01021997: "9p",
}


class FileStat(NamedTuple):
    """What is asked of a file's metadata."""

    size: int
    mtime_ns: int
    is_dir: bool
    is_link: bool = False
    """Whether the path is a symbolic link; the rest is then of what it leads to."""


class FS(Protocol):
    """The whole surface between stayfast and the local disk."""

    def create(self, path: str, *, direct: bool = False) -> int:
        """A new file, never an existing one; ``direct`` asks for O_DIRECT and falls back silently."""

    def open(self, path: str, *, direct: bool = False) -> int:
        """An existing file, for reading."""

    def write(self, fd: int, data: Buffer, offset: int) -> None:
        """All of data, at offset."""

    def read_into(self, fd: int, buffer: memoryview, offset: int) -> int:
        """Fill the buffer from offset; the count is short only at the end of the file."""

    def truncate(self, fd: int, size: int) -> None: ...

    def set_mtime(self, fd: int, mtime_ns: int) -> None: ...

    def fsync(self, fd: int) -> None:
        """Make content durable. After an error the file is dead: never fsync it again."""

    def fsync_dir(self, path: str) -> None:
        """Make names durable."""

    def close(self, fd: int) -> None: ...

    def link(self, source: str, target: str) -> None:
        """A second name; fails when the target exists."""

    def replace(self, source: str, target: str) -> None:
        """Rename over whatever is there, atomically."""

    def unlink(self, path: str) -> None: ...

    def mkdir(self, path: str) -> None:
        """One directory; an existing one is fine."""

    def rmdir(self, path: str) -> None: ...

    def listdir(self, path: str) -> list[str]: ...

    def stat(self, path: str) -> FileStat | None:
        """None when there is no such file."""

    def fstat(self, fd: int) -> FileStat:
        """Of the file that is open, whatever its name points to by now."""

    def lock(self, path: str, *, timeout_seconds: float) -> contextlib.AbstractContextManager[None]:
        """Exclusive between processes, on a directory; freed by the kernel when its holder dies."""


class SystemFS:
    """The real disk."""

    def create(self, path: str, *, direct: bool = False) -> int:
        flags = os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC
        return self._open(path, flags, direct)

    def open(self, path: str, *, direct: bool = False) -> int:
        return self._open(path, os.O_RDONLY | os.O_CLOEXEC, direct)

    @staticmethod
    def _open(path: str, flags: int, direct: bool) -> int:
        if direct and hasattr(os, "O_DIRECT"):
            try:
                return open_descriptor(path, flags | os.O_DIRECT, 0o666)
            except OSError as error:
                if error.errno != errno.EINVAL:  # tmpfs and others do not take O_DIRECT
                    raise
                if flags & os.O_EXCL:  # some file systems create the name before refusing the flag
                    with contextlib.suppress(FileNotFoundError):
                        os.unlink(path)
        return open_descriptor(path, flags, 0o666)

    def write(self, fd: int, data: Buffer, offset: int) -> None:
        view = memoryview(data).cast("B")
        while view:
            count = os.pwrite(fd, view, offset)
            view, offset = view[count:], offset + count

    def read_into(self, fd: int, buffer: memoryview, offset: int) -> int:
        view = buffer.cast("B")
        done = _read_cold(fd, view, offset) if len(view) >= COLD_READ_FROM_BYTES else 0
        while done < len(view):
            count = os.preadv(fd, [view[done:]], offset + done)
            if count == 0:
                break
            done += count
        return done

    def truncate(self, fd: int, size: int) -> None:
        os.ftruncate(fd, size)

    def set_mtime(self, fd: int, mtime_ns: int) -> None:
        os.utime(fd, ns=(mtime_ns, mtime_ns))

    def fsync(self, fd: int) -> None:
        os.fsync(fd)

    def fsync_dir(self, path: str) -> None:
        fd = self._open_directory(path)
        try:
            os.fsync(fd)
        finally:
            self.close(fd)

    def close(self, fd: int) -> None:
        close_descriptor(fd)

    def link(self, source: str, target: str) -> None:
        os.link(source, target)

    def replace(self, source: str, target: str) -> None:
        os.replace(source, target)

    def unlink(self, path: str) -> None:
        os.unlink(path)

    def mkdir(self, path: str) -> None:
        try:
            os.mkdir(path)
        except FileExistsError:
            if not os.path.isdir(path):
                raise

    def rmdir(self, path: str) -> None:
        os.rmdir(path)

    def listdir(self, path: str) -> list[str]:
        with forks_held_off():  # it has the folder open meanwhile
            return sorted(os.listdir(path))

    def stat(self, path: str) -> FileStat | None:
        try:
            status = os.lstat(path)
            is_link = stat.S_ISLNK(status.st_mode)
            if is_link:
                status = os.stat(path)
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
                return None
            raise
        return FileStat(status.st_size, status.st_mtime_ns, stat.S_ISDIR(status.st_mode), is_link)

    def fstat(self, fd: int) -> FileStat:
        status = os.fstat(fd)
        return FileStat(status.st_size, status.st_mtime_ns, stat.S_ISDIR(status.st_mode))

    @contextlib.contextmanager
    def lock(self, path: str, *, timeout_seconds: float) -> Iterator[None]:
        fd = self._open_directory(path)
        try:
            deadline = time.monotonic() + timeout_seconds
            pause = 0.0005
            while True:
                try:
                    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if time.monotonic() >= deadline:
                        raise TimeoutError(
                            f"another process held the lock on {path} for {timeout_seconds:g} s"
                        ) from None
                    time.sleep(pause)
                    pause = min(0.02, pause * 2)
            try:
                yield
            finally:
                fcntl.flock(fd, fcntl.LOCK_UN)  # closing is not enough: a child forked in C code shares the lock
        finally:
            self.close(fd)

    def _open_directory(self, path: str) -> int:
        """Registered before anything is locked with it; a fork in between would leave a child with a copy."""
        while True:
            seen = forks()
            fd = open_descriptor(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            if forks() == seen:
                return fd
            self.close(fd)


def _read_cold(fd: int, view: memoryview, offset: int) -> int:
    """Read past the page cache what is not in it, at the speed of the disk; 0 where the ordinary way has to do.

    Asking for one cached page tells in microseconds which case it is (asking for all of them would start reading ahead
    into the cache, beside the direct read); whatever goes wrong here is left to the ordinary read, which then tells it.
    """
    import ctypes

    address = ctypes.addressof(ctypes.c_char.from_buffer(view)) if not view.readonly else 1
    if offset % DIRECT_ALIGNMENT or len(view) % DIRECT_ALIGNMENT or address % DIRECT_ALIGNMENT:
        return 0
    try:
        os.preadv(fd, [view[:DIRECT_ALIGNMENT]], offset, os.RWF_NOWAIT)
        return 0  # it is in the cache
    except OSError as error:
        if error.errno != errno.EAGAIN:  # not supported here
            return 0
    try:
        direct = open_descriptor(f"/proc/self/fd/{fd}", os.O_RDONLY | os.O_DIRECT | os.O_CLOEXEC)
    except OSError:
        return 0
    try:
        with _COLD_READS:
            return os.preadv(direct, [view], offset)
    except OSError:
        return 0
    finally:
        close_descriptor(direct)


def sync_filesystem(path: str) -> None:
    """Make everything on the file system under path durable, names and all: one call for any number of files."""
    import ctypes

    libc = load_libc()
    fd = open_descriptor(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        if libc.syncfs(fd) != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), path)
    finally:
        close_descriptor(fd)


def unsafe_filesystem(path: str) -> str | None:
    """The name of the file system under path when it cannot promise atomic, durable commits; None when it can."""
    import ctypes  # 10 ms that only a local run needs to spend

    class StatFs(ctypes.Structure):
        _fields_ = (("f_type", ctypes.c_long), ("rest", ctypes.c_byte * 256))

    try:
        libc = load_libc()
        result = StatFs()
        if libc.statfs(os.fsencode(path), ctypes.byref(result)) != 0:
            return None
    except (OSError, AttributeError):
        return None
    return _NOT_ATOMIC.get(result.f_type & 0xFFFFFFFF)
