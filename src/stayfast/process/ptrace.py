"""Every signal that is delivered to a tree of processes, at the moment it is, by ptrace.

/proc shows what a process would do about a signal, not that one came. A tracer is stopped for at each delivery, so
nothing is missed and nothing guessed. Where tracing is refused, ``attach`` says so and the caller has to do with looks.
"""

from __future__ import annotations

import ctypes
import os
import signal
import threading
import time
from collections.abc import Callable

from stayfast.libc import load_libc
from stayfast.process.proc import status_number, threads_of
from stayfast.process.tree import descendants_of

_CONT, _SET_OPTIONS, _GET_EVENT, _SEIZE, _INTERRUPT, _LISTEN = 7, 0x4200, 0x4201, 0x4206, 0x4207, 0x4208
_END = 0x40  # stop at the exit, while everything below is still there
_OPTIONS = 0x2 | 0x4 | 0x8 | _END  # fork, vfork, clone
_FORK, _VFORK, _CLONE, _EXIT, _STOP = 1, 2, 3, 6, 128
_WALL = 0x40000000
_STOP_SECONDS, _PAUSE_SECONDS = 2.0, 0.0005
_STOPS = (signal.SIGSTOP, signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU)

OnSignal = Callable[[int, int], None]
"""Process and signal."""


class SignalTracer:
    """Follows all threads of all processes below one; used by one thread alone, as the kernel demands."""

    def __init__(self, on_signal: OnSignal, on_birth: Callable[[int, int], None], on_end: OnSignal) -> None:
        self._on_signal = on_signal
        self._on_birth = on_birth
        self._on_end = on_end
        self._threads: dict[int, int] = {}
        self._awaited = 0  # a process of which only the end is followed so far
        self._follows_all = False
        self._libc = load_libc()
        self._libc.ptrace.restype = ctypes.c_long

    def _ptrace(self, request: int, thread: int, address: int = 0, data: object = 0) -> int:
        return int(self._libc.ptrace(ctypes.c_long(request), ctypes.c_int(thread), ctypes.c_void_p(address), data))

    def await_end(self, first: int) -> None:
        """Stop for the end of one process alone, from its first instruction on; ``attach`` follows the rest later."""
        if self._ptrace(_SEIZE, first, 0, ctypes.c_void_p(_END)) == 0:
            self._threads[first] = self._awaited = first

    def attach(self, first: int) -> str | None:
        """Follow a process and everything below it; why not, where the kernel refuses."""
        self._follows_all = True
        if self._awaited in self._threads:
            self._ptrace(_INTERRUPT, first)  # more is followed of one that has stopped; it goes on at once
            until = time.monotonic() + _STOP_SECONDS
            while self._awaited in self._threads and time.monotonic() < until:
                self.step()
                time.sleep(_PAUSE_SECONDS)
        while True:
            fresh = [
                (thread, pid)
                for pid in (first, *descendants_of(first))
                for thread in threads_of(pid)
                if thread not in self._threads
            ]
            if not fresh:
                return None
            for thread, pid in fresh:
                if self._ptrace(_SEIZE, thread, 0, ctypes.c_void_p(_OPTIONS)) == 0:
                    self._threads[thread] = pid
                elif os.path.exists(f"/proc/{thread}") and thread == first:
                    return os.strerror(ctypes.get_errno())
                else:
                    self._threads.setdefault(thread, 0)  # gone already, or not ours to follow

    def step(self) -> None:
        """Take in what happened, and let everybody go on."""
        self._adopt()
        for thread, pid in list(self._threads.items()):
            while pid:
                try:
                    found, status = os.waitpid(thread, os.WNOHANG | _WALL)
                except ChildProcessError:
                    self._threads.pop(thread, None)
                    break
                if not found:
                    break
                if not os.WIFSTOPPED(status):
                    self._threads.pop(thread, None)
                    break
                self._stopped(thread, pid, os.WSTOPSIG(status), status >> 16)

    def _adopt(self) -> None:
        """A process that was born as its parent was killed is traced, but no event has named it; it waits for us."""
        if not self._follows_all:
            return
        try:
            found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WSTOPPED | os.WNOHANG | os.WNOWAIT | _WALL)
        except ChildProcessError:
            return
        if (
            found is not None
            and found.si_pid not in self._threads
            and status_number(found.si_pid, "TracerPid") == threading.get_native_id()
        ):
            self._threads[found.si_pid] = _group(found.si_pid)

    def _stopped(self, thread: int, pid: int, number: int, event: int) -> None:
        request, give = _CONT, 0
        if thread == self._awaited and self._follows_all:
            self._ptrace(_SET_OPTIONS, thread, 0, ctypes.c_void_p(_OPTIONS))
            self._awaited = 0
        if event in (_FORK, _VFORK, _CLONE):
            child = self._event(thread)
            if child:
                owner = pid if event == _CLONE and _group(child) == pid else child
                self._threads[child] = owner
                if owner == child:
                    self._on_birth(pid, child)
        elif event == _EXIT:
            if thread == pid:
                self._on_end(pid, self._event(thread))
        elif event == _STOP:
            request = _LISTEN if number in _STOPS else _CONT
        elif not event:
            give = number
            self._on_signal(pid, number)
        self._ptrace(request, thread, 0, ctypes.c_void_p(give))

    def _event(self, thread: int) -> int:
        message = ctypes.c_ulong(0)
        self._ptrace(_GET_EVENT, thread, 0, ctypes.byref(message))
        return int(message.value)


def _group(thread: int) -> int:
    """The process that a thread belongs to."""
    return status_number(thread, "Tgid") or thread
