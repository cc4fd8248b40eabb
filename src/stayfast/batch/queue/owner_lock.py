"""Proof of life between processes of one machine: a byte of a file, locked for as long as its owner lives.

The kernel drops the lock the instant the process dies, however it dies, so nobody waits for a lease to run out. Open
file description locks are used: unlike POSIX locks they also tell two owners in one process apart. A process forked by
a task inherits the description, so it is closed there; what escapes even that (a fork in C) is caught by the lease.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import struct
import weakref

_FLOCK = struct.Struct("@hhqqi4x")  # struct flock of 64-bit Linux: type, whence, start, length, pid
_living: weakref.WeakSet[OwnerLock] = weakref.WeakSet()


class OwnerLock:
    """A lock file beside the database; byte N belongs to owner N."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._fd = self._open()
        _living.add(self)

    def _open(self) -> int:
        return os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)

    def reopen_if_replaced(self, owner: int | None) -> None:
        """Somebody may have removed the file, or put another in its place: then all meet again at the new one.

        Otherwise those who opened it before and after would take each other for dead, for ever.
        """
        with contextlib.suppress(OSError):
            if self._fd < 0 or self._is_in_place():
                return
            old, self._fd = self._fd, self._open()
            os.close(old)
            if owner is not None:
                self.acquire(owner)

    def _is_in_place(self) -> bool:
        try:
            return os.path.samestat(os.fstat(self._fd), os.stat(self.path))
        except FileNotFoundError:
            return False

    def acquire(self, owner: int) -> bool:
        """Prove from now on that this owner lives; false when somebody else holds its byte."""
        try:
            self._lock(fcntl.F_WRLCK, owner)
        except BlockingIOError:
            return False
        return True

    def release(self, owner: int) -> None:
        """This owner has ended in good order."""
        self._lock(fcntl.F_UNLCK, owner)

    def is_alive(self, owner: int) -> bool:
        """Whether somebody else holds the byte of this owner."""
        asked = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, owner, 1, 0)
        answer = _FLOCK.unpack(fcntl.fcntl(self._fd, fcntl.F_OFD_GETLK, asked))
        return bool(answer[0] != fcntl.F_UNLCK)

    def close(self) -> None:
        """Drop everything this object holds."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def _lock(self, kind: int, owner: int) -> None:
        fcntl.fcntl(self._fd, fcntl.F_OFD_SETLK, _FLOCK.pack(kind, os.SEEK_SET, owner, 1, 0))


def _forget_after_fork() -> None:
    for proof in list(_living):
        with contextlib.suppress(OSError):
            proof.close()


os.register_at_fork(after_in_child=_forget_after_fork)


def boot_id() -> str:
    """Which boot of which machine: monotonic instants of another boot mean nothing here."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return "unknown"
