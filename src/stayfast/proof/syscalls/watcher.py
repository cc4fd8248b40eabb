"""What the program does to its files, as it does it: the source of the worst moments and of the proof of a zombie.

Each call that opens a file for writing, renames or removes one or (where asked) writes into one is held until it was
looked at. Files are known by their family: the name with its numbers and random parts left out.
"""

from __future__ import annotations

import errno
import fcntl
import os
import select
import struct
import threading
import time
from collections import Counter
from collections.abc import Callable

from stayfast.proof.syscalls import call_target, seccomp
from stayfast.proof.syscalls.disk_limit import DiskLimit
from stayfast.proof.syscalls.events import (
    COUNTABLE,
    FileEvent,
    FilePoint,
    OpenedFiles,
    Reaction,
    file_family,
)

_STREAMS = 3  # standard input, output and error
_MOST_STREAMS = 16  # a loop may send its output into a new file each time
_NOT_ITS_WORK = ("__pycache__", ".git", ".pytest_cache", ".mypy_cache")


class _RedirectedOutput:
    """A file in the place of standard output or error: writes into it are not held, because programs print a lot."""

    def __init__(self, name: str, relative: str, point: FilePoint, size: int) -> None:
        self.name, self.relative, self.point = name, relative, point
        self.size = size
        self.grown = 0


class SyscallWatcher(OpenedFiles):
    """Answers the held calls of one attempt on a thread of its own."""

    means = "system calls"

    def __init__(
        self,
        listener: int,
        root: str,
        *,
        react: Callable[[FileEvent], Reaction],
        allows: Callable[[str], bool],
        before_write: Callable[[str], None],
        disk: DiskLimit | None = None,
    ) -> None:
        """``allows`` says whether a path may be written to; ``before_write`` is told of each that will be."""
        super().__init__()
        self._disk = disk
        self._listener = listener
        self._root = os.path.realpath(root)
        self._react = react
        self._allows = allows
        self._before_write = before_write
        self._begun = time.monotonic()
        self._streams: dict[str, _RedirectedOutput] = {}
        self._empty: set[str] = set()  # opened and emptied, nothing written yet
        self._emptied: set[str] = set()
        self._held: list[tuple[int, FileEvent, bool]] = []
        self._then: Callable[[], None] | None = None
        self._lock = threading.Lock()
        self._stop_read, self._stop_write = os.pipe()
        self.counts: Counter[tuple[str, FilePoint]] = Counter()
        self.first_event_seconds: float | None = None
        self.last_event: FileEvent | None = None
        self.last_event_at = 0.0
        self.replaced: dict[str, float] = {}
        """Paths that were emptied or renamed onto, with the monotonic instant of the last time."""
        self.overwrote: dict[str, float] = {}
        """The same, where there was something to lose: who empties an empty file, such as a lock, takes nothing."""
        self.renewals = 0
        """How often a path was replaced that had been replaced before: what keeps its state does so again and again."""
        self.refused: list[str] = []
        self._thread = threading.Thread(target=self._work, name="stayfast-watch", daemon=True)
        self._thread.start()

    def grown(self) -> list[FileEvent]:
        """From the second time on: only then is it half written rather than written once."""
        found = []
        for path, stream in list(self._streams.items()):
            try:
                size = os.stat(path).st_size
            except OSError:
                continue
            if size > stream.size:
                stream.size = size
                stream.grown += 1
                if stream.grown > 1:
                    key = stream.name, stream.point
                    self.counts[key] += 1
                    at_seconds = time.monotonic() - self._begun
                    found.append(FileEvent(stream.point, stream.name, stream.relative, at_seconds, self.counts[key]))
        return found

    def release(self) -> None:
        """Let the held calls go on."""
        with self._lock:
            held, self._held = self._held, []
        for identity, event, replaces in held:
            self.last_event_at = time.monotonic()
            if replaces:
                self._note_replaced(event)
            self._answer(identity)

    def close(self) -> None:
        """No more answers; the program has ended."""
        os.write(self._stop_write, b"x")
        self._thread.join()
        os.close(self._stop_read)
        os.close(self._stop_write)

    def _work(self) -> None:
        poll = select.poll()
        poll.register(self._listener, select.POLLIN)
        poll.register(self._stop_read, select.POLLIN)
        while True:
            ready = dict(poll.poll())
            if self._stop_read in ready or not ready.get(self._listener, 0) & select.POLLIN:
                return
            buffer = seccomp.receive_buffer()
            try:
                fcntl.ioctl(self._listener, seccomp.RECEIVE, buffer)
            except OSError as error:
                if error.errno in (errno.EINTR, errno.ENOENT, errno.EAGAIN):
                    continue  # the caller was killed or took a signal meanwhile; it will ask again if it lives
                return
            self._handle(seccomp.parse(buffer))

    def _handle(self, call: seccomp.Call) -> None:
        try:
            verdict = self._look(call)
        except (OSError, ValueError, struct.error):  # it died under our eyes
            verdict = 0
        if verdict is None:
            return
        self._answer(call.id, verdict)
        if self._then is not None:
            then, self._then = self._then, None
            then()

    def _answer(self, identity: int, error: int = 0) -> None:
        try:
            fcntl.ioctl(self._listener, seccomp.SEND, seccomp.pack_response(identity, error=error))
        except OSError:
            pass  # the caller is gone

    def _look(self, call: seccomp.Call) -> int | None:
        """The error number to answer with, 0 to go on, None to hold."""
        path, truncates = call_target.target(call)
        if path is None or not path.startswith("/"):
            return 0  # a pipe, a socket, a name that cannot be read: not a file of its own
        descriptor = seccomp.descriptor_of(call)
        is_write, removes = descriptor is not None, call.name.startswith("unlink")
        real = path if is_write else call_target.resolved_path(call, path)
        if call.name in seccomp.CHANGED_AT:
            if self._relative(real) is not None:
                self._before_write(real)
            return 0
        if not is_write and (refused := self._refused(call, real)):
            self.refused.append(refused)
            return errno.EROFS
        relative = self._relative(real)
        if relative is None:
            return 0
        if not is_write and not removes:
            self._before_write(real)
        elif is_write and self._disk is not None and self._disk.is_full_for(call):
            return errno.ENOSPC
        if descriptor is not None and descriptor < _STREAMS:
            return 0  # what a shell sends there was looked at when it put a file in that place
        name = file_family(relative)
        if call.name.startswith("dup") and call.arguments[1] < _STREAMS:
            self._note_stream(real, name, relative)
        point = self._point(call, real, truncates)
        now = time.monotonic()
        if point is None:
            if call.name.startswith("open"):  # a log, a database, a mark that was there already
                self._opened.append((now - self._begun, (name, FilePoint.OPEN)))
            return 0
        self.counts[name, point] += 1
        event = FileEvent(point, name, relative, now - self._begun, self.counts[name, point])
        self.last_event = event
        self.last_event_at = now
        if self.first_event_seconds is None:
            self.first_event_seconds = event.at_seconds
        if point in COUNTABLE:
            self._opened.append((event.at_seconds, (name, point)))
        reaction = self._react(event)
        self._then = reaction.then
        if reaction.hold:
            with self._lock:
                self._held.append((call.id, event, truncates or point is FilePoint.RENAME))
            return None
        if truncates or point is FilePoint.RENAME:
            self.renewals += relative in self.replaced
            self._note_replaced(event)
        return 0

    def _refused(self, call: seccomp.Call, real: str) -> str:
        """What of a call reaches outside: a file that would be changed, removed or taken away from its place."""
        if call.name.startswith("unlink") and not os.path.lexists(real):
            return ""
        return next((path for path in (real, *call_target.source(call)) if not self._allows(path)), "")

    def _note_stream(self, path: str, name: str, relative: str) -> None:
        point = FilePoint.LATER_WRITE if path in self._emptied else FilePoint.WRITE
        self._streams.pop(path, None)
        self._streams[path] = _RedirectedOutput(name, relative, point, os.stat(path).st_size)
        if len(self._streams) > _MOST_STREAMS:
            del self._streams[next(iter(self._streams))]

    def _note_replaced(self, event: FileEvent) -> None:
        """Before the call is let go: what it takes away is still there."""
        now = time.monotonic()
        if event.point is FilePoint.RENAME or has_content(os.path.join(self._root, event.path)):
            self.overwrote[event.path] = now
        self.replaced[event.path] = now

    def _relative(self, path: str) -> str | None:
        if not path.startswith(self._root + "/"):
            return None
        relative = path[len(self._root) + 1 :]
        return None if any(part in _NOT_ITS_WORK for part in relative.split("/")) else relative

    def _point(self, call: seccomp.Call, path: str, truncates: bool) -> FilePoint | None:
        if call.name.startswith(("rename", "link", "symlink")):
            return FilePoint.RENAME
        if call.name.startswith("unlink"):
            return FilePoint.REMOVE if os.path.lexists(path) else None
        if seccomp.descriptor_of(call) is None:
            if truncates or not os.path.lexists(path):
                self._empty.add(path)
                self._emptied.add(path)
                return FilePoint.OPEN
            self._emptied.discard(path)
            return None  # opened to append or to change in place: what matters is the write
        if call.name.startswith("dup"):
            return FilePoint.FIRST_WRITE if path in self._empty else None  # a shell about to redirect
        if path in self._empty:
            self._empty.discard(path)
            return FilePoint.FIRST_WRITE
        return FilePoint.LATER_WRITE if path in self._emptied else FilePoint.WRITE


def has_content(path: str) -> bool:
    """Whether there is anything in a file that could be lost."""
    try:
        return os.stat(path).st_size > 0
    except OSError:
        return False
