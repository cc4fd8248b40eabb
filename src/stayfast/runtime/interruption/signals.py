"""Signals as notices: stamped by the kernel the moment they arrive, whatever the interpreter is doing.

CPython's own C handler writes the signal's number to a wake-up socket, the kernel stamps that datagram, and a thread
reads it; so even when C code holds the interpreter for seconds, the budget counts from the true arrival. The
Python-level handler only writes one more byte to the same socket: asyncio takes the wake-up descriptor for itself, and
a profiler's timer can fill the socket, and neither may lose the notice. The sender's process id travels with the
datagram: a forked child (a data-loader worker) that is signalled shares the socket and must not look like us.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import socket
import struct
import threading
import time
import traceback
import weakref
from types import CodeType, FrameType
from typing import Any

from stayfast.model.notice import Cause, Notice
from stayfast.runtime.interruption.loader_workers import WorkerShield
from stayfast.runtime.interruption.notice_board import NoticeBoard

log = logging.getLogger("stayfast")

_SO_TIMESTAMPNS = 35  # Linux; the stdlib does not name it
_SCM_CREDENTIALS = 2
_SECOND_INTERRUPT_SECONDS = 1.0
_DEFAULTS = (signal.SIG_DFL, signal.default_int_handler)
_LATE = 0x80  # marks the byte that the Python-level handler wrote: late, but certain
_HOLD_TRIES = 100  # every try replaces at least one handler unless one of them raises
_READER_TRIES, _READER_PAUSE_SECONDS = 200, 0.001
_living: weakref.WeakSet[SignalSource] = weakref.WeakSet()


class SignalSource:
    """Turns SIGTERM, SIGINT and one configurable signal into notices."""

    def __init__(self, board: NoticeBoard) -> None:
        self._board = board
        self._previous: dict[int, Any] = {}
        self._previous_fd = -1
        self._thread: threading.Thread | None = None
        self._sockets: tuple[socket.socket, socket.socket] | None = None
        self._first_interrupt: float | None = None
        self._number: int = signal.SIGTERM  # the signal of the notice
        self._missed: int | None = None  # what the Python-level handler saw, in case its byte found no room
        self._owner = os.getpid()
        self._posted = False  # a notice, and all who listen know of it
        self._held: dict[int, Any] = {}  # handlers of other code that are held off
        self._came: set[int] = set()  # signals that arrived for them meanwhile
        self._shield: WorkerShield | None = None
        self.installed = False

    def start(self) -> None:
        """Install the handlers; off the main thread only a warning is possible, and the other sources still work."""
        if threading.current_thread() is not threading.main_thread():
            log.warning(
                "signals cannot be watched off the main thread: SIGTERM will not become a notice; "
                "open the run on the main thread, or start the program with `stayfast exec`",
                extra={"action": "signals_unwatched"},
            )
            return
        receiver, sender = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        sender.setblocking(False)
        receiver.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
        receiver.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        self._sockets = (receiver, sender)
        self._thread = threading.Thread(target=self._read, args=(receiver,), name="stayfast-signals", daemon=True)
        self._thread.start()
        self._previous_fd = signal.set_wakeup_fd(sender.fileno(), warn_on_full_buffer=False)
        for number in self._watched():
            self._previous[number] = signal.signal(number, self._record)
            signal.siginterrupt(number, False)  # system calls of the program go on as if nothing had happened
        self._shield = WorkerShield(self._watched())
        self.installed = True
        _living.add(self)

    def stop(self, *, leaving: bool = False) -> None:
        """Put back what was there before.

        While ``leaving``, a default handler is not put back but the signal ignored: launchers forward twice, and the
        second signal would kill the process on its last metres and hide its exit code. ``forgive`` puts it back.
        """
        if not self.installed or os.getpid() != self._owner:
            return
        if threading.current_thread() is not threading.main_thread():
            log.warning("only the main thread can put the signal handlers back", extra={"action": "signals_kept"})
            return
        self._restore_handlers(leaving)
        if self._sockets is not None:
            receiver, sender = self._sockets
            current = signal.set_wakeup_fd(self._previous_fd)
            if current != sender.fileno():
                signal.set_wakeup_fd(current)  # somebody (asyncio) has taken it over since
            with contextlib.suppress(OSError):
                sender.send(b"\0")  # wakes the reader, which then sees that it is over
            if self._thread is not None:
                self._thread.join(1.0)
            receiver.close()
            sender.close()

    def call_previous(self) -> None:
        """``chain=True``: what the program had installed itself runs too, after the drain.

        Whatever it raises is told and dropped: the exit code is decided already.
        """
        handler = self._previous.get(self._number)
        if callable(handler) and handler is not signal.default_int_handler:
            try:
                handler(self._number, None)
            except BaseException as error:  # noqa: BLE001 - sys.exit() in a handler must not change the exit code
                log.warning("the chained signal handler raised %r", error, extra={"action": "chained_handler_failed"})

    def hold_others(self) -> None:
        """Hold off the Python signal handlers of other code, so that none of them raises inside the last save.

        torch's SIGCHLD handler, for one, raises on the main thread at any bytecode when a loader's worker has died. An
        exception that arrives while the handlers are being replaced is logged and dropped.
        """
        if threading.current_thread() is not threading.main_thread() or os.getpid() != self._owner:
            return
        raised: list[BaseException] = []
        for _ in range(_HOLD_TRIES):
            try:
                self._replace_others()
                break
            except BaseException as error:  # noqa: BLE001 - raised by one of the handlers that are replaced here
                raised.append(error)
        for late in raised:
            log.warning("a signal handler of the program raised %r", late, extra={"action": "handler_raised"})

    def _replace_others(self) -> None:
        for number in signal.valid_signals():
            handler = signal.getsignal(number)
            if callable(handler) and handler not in (self._record, self._note_held):
                self._held[number] = handler
                signal.signal(number, self._note_held)

    def _note_held(self, number: int, _frame: FrameType | None) -> None:
        self._came.add(number)

    def raised_by_held(self, error: BaseException) -> bool:
        """Whether the error came out of one of the handlers that are held off."""
        codes = [_code_of(handler) for handler in self._held.values()]
        return any(frame.f_code in codes for frame, _line in traceback.walk_tb(error.__traceback__))

    def release_others(self, *, repeat: bool) -> None:
        """Put the handlers of other code back; with ``repeat`` they get the signals that came meanwhile."""
        if not self._held or threading.current_thread() is not threading.main_thread():
            return
        held, self._held = self._held, {}
        for number, handler in held.items():
            if signal.getsignal(number) == self._note_held:
                signal.signal(number, handler)
        came, self._came = self._came, set()
        if repeat:
            for number in came:
                signal.raise_signal(number)

    def restore_defaults(self) -> None:
        """The program lives on after all: its default handlers are put back, by the main thread as soon as it can."""
        import ctypes

        kind = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)
        self._pending = kind(self._put_back_ignored)
        ctypes.pythonapi.Py_AddPendingCall(self._pending, None)

    def _put_back_ignored(self, _argument: object) -> int:
        for number, handler in self._previous.items():
            if handler in _DEFAULTS and signal.getsignal(number) == signal.SIG_IGN:
                signal.signal(number, handler)
        self.release_others(repeat=False)
        return 0

    def forget_in_child(self) -> None:
        """A forked child is not this run: it gets the handlers that were there before."""
        self.release_others(repeat=False)
        if not self.installed:
            return
        if threading.current_thread() is threading.main_thread():
            signal.set_wakeup_fd(-1)
            self._restore_handlers()
            for end in self._sockets or ():
                end.close()
        self.installed = False

    def _restore_handlers(self, leaving: bool = False) -> None:
        self.installed = False
        if self._shield is not None:
            self._shield.remove()
        for number, handler in self._previous.items():
            if handler is not None and signal.getsignal(number) == self._record:
                signal.signal(number, signal.SIG_IGN if leaving and handler in _DEFAULTS else handler)

    def _record(self, number: int, _frame: FrameType | None) -> None:
        """The whole handler: one byte, and a moment for the reader; anything more would not be safe here.

        Without that moment a loop with short steps would begin more of them before it sees the notice.
        """
        if self._sockets is not None and os.getpid() == self._owner:
            self._missed = number
            try:
                self._sockets[1].send(bytes((_LATE | number,)))
            except OSError:
                pass  # full: then the reader has plenty to wake up for, and looks at what was missed
            for _ in range(_READER_TRIES):  # bounded: the reader may need a lock that this thread holds
                if self._posted:
                    break
                time.sleep(_READER_PAUSE_SECONDS)

    def _watched(self) -> list[int]:
        extra = self._board.settings.extra_signal
        return [signal.SIGTERM, signal.SIGINT] + ([extra] if extra is not None else [])

    def _read(self, receiver: socket.socket) -> None:
        room = socket.CMSG_SPACE(16) + socket.CMSG_SPACE(12)
        block_signals_in_thread()
        while True:
            try:
                data, ancillary, _, _ = receiver.recvmsg(1, room)
            except OSError:
                return
            if not data or data == b"\0":
                return
            stamp, pid = _unpack(ancillary)
            if pid is not None and pid != os.getpid():
                continue
            if not data[0] & _LATE:
                self._arrived(data[0], stamp)
            if self._missed is not None and self._board.notice is None:
                self._arrived(self._missed, stamp)

    def _arrived(self, number: int, stamp: float | None) -> None:
        now = self._board.clock.monotonic()
        late = 0.0 if stamp is None else max(0.0, time.time() - stamp)
        received = now - late
        if number == signal.SIGINT:
            if self._first_interrupt is None:
                self._first_interrupt = received
            elif received - self._first_interrupt > _SECOND_INTERRUPT_SECONDS:
                self._board.expire_now()
                return
            cause = Cause.CANCELLATION
        elif number in (signal.SIGTERM, self._board.settings.extra_signal):
            cause = Cause.UNKNOWN
        else:
            self._forward_to_previous(number)  # a signal the program itself watches; its handler runs as always
            return
        if self._board.notice is None:
            self._number = number
        name = signal.Signals(number).name
        self._board.post(Notice(cause, received, float("inf"), name))
        self._posted = True

    def _forward_to_previous(self, number: int) -> None:
        """Whoever had the wake-up descriptor before us (an asyncio loop) still gets its own signals."""
        if self._previous_fd >= 0:
            with contextlib.suppress(OSError):
                os.write(self._previous_fd, bytes((number,)))


def block_signals_in_thread() -> None:
    """Called on a thread of ours: signals go to the program's own threads, so that these can hold them back."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT})


def _code_of(handler: Any) -> CodeType | None:
    function = getattr(handler, "func", handler)  # functools.partial
    return getattr(function, "__code__", getattr(type(function).__call__, "__code__", None))


def _unpack(ancillary: list[tuple[int, int, bytes]]) -> tuple[float | None, int | None]:
    stamp = pid = None
    for level, kind, data in ancillary:
        if level != socket.SOL_SOCKET:
            continue
        if kind == _SO_TIMESTAMPNS and len(data) >= 16:
            seconds, nanoseconds = struct.unpack("qq", data[:16])
            stamp = seconds + nanoseconds / 1e9
        elif kind == _SCM_CREDENTIALS and len(data) >= 4:
            pid = struct.unpack("i", data[:4])[0]
    return stamp, pid


def _forget_all() -> None:
    for source in list(_living):
        source.forget_in_child()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_all)
