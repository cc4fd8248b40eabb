"""The way out that always works: a thread that leaves with the interrupted code just before the deadline.

It stays armed after the run has ended by ``Interrupted``, through whatever the interpreter still joins and flushes, and
stands down only when the program evidently caught the exception and lives on. It cannot run while C code holds the
interpreter; ``holdfast exec`` enforces the same deadline from outside.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import weakref
from collections.abc import Callable

from holdfast.errors import Interrupted
from holdfast.runtime.board import NoticeBoard

_LIVES_ON_SECONDS = 2.0
_SIG_DFL, _SIG_IGN = 0, 1
_exiting = threading.Event()


def _hook_shutdown() -> None:
    """Learn that the interpreter is on its way out, before it waits for threads that may never end."""
    register = getattr(threading, "_register_atexit", None)
    if register is not None:
        register(_exiting.set)
    else:
        import atexit

        atexit.register(_exiting.set)


_hook_shutdown()


class Watchdog:
    """Waits on a daemon thread from the moment of the notice."""

    def __init__(self, board: NoticeBoard, leave: Callable[[], None]) -> None:
        self._board = board
        self._leave = leave
        self._stood_down = threading.Event()
        self._caught = threading.Event()
        self._ignored: list[int] = []
        board.on_notice(self._start)

    def stand_down(self) -> None:
        """The work ended in good order and the process lives on."""
        self._stood_down.set()
        self._board.shortened.set()  # wakes the thread

    def stay_until_gone(self, interruption: Interrupted, previous: dict[int, object]) -> None:
        """The run ends by ``interruption``: stay armed until the process is gone or the exception was caught.

        Where the previous handler was the default one, further signals of a launcher that forwards twice would kill
        the process on its last metres and hide its exit code: below Python's back they are ignored.
        """
        self._ignored = [number for number, handler in previous.items() if handler == signal.SIG_DFL]
        for number in self._ignored:
            _set_disposition(number, _SIG_IGN)
        weakref.finalize(interruption, self._caught.set).atexit = False

    def _start(self) -> None:
        threading.Thread(target=self._wait, name="holdfast-watchdog", daemon=True).start()

    def _wait(self) -> None:
        clock = self._board.clock
        while not self._stood_down.is_set():
            left = self._board.deadline - clock.monotonic()
            if left <= 0:
                self._leave()
                os._exit(self._board.settings.interrupted_code)
            if self._caught.is_set():
                if not _exiting.wait(min(left, _LIVES_ON_SECONDS)) and not sys.is_finalizing():
                    for number in self._ignored:
                        _set_disposition(number, _SIG_DFL)
                    return
                self._caught.clear()
            self._board.shortened.clear()
            clock.wait(self._board.shortened, min(left, 0.5))


def _set_disposition(number: int, disposition: int) -> None:
    """signal(2) itself: Python's own table keeps saying what the program had installed."""
    import ctypes

    libc = ctypes.CDLL(None)
    libc.signal.restype = ctypes.c_void_p
    libc.signal.argtypes = (ctypes.c_int, ctypes.c_void_p)
    libc.signal(number, disposition)
