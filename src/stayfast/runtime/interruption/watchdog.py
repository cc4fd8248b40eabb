"""The way out that always works: a thread that leaves with the interrupted code just before the deadline.

It stays armed after the run has ended by ``Interrupted``, through whatever the interpreter still joins and flushes. A
program that swallows the exception and ends is corrected on its way out: its code would claim that the work is done.
The watchdog stands down only when the program evidently caught the exception and lives on. It cannot run while C code
holds the interpreter; ``stayfast exec`` enforces the same deadline from outside.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
import threading
import weakref
from collections.abc import Callable
from types import CodeType, FrameType

from stayfast.errors import Interrupted
from stayfast.runtime.interruption.notice_board import NoticeBoard
from stayfast.runtime.interruption.signals import block_signals_in_thread

_LIVES_ON_SECONDS = 2.0
_exiting = threading.Event()
_leaving: tuple[int, int] | None = None
"""Process id and exit code of a process that was told to leave and has not been seen living on."""


class Watchdog:
    """Waits on a daemon thread from the moment of the notice."""

    def __init__(self, board: NoticeBoard, leave: Callable[[], None]) -> None:
        self._board = board
        self._leave = leave
        self._stood_down = threading.Event()
        self._caught = threading.Event()
        self._lives_on: Callable[[], None] = lambda: None
        self._program: CodeType | None = None
        board.on_notice(self._start)

    def disarm(self) -> None:
        """The work ended in good order and the process lives on."""
        self._stood_down.set()
        self._board.shortened.set()  # wakes the thread

    def stay_armed(self, interruption: Interrupted, lives_on: Callable[[], None]) -> None:
        """The run ends by ``interruption``: stay armed until the process is gone or the exception was caught.

        ``lives_on`` is called when it was caught and the process shows no sign of ending.
        """
        global _leaving
        self._lives_on = lives_on
        self._program = _outermost(sys._getframe()) if threading.current_thread() is threading.main_thread() else None
        _leaving = (os.getpid(), self._board.settings.interrupted_code)
        weakref.finalize(interruption, self._caught.set).atexit = False

    def _start(self) -> None:
        threading.Thread(target=self._wait, name="stayfast-watchdog", daemon=True).start()

    def _wait(self) -> None:
        clock = self._board.clock
        block_signals_in_thread()
        while not self._stood_down.is_set():
            left = self._board.deadline - clock.monotonic()
            if left <= 0:
                self._force_exit()
            if self._caught.is_set():
                is_exiting = _exiting.wait(min(left, _LIVES_ON_SECONDS)) or sys.is_finalizing()
                if not is_exiting and not self._has_left_its_program():
                    self._program_lives_on()
                    return
                self._caught.clear()
            self._board.shortened.clear()
            if not self._stood_down.is_set():
                clock.wait(self._board.shortened, min(left, 0.5))

    def _force_exit(self) -> None:
        try:
            self._leave()
        finally:
            os._exit(self._board.settings.interrupted_code)

    def _has_left_its_program(self) -> bool:
        """Whether the main thread runs a finalizer below no line of the program: it exits, and may hang there."""
        frame = sys._current_frames().get(threading.main_thread().ident or 0)
        return self._program is not None and frame is not None and _outermost(frame) is not self._program

    def _program_lives_on(self) -> None:
        global _leaving
        _leaving = None
        self._lives_on()


def _outermost(frame: FrameType) -> CodeType:
    """The code that a thread began with: for the main thread the program's module."""
    while frame.f_back is not None:
        frame = frame.f_back
    return frame.f_code


def _shutdown_begins() -> None:
    """The interpreter is on its way out, and has not yet waited for threads that may never end.

    What is registered here and now runs before every other exit handler.
    """
    _exiting.set()
    atexit.register(_exit_with_interrupted_code)


def _exit_with_interrupted_code() -> None:
    """Run all other exit handlers, then leave with the interrupted code, whatever the program made of the exception."""
    atexit.unregister(_exit_with_interrupted_code)
    if _leaving is None or _leaving[0] != os.getpid():
        return
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):
            stream.flush()
    os._exit(_leaving[1])


_register = getattr(threading, "_register_atexit", None)
if _register is not None:
    _register(_shutdown_begins)
else:
    atexit.register(_shutdown_begins)
