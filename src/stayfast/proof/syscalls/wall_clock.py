"""The time of day that a program sees, moved without touching the machine's own clock.

Linux has no namespace for it. But the calls that ask for it can be held and answered by us, once the program asks the
kernel at all: as a rule it reads the time from a page that the kernel gives every program (the vDSO). So each program
is stopped at its very start, and the address of that page is taken out of what it is told about itself; every C library
and runtime then falls back to the system call.
"""

from __future__ import annotations

import ctypes
import os
import signal
import struct
import time

from stayfast.proof.syscalls.memory import read_memory, write_memory
from stayfast.proof.syscalls.seccomp import Call

_CONT, _DETACH, _SEIZE, _LISTEN = 7, 17, 0x4206, 0x4208
_TRACE_EXEC, _EVENT_EXEC, _EVENT_STOP = 0x10, 4, 128
_WALL = 0x40000000
_STOPS = (signal.SIGSTOP, signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU)
_AUX_END, _AUX_IGNORE, _AUX_VDSO = 0, 1, 33
_STACK_BYTES = 1 << 20
_START_STACK = 25  # the 28th word of /proc/PID/stat; the first two come before the last bracket, and we count from 0

CLOCKS = ("clock_gettime", "gettimeofday", "time")
EXECS = ("execve", "execveat")


class WallClock:
    """One attempt's clock: off by so much until it is set right; used by the watcher's thread."""

    def __init__(self, off_seconds: float, right_after_seconds: float) -> None:
        self._off_ns = int(off_seconds * 1e9)
        self.off_seconds = off_seconds
        self._right_at = time.monotonic() + right_after_seconds
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._libc.ptrace.restype = ctypes.c_long
        self._starting: set[int] = set()
        self.refused = ""
        """Why the programs could not be made to ask."""
        self.asked = 0
        """How often the time of day was asked for."""

    @property
    def is_right(self) -> bool:
        """Whether it has been set by now."""
        return time.monotonic() >= self._right_at

    def answer(self, call: Call) -> int:
        """Give the time to a program that asks for it; returns what the call returns."""
        now = time.time_ns() + (0 if self.is_right else self._off_ns)
        seconds, rest = divmod(now, 1_000_000_000)
        self.asked += 1
        if call.name == "time":
            if call.arguments[0]:
                write_memory(call.pid, call.arguments[0], struct.pack("=q", seconds))
            return seconds
        address = call.arguments[1 if call.name == "clock_gettime" else 0]
        if address:
            part = rest if call.name == "clock_gettime" else rest // 1000
            write_memory(call.pid, address, struct.pack("=qq", seconds, part))
        return 0

    # -- programs that start

    @property
    def is_waiting(self) -> bool:
        """Whether a program is about to start, so that ``step`` has to be called soon."""
        return bool(self._starting)

    def on_exec(self, call: Call) -> None:
        """A process is about to become another program."""
        if call.pid in self._starting:
            return  # its first try has failed: it looks for the program along PATH
        if self._ptrace(_SEIZE, call.pid, _TRACE_EXEC) == 0:
            self._starting.add(call.pid)
        else:
            self.refused = os.strerror(ctypes.get_errno())

    def step(self) -> None:
        """See to those that have started."""
        for pid in list(self._starting):
            try:
                found, status = os.waitpid(pid, os.WNOHANG | _WALL)
            except ChildProcessError:
                found, status = pid, 0
            if found and not os.WIFSTOPPED(status):
                self._starting.discard(pid)
            elif found:
                self._stopped(pid, os.WSTOPSIG(status), status >> 16)

    def _stopped(self, pid: int, number: int, event: int) -> None:
        if event == _EVENT_EXEC:
            hide_vdso(pid)
            self._starting.discard(pid)
            self._ptrace(_DETACH, pid, 0)
        elif event == _EVENT_STOP:
            self._ptrace(_LISTEN if number in _STOPS else _CONT, pid, 0)
        else:
            self._ptrace(_CONT, pid, number)

    def _ptrace(self, request: int, pid: int, data: int) -> int:
        return int(
            self._libc.ptrace(ctypes.c_long(request), ctypes.c_int(pid), ctypes.c_void_p(0), ctypes.c_void_p(data))
        )


def hide_vdso(pid: int) -> None:
    """At the bottom of its stack: count, arguments, 0, environment, 0, and then pairs that the kernel tells it."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            bottom = int(file.read().rpartition(b")")[2].split()[_START_STACK])
        stack = read_memory(pid, bottom, _STACK_BYTES)
        place = _place_of_vdso(memoryview(stack[: len(stack) // 8 * 8]).cast("Q"))
        if place is not None:
            write_memory(pid, bottom + 8 * place, struct.pack("=Q", _AUX_IGNORE))
    except (OSError, IndexError):
        return  # it was killed meanwhile: the memory of a dead one is empty


def _place_of_vdso(words: memoryview[int]) -> int | None:
    place = 2 + words[0]
    while words[place]:
        place += 1
    place += 1
    while words[place] != _AUX_END:
        if words[place] == _AUX_VDSO:
            return place
        place += 2
    return None


def shift_file_times(root: str, since_ns: int, off_seconds: float) -> None:
    """Files get their times from the kernel, which knows nothing of this clock: give those changed since then its."""
    off_ns, now = int(off_seconds * 1e9), time.time_ns()
    for folder, _, files in os.walk(root):
        for name in files:
            path = os.path.join(folder, name)
            try:
                found = os.lstat(path)
                if since_ns <= found.st_mtime_ns <= now:
                    os.utime(path, ns=(found.st_atime_ns, found.st_mtime_ns + off_ns), follow_symlinks=False)
            except OSError:
                continue
