"""What runs below this process, and how to reach all of it."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator

from stayfast.libc import load_libc
from stayfast.process.proc import process_ids, process_state, read_stat

_PR_SET_CHILD_SUBREAPER = 36


def become_subreaper() -> None:
    """Orphans come to us even when we are not PID 1; where the kernel refuses, only PID 1 reaps them."""
    try:
        load_libc().prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    except (OSError, AttributeError):
        pass


def descendants() -> list[int]:
    """Everything below this process, zombies left out."""
    return descendants_of(os.getpid())


def descendants_of(pid: int) -> list[int]:
    """Everything below a process, zombies left out."""
    parents: dict[int, list[int]] = {}
    for each in process_ids():
        stat = read_stat(each)
        if stat is not None and stat.state not in "ZX":
            parents.setdefault(stat.parent, []).append(each)
    found, open_list = [], [pid]
    while open_list:
        children = parents.get(open_list.pop(), [])
        found += children
        open_list += children
    return found


def signal_tree(number: int) -> None:
    """Send a signal to everything below this process."""
    for pid in descendants():
        send_signal(pid, number)


def send_signal(pid: int, number: int) -> None:
    """Send a signal to one process; one that is gone already is fine."""
    if pid <= 0:
        raise ValueError(f"{pid} is no process: to the kernel it means a whole group")
    try:
        os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        pass


@contextlib.contextmanager
def paused_tree(seconds: float = 0.2) -> Iterator[None]:
    """Stop everything below this process for the length of the block; what was stopped before stays so.

    Processes that are born meanwhile are caught by looking again; one that cannot be stopped in time is let be.
    """
    stopped: set[int] = set()
    until = time.monotonic() + seconds
    try:
        while time.monotonic() < until:
            running = [pid for pid in descendants() if process_state(pid) not in "TtZX"]
            if not running:
                break
            for pid in running:
                if pid not in stopped:
                    send_signal(pid, signal.SIGSTOP)
                    stopped.add(pid)
            time.sleep(0.001)
        yield
    finally:
        for pid in stopped:
            send_signal(pid, signal.SIGCONT)
