"""What runs below this process, and how to reach all of it."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator

_PR_SET_CHILD_SUBREAPER = 36
_SIGTIMEDWAIT = {"x86_64": "128", "aarch64": "137"}


def become_subreaper() -> None:
    """Orphans come to us even when we are not PID 1; where the kernel refuses, only PID 1 reaps them."""
    import ctypes

    try:
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    except (OSError, AttributeError):
        pass


def descendants() -> list[int]:
    """Everything below this process, zombies left out."""
    return descendants_of(os.getpid())


def descendants_of(pid: int) -> list[int]:
    """Everything below a process, zombies left out."""
    parents: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", "rb") as file:
                    fields = file.read().rpartition(b")")[2].split()
            except OSError:
                continue
            if fields[0] not in (b"Z", b"X"):
                parents.setdefault(int(fields[1]), []).append(int(name))
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


def process_state(pid: int) -> str:
    """The kernel's letter for what a process is doing; X when it is gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[0].decode()
    except OSError:
        return "X"


def signal_disposition(pid: int, number: int) -> str:
    """What a process does about a signal now: ``handler``, ``blocked`` (it may wait for it), ``ignored``, ``default``.

    A process that is gone says ``gone``.
    """
    masks: dict[str, int] = {}
    try:
        with open(f"/proc/{pid}/status", encoding="ascii", errors="replace") as file:
            for line in file:
                if line.startswith(("SigBlk:", "SigIgn:", "SigCgt:")):
                    masks[line[:6]] = int(line[7:], 16)
    except OSError:
        return "gone"
    bit = 1 << (number - 1)
    for name, meaning in (("SigCgt", "handler"), ("SigBlk", "blocked"), ("SigIgn", "ignored")):
        if masks.get(name, 0) & bit:
            return meaning
    return "blocked" if _is_waiting(pid) else "default"


def _is_waiting(pid: int) -> bool:
    """Whether a thread sits in sigtimedwait: for that long the kernel shows what it waits for as not blocked."""
    number = _SIGTIMEDWAIT.get(os.uname().machine)
    try:
        threads = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return False
    for thread in threads:
        try:
            with open(f"/proc/{pid}/task/{thread}/syscall", encoding="ascii") as file:
                if file.read(20).split(" ", 1)[0] == number:
                    return True
        except OSError:
            continue
    return False
