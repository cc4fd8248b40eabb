"""A disk with little space: what would make the copy larger than it may be fails as on a full file system.

The kernel's own answer, ENOSPC, is given to the call that is held, so that no file system has to be mounted and an
ordinary user can have it. What is written through a memory map is not seen; a file counts with its size.
"""

from __future__ import annotations

import os
import struct
import threading

from stayfast.process.proc import descriptor_position, descriptor_size
from stayfast.proof.syscalls.call_target import read_memory
from stayfast.proof.syscalls.seccomp import Call, descriptor_of

_KEEP_SIZE = 1  # of fallocate
_MOST_PIECES = 1024  # of one writev, the kernel's own limit


class DiskLimit:
    """The space of one trial, shared by all its attempts."""

    def __init__(self, root: str, limit_bytes: int) -> None:
        """``limit_bytes`` is what is free beside what lies in the directory now."""
        self._root = root
        self._most = used_bytes(root) + limit_bytes
        self._at_most_used = self._most - limit_bytes
        self._lock = threading.Lock()

    def is_full_for(self, call: Call) -> bool:
        """Whether there is no space for what a held call is about to write."""
        wanted = _bytes_of(call)
        with self._lock:
            if self._at_most_used + wanted > self._most:  # a sum of all that was written; now the truth
                wanted = _growth(call, wanted)
                self._at_most_used = used_bytes(self._root)
            if wanted and self._at_most_used + wanted > self._most:
                return True
            self._at_most_used += wanted
            return False


def used_bytes(root: str) -> int:
    """The sizes of all files below."""
    total = 0
    for folder, _, files in os.walk(root):
        for name in files:
            try:
                total += os.lstat(os.path.join(folder, name)).st_size
            except OSError:
                continue  # it was there a moment ago
    return total


def _bytes_of(call: Call) -> int:
    """What a call wants to write at most."""
    arguments = call.arguments
    match call.name:
        case "write" | "pwrite64":
            return arguments[2]
        case "writev" | "pwritev" | "pwritev2":
            pieces = min(arguments[2], _MOST_PIECES)
            words = struct.unpack(f"={2 * pieces}Q", read_memory(call.pid, arguments[1], 16 * pieces))
            return sum(words[1::2])
        case "sendfile":
            return min(arguments[3], descriptor_size(call.pid, arguments[1] & 0xFFFFFFFF))
        case "copy_file_range":
            return min(arguments[4], descriptor_size(call.pid, arguments[0] & 0xFFFFFFFF))
        case "ftruncate" | "fallocate":
            return _growth(call, 0)
    return 0


def _growth(call: Call, count: int) -> int:
    """By how much its file would grow: what is overwritten in place needs no space."""
    arguments = call.arguments
    descriptor = descriptor_of(call)
    size = descriptor_size(call.pid, descriptor or 0)
    match call.name:
        case "ftruncate":
            return max(0, arguments[1] - size)
        case "fallocate":
            return 0 if arguments[1] & _KEEP_SIZE else max(0, arguments[2] + arguments[3] - size)
        case "pwrite64" | "pwritev" | "pwritev2":
            return max(0, arguments[3] + count - size)
    return max(0, _position(call, descriptor or 0, size) + count - size)


def _position(call: Call, descriptor: int, size: int) -> int:
    """Where a write without an offset goes to."""
    position, flags = descriptor_position(call.pid, descriptor)
    return size if flags & os.O_APPEND else position
