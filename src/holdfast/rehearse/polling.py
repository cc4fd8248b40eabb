"""Watching by looking again and again, where system calls cannot be watched: a moment late, and blind to renames."""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from collections.abc import Callable

from holdfast.rehearse.plan import Point
from holdfast.rehearse.watching import Event, Reaction, family

_LOOK_SECONDS = 0.01
_MOST_SHARE = 0.1  # of one core, however many files there are


class Poller:
    """The same surface as the watcher of system calls."""

    def __init__(self, root: str, *, react: Callable[[Event], Reaction]) -> None:
        self._root = root
        self._react = react
        self._begun = time.monotonic()
        self._seen = self._look()
        self._stop = threading.Event()
        self.counts: Counter[tuple[str, Point]] = Counter()
        self.first_event_seconds: float | None = None
        self.last_event: Event | None = None
        self.last_event_at = 0.0
        self.replaced: dict[str, float] = {}
        self.refused: list[str] = []
        self._thread = threading.Thread(target=self._work, name="holdfast-watch", daemon=True)
        self._thread.start()

    @property
    def opens(self) -> int:
        """How many changes of files were seen."""
        return sum(list(self.counts.values()))

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
                    self._tell(path, began)
            self._seen = found
            pause = max(_LOOK_SECONDS, (time.monotonic() - began) / _MOST_SHARE)

    def _tell(self, path: str, now: float) -> None:
        name = family(path)
        self.counts[name, Point.CHANGE] += 1
        event = Event(Point.CHANGE, name, path, now - self._begun, self.counts[name, Point.CHANGE])
        self.replaced[path] = now
        self.last_event = event
        self.last_event_at = now
        if self.first_event_seconds is None:
            self.first_event_seconds = event.at_seconds
        self._react(event)

    def _look(self) -> dict[str, tuple[int, int, int]]:
        found = {}
        for folder, names, files in os.walk(self._root):
            names[:] = [name for name in names if name not in ("__pycache__", ".git")]
            for name in files:
                path = os.path.join(folder, name)
                try:
                    state = os.stat(path, follow_symlinks=False)
                except OSError:
                    continue
                found[os.path.relpath(path, self._root)] = (state.st_ino, state.st_size, state.st_mtime_ns)
        return found
