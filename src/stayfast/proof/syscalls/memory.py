"""The memory of a program whose system call is being held: its arguments point there."""

from __future__ import annotations

import os


def read_memory(pid: int, address: int, size: int) -> bytes:
    """Up to the end of the page after the address at least: a name may end where readable memory ends."""
    descriptor = os.open(f"/proc/{pid}/mem", os.O_RDONLY)
    try:
        try:
            return os.pread(descriptor, size, address)
        except OSError:
            return os.pread(descriptor, 4096 - address % 4096, address)
    finally:
        os.close(descriptor)
