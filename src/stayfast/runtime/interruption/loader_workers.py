"""Workers of a torch ``DataLoader`` obey the process that made them, and no signal to the whole process group.

Ctrl-C, ``timeout``, Slurm, systemd and torchrun signal every process of the group. A worker that ends then takes
batches with it which the program needs to reach the end of its step, and torch raises in the middle of the last save.
While the shield is up, each worker starts with the signals blocked, and a thread in it waits for them. The worker exits
when its owner sends one, as torch's own clean-up does, or when the owner has ended.

Processes are recognized by the function that torch has them run, at the moment they start. So the shield needs no
import of torch, works for every start method, and leaves other processes alone. Workers that were started before keep
the behavior they had.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Callable
from typing import Any

_LOOPS = {
    ("torch.utils.data._utils.worker", "_worker_loop"),
    ("torchdata.stateful_dataloader.worker", "_worker_loop"),
}
_OWN_GROUP = "stayfast.runtime.interruption.own_process_group"
_LOOK_FOR_OWNER_SECONDS = 5.0  # as often as torch's worker does where it waits for work
_ENDS_IN_SECONDS = 5.0


class WorkerShield:
    """Shields the loader workers that this process starts from now on, until ``remove`` is called."""

    def __init__(self, numbers: list[int]) -> None:
        import multiprocessing.process as processes  # on first use: it costs a few milliseconds

        self._numbers = numbers
        self._owner = os.getpid()
        self._class: Any = vars(processes)["BaseProcess"]
        self._previous: Callable[[Any], None] = self._class.start
        self._up = True

        def start(process: Any) -> None:
            self._start(process)

        self._start_method = start
        self._class.start = start

    def remove(self) -> None:
        """Start workers as before; running ones stay shielded."""
        self._up = False
        if self._class.start is self._start_method:  # otherwise another wrapper calls this one: it stays, and is idle
            self._class.start = self._previous

    def _start(self, process: Any) -> None:
        loop = getattr(process, "_target", None)
        name = (getattr(loop, "__module__", None), getattr(loop, "__name__", None))
        if not self._up or name not in _LOOPS or os.getpid() != self._owner:
            self._previous(process)
            return
        process._target, process._args = run_shielded, (loop, self._owner, self._numbers, *process._args)
        if getattr(process, "_start_method", None) == "forkserver":
            _start_forkserver()
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, self._numbers)  # the worker inherits it: no moment without it
        try:
            self._previous(process)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        _end_surely(process._popen)


def _end_surely(popen: Any) -> None:
    """Kill a terminated worker that does not end: C code that holds its interpreter also holds up the thread in it."""
    terminate = popen.terminate

    def terminate_or_kill() -> None:
        terminate()
        if popen.wait(_ENDS_IN_SECONDS) is None:
            with contextlib.suppress(RuntimeError):  # torch's SIGCHLD handler reports the kill, by raising
                popen.kill()
                popen.wait(_ENDS_IN_SECONDS)

    popen.terminate = terminate_or_kill


def run_shielded(loop: Callable[..., None], owner: int, numbers: list[int], *arguments: Any) -> None:
    """What a worker process runs: torch's loop, beside a thread that takes the signals."""
    signal.pthread_sigmask(signal.SIG_BLOCK, numbers)  # the fork server's children do not inherit it
    _unblock_in_programs(numbers)
    parent = os.getppid()
    threading.Thread(target=_obey, args=(owner, parent, numbers), name="stayfast-signals", daemon=True).start()
    loop(*arguments)


def _obey(owner: int, parent: int, numbers: list[int]) -> None:
    while True:
        received = signal.sigtimedwait(numbers, _LOOK_FOR_OWNER_SECONDS)
        if (received is not None and received.si_pid == owner) or _has_ended(owner, parent):
            os._exit(0)  # torch reports any other code as the death of a worker


def _has_ended(owner: int, parent: int) -> bool:
    if os.getppid() != parent:
        return True
    try:
        os.kill(owner, 0)  # the parent of a fork server's child is the fork server
    except ProcessLookupError:
        return True
    except PermissionError:
        pass
    return False


def _unblock_in_programs(numbers: list[int]) -> None:
    """A program that a worker starts (a video decoder) must not inherit the mask: it could not be terminated."""
    import subprocess

    popen: Any = subprocess.Popen
    execute = popen._execute_child

    def execute_unblocked(*arguments: Any, **options: Any) -> None:
        mask = signal.pthread_sigmask(signal.SIG_UNBLOCK, numbers)
        try:
            execute(*arguments, **options)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)

    popen._execute_child = execute_unblocked


def _start_forkserver() -> None:
    """Start the fork server, unless it runs, in a process group of its own: all its children end when it does."""
    from multiprocessing import forkserver

    server: Any = vars(forkserver)["_forkserver"]
    preload = server._preload_modules
    server._preload_modules = [*preload, _OWN_GROUP]
    try:
        server.ensure_running()
    finally:
        server._preload_modules = preload
