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
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator


class Closes(Protocol):
    """A socket, a connection: anything with a descriptor inside."""

    def close(self) -> None:
        """Close the descriptor."""


_descriptors: set[int] = set()
_things: weakref.WeakSet[Closes] = weakref.WeakSet()
_locks: list[threading.Lock] = []
_forks = 0
_FORK_WAIT_SECONDS = 1.0
_holding_off = threading.RLock()  # one that a signal handler may enter again, and fork in


def forks() -> int:
    """How often this process has forked."""
    return _forks


@contextlib.contextmanager
def forks_held_off() -> Iterator[None]:
    """No thread of this process forks in here: for calls that hold a descriptor which is not registered.

    A fork waits for this block for a second at most, so that a file system that hangs stops no fork.
    """
    with _holding_off:
        yield


def open_descriptor(path: str, flags: int, mode: int = 0o777) -> int:
    """Open a file that every child closes; ``close_descriptor`` closes it here."""
    with _holding_off:
        return add_descriptor(os.open(path, flags, mode))


def close_descriptor(fd: int) -> None:
    """Close a registered descriptor; its number may then mean something else."""
    with _holding_off:
        _descriptors.discard(fd)
        os.close(fd)


def add_descriptor(fd: int) -> int:
    """Have every child close this descriptor."""
    _descriptors.add(fd)
    return fd


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
    _holding_off.acquire(timeout=_FORK_WAIT_SECONDS)


def _in_parent() -> None:
    if _holding_off._is_owned():  # type: ignore[attr-defined]  # the wait may have been in vain
        _holding_off.release()


def _in_child() -> None:
    _holding_off._at_fork_reinit()  # type: ignore[attr-defined]
    for lock in _locks:
        lock._at_fork_reinit()  # type: ignore[attr-defined]  # as the standard library does with its own
    while _descriptors:
        with contextlib.suppress(OSError):
            os.close(_descriptors.pop())
    for thing in list(_things):
        with contextlib.suppress(Exception):
            thing.close()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before, after_in_parent=_in_parent, after_in_child=_in_child)
