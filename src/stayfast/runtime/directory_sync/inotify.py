"""Learning that something happened in a directory: from the kernel where it tells, else by looking now and then.

Modifications are not asked for unless somebody wants them: a program that writes a gigabyte would wake us a quarter of
a million times. Creating, closing, renaming and deleting are, in the order in which they happened; what is written to a
file that stays open is found by the slow looks.
"""

from __future__ import annotations

import ctypes
import errno
import os
import select
import struct
from typing import NamedTuple

from stayfast.libc import load_libc

CREATED, CLOSED, RENAMED_INTO_PLACE, GONE, MODIFIED = "created", "closed", "placed", "gone", "modified"
"""Placed: renamed to this name, which a program does on purpose and when it is done with the content."""

_MODIFY, _MODIFY_ENDS = 0x2, 0x8  # the latter is IN_CLOSE_WRITE
_MOVED_FROM, _MOVED_TO, _CREATE, _DELETE = 0x40, 0x80, 0x100, 0x200
_ATTRIB, _OVERFLOW, _IGNORED, _IS_FOLDER = 0x4, 0x4000, 0x8000, 0x40000000
_ONLY_FOLDERS, _NO_FOLLOW = 0x01000000, 0x02000000
_WANTED = _MODIFY_ENDS | _MOVED_FROM | _MOVED_TO | _CREATE | _DELETE | _ATTRIB | _ONLY_FOLDERS | _NO_FOLLOW
_ROW = struct.Struct("iIII")
_READ_BYTES = 1 << 16


class InotifyEvent(NamedTuple):
    """One thing that happened to one name."""

    kind: str
    path: str


class InotifyWatch:
    """Kernel notifications for a directory and all folders in it; without them every wait is a plain sleep."""

    def __init__(self, root: str, *, modifications: bool = False) -> None:
        self._root = root
        self._wanted = _WANTED | (_MODIFY if modifications else 0)
        self._folders: dict[int, str] = {}
        self._known: set[str] = set()
        self._libc: ctypes.CDLL | None = None
        self._fd = -1
        self._wake = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            self._libc = load_libc()
            self._fd = self._libc.inotify_init1(os.O_CLOEXEC | os.O_NONBLOCK)
        except (OSError, AttributeError):
            pass
        if self._fd >= 0:
            self.watch_folders({""})

    @property
    def is_active(self) -> bool:
        """Whether the kernel tells; false where it has no more watches to give, or none at all."""
        return self._fd >= 0

    def watch_folders(self, folders: set[str]) -> None:
        """Watch these folders, given relative to the directory; new ones are added, gone ones forget themselves."""
        for folder in folders - self._known if self._fd >= 0 else ():
            assert self._libc is not None
            path = os.fsencode(os.path.join(self._root, folder))
            number = self._libc.inotify_add_watch(self._fd, path, self._wanted)
            if number >= 0:
                self._folders[number] = folder
                self._known.add(folder)
            elif ctypes.get_errno() not in (errno.ENOENT, errno.ENOTDIR, errno.EACCES):  # no more watches
                os.close(self._fd)
                self._fd = -1
                return

    def wait(self, seconds: float) -> bool:
        """Until something happened, ``wake`` was called, or the time is over; true when something happened."""
        watched = [self._wake[0]] + ([self._fd] if self._fd >= 0 else [])
        ready, _, _ = select.select(watched, [], [], max(0.0, seconds))
        if self._wake[0] in ready:
            os.read(self._wake[0], 4096)
        return self._fd in ready

    def wake(self) -> None:
        """End the wait of another thread."""
        try:
            os.write(self._wake[1], b"!")
        except OSError:
            pass  # full: it wakes up anyway

    def events(self) -> list[InotifyEvent]:
        """What happened since the last call, in order."""
        found: list[InotifyEvent] = []
        while self._fd >= 0:
            try:
                data = os.read(self._fd, _READ_BYTES)
            except OSError:
                break
            at = 0
            while at < len(data):
                number, mask, _, length = _ROW.unpack_from(data, at)
                name = os.fsdecode(data[at + _ROW.size : at + _ROW.size + length].rstrip(b"\0"))
                at += _ROW.size + length
                self._take(number, mask, name, found)
        return found

    def _take(self, number: int, mask: int, name: str, found: list[InotifyEvent]) -> None:
        if mask & _OVERFLOW:  # the looks find what was not told
            return
        if mask & _IGNORED:
            gone = self._folders.pop(number, None)
            if gone is not None:
                self._known.discard(gone)
            return
        folder = self._folders.get(number)
        if folder is None or not name:
            return
        path = f"{folder}/{name}" if folder else name
        if mask & _IS_FOLDER and mask & (_MOVED_FROM | _DELETE):
            self._forget(path)
        if mask & _CREATE:
            found.append(InotifyEvent(CREATED, path))
        elif mask & _MOVED_TO:
            found.append(InotifyEvent(RENAMED_INTO_PLACE, path))
        elif mask & _MODIFY_ENDS:
            found.append(InotifyEvent(CLOSED, path))
        elif mask & (_MOVED_FROM | _DELETE):
            found.append(InotifyEvent(GONE, path))
        elif mask & _MODIFY:
            found.append(InotifyEvent(MODIFIED, path))

    def _forget(self, path: str) -> None:
        """A folder that moved away keeps its watch under the old name, which would lie: look it up anew."""
        below = path + "/"
        for number, folder in list(self._folders.items()):
            if folder == path or folder.startswith(below):
                assert self._libc is not None
                self._libc.inotify_rm_watch(self._fd, number)
                self._folders.pop(number)
                self._known.discard(folder)

    def close(self) -> None:
        for fd in (*self._wake, *([self._fd] if self._fd >= 0 else [])):
            os.close(fd)
        self._fd = -1
