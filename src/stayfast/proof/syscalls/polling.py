"""Watching where system calls cannot be held: the kernel's notifications (inotify), else looking again and again.

A notification comes a moment after the change, and the program has gone on meanwhile; still it is soon enough to meet
many a file half written. Looks every ten milliseconds meet hardly any.
"""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from collections.abc import Callable

from stayfast.proof.syscalls.events import FileEvent, FilePoint, OpenedFiles, Reaction, file_family
from stayfast.runtime.directory_sync.inotify import CLOSED, CREATED, MODIFIED, RENAMED_INTO_PLACE, InotifyWatch

_COUNTED = (FilePoint.CHANGE, FilePoint.RENAME)  # closed after writing, or changed since the last look; and named
_POINTS = {MODIFIED: FilePoint.LATER_WRITE, CLOSED: FilePoint.CHANGE, RENAMED_INTO_PLACE: FilePoint.RENAME}
_NOT_ITS_WORK = ("__pycache__", ".git")
_LOOK_SECONDS = 0.01
_MOST_SHARE = 0.1  # of one core, however many files there are


def watch_files(root: str, react: Callable[[FileEvent], Reaction]) -> FilePoller:
    """By the best means there is."""
    watch = InotifyWatch(root, modifications=True)
    if watch.is_active:
        return InotifyPoller(root, watch, react=react)
    watch.close()
    return FilePoller(root, react=react)


class FilePoller(OpenedFiles):
    """The same surface as the watcher of system calls."""

    means = "polling"

    def __init__(self, root: str, *, react: Callable[[FileEvent], Reaction]) -> None:
        super().__init__()
        self._root = root
        self._react = react
        self._begun = time.monotonic()
        self._seen = self._look()
        self._stop = threading.Event()
        self.counts: Counter[tuple[str, FilePoint]] = Counter()
        self.first_event_seconds: float | None = None
        self.last_event: FileEvent | None = None
        self.last_event_at = 0.0
        self.replaced: dict[str, float] = {}
        self.renewals = 0
        self.refused: list[str] = []
        self._thread = threading.Thread(target=self._work, name="stayfast-watch", daemon=True)
        self._thread.start()

    @property
    def overwrote(self) -> dict[str, float]:
        """After the fact nobody knows whether there was something to lose."""
        return self.replaced

    def close(self) -> None:
        self._stop.set()
        self._thread.join()

    def _work(self) -> None:
        pause = _LOOK_SECONDS
        while not self._stop.wait(pause):
            began = time.monotonic()
            found = self._look()
            for path, state in found.items():
                if self._seen.get(path) != state:
                    self._tell(path, FilePoint.CHANGE, began)
            self._seen = found
            pause = max(_LOOK_SECONDS, (time.monotonic() - began) / _MOST_SHARE)

    def _tell(self, path: str, point: FilePoint, now: float) -> None:
        name = file_family(path)
        self.counts[name, point] += 1
        event = FileEvent(point, name, path, now - self._begun, self.counts[name, point])
        self.renewals += point is FilePoint.RENAME and path in self.replaced
        self.replaced[path] = now
        if point in _COUNTED:
            self._opened.append((event.at_seconds, (name, point)))
        self.last_event = event
        self.last_event_at = now
        if self.first_event_seconds is None:
            self.first_event_seconds = event.at_seconds
        self._react(event)

    def _look(self) -> dict[str, tuple[int, int, int]]:
        found = {}
        for folder, names, files in os.walk(self._root):
            names[:] = [name for name in names if name not in _NOT_ITS_WORK]
            for name in files:
                path = os.path.join(folder, name)
                try:
                    state = os.stat(path, follow_symlinks=False)
                except OSError:
                    continue
                found[os.path.relpath(path, self._root)] = (state.st_ino, state.st_size, state.st_mtime_ns)
        return found


class InotifyPoller(FilePoller):
    """Is told by the kernel what has just happened."""

    means = "notifications"

    def __init__(self, root: str, watch: InotifyWatch, *, react: Callable[[FileEvent], Reaction]) -> None:
        self._watch = watch
        watch.watch_folders(_below(root)[0])
        super().__init__(root, react=react)

    def close(self) -> None:
        self._stop.set()
        self._watch.wake()
        super().close()
        self._watch.close()

    def _work(self) -> None:
        while not self._stop.is_set():
            if self._watch.wait(1.0):
                for kind, path in self._watch.events():
                    self._take(kind, path)

    def _take(self, kind: str, path: str) -> None:
        now, full = time.monotonic(), os.path.join(self._root, path)
        if any(part in _NOT_ITS_WORK for part in path.split("/")):
            return
        if kind == CREATED and os.path.isdir(full):
            folders, files = _below(full)  # what came into it before we looked
            self._watch.watch_folders({path, *(f"{path}/{inner}" for inner in folders)})
            for inner in files:
                self._take(CREATED, f"{path}/{inner}")
            return
        if kind == CREATED or (kind == MODIFIED and _is_empty(full)):
            self._tell(path, FilePoint.OPEN, now)
            self._tell(path, FilePoint.FIRST_WRITE, now)
        elif kind in _POINTS:
            self._tell(path, _POINTS[kind], now)


def _is_empty(path: str) -> bool:
    try:
        return os.stat(path, follow_symlinks=False).st_size == 0
    except OSError:
        return False


def _below(root: str) -> tuple[set[str], list[str]]:
    """All folders and all files, relative."""
    folders, found = set(), []
    for folder, names, files in os.walk(root):
        names[:] = [name for name in names if name not in _NOT_ITS_WORK]
        folders |= {os.path.relpath(os.path.join(folder, name), root) for name in names}
        found += [os.path.relpath(os.path.join(folder, name), root) for name in files]
    return folders, found
