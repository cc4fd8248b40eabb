"""What a forked child must not inherit: descriptors of ours, and locks that a thread of the parent held.

A child of ``os.fork``, ``multiprocessing`` or a DataLoader shares the parent's open files and sockets. It also has a
copy of every lock in its present state, but none of the threads that would release it. Both are registered here; every
child that Python forks closes the descriptors and frees the locks. A fork inside C code runs no such hook.
"""

from __future__ import annotations

import contextlib
import os
import threading
import weakref
from typing import Protocol


class Closes(Protocol):
    """A socket, a connection: anything with a descriptor inside."""

    def close(self) -> None:
        """Close the descriptor."""


_descriptors: set[int] = set()
_things: weakref.WeakSet[Closes] = weakref.WeakSet()
_locks: list[threading.Lock] = []
_forks = 0


def forks() -> int:
    """How often this process has forked."""
    return _forks


def add_descriptor(fd: int) -> int:
    """Have every child close this descriptor; call ``forget_descriptor`` before it is closed here."""
    _descriptors.add(fd)
    return fd


def forget_descriptor(fd: int) -> None:
    """The descriptor is about to be closed: its number may soon mean something else."""
    _descriptors.discard(fd)


def close_in_children(thing: Closes) -> None:
    """Have every child close its copy of this, for as long as the object lives."""
    _things.add(thing)


def fork_safe_lock() -> threading.Lock:
    """A lock for a module: a child finds it free, whichever thread of the parent held it."""
    lock = threading.Lock()
    _locks.append(lock)
    return lock


def _before() -> None:
    global _forks
    _forks += 1


def _in_child() -> None:
    for lock in _locks:
        lock._at_fork_reinit()  # type: ignore[attr-defined]  # as the standard library does with its own
    while _descriptors:
        with contextlib.suppress(OSError):
            os.close(_descriptors.pop())
    for thing in list(_things):
        with contextlib.suppress(Exception):
            thing.close()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before, after_in_child=_in_child)
