"""The grace budget: how much of the window is left, what things have cost so far, and whether they still fit."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

from stayfast.runtime.interruption.notice_board import NoticeBoard

_KEPT = 256


class Durations:
    """How long each kind of thing has taken; answers with the 95th percentile of what was seen, never a constant."""

    def __init__(self) -> None:
        self._seen: dict[str, deque[float]] = {}
        self._lock = threading.Lock()
        self.listener: Callable[[str, float, dict[str, int]], None] | None = None
        """Told of every measurement that has just ended; spans are made of them, where they are asked for."""

    def add(self, kind: str, seconds: float, **about: int) -> None:
        """Remember one measurement; the newest 256 of a kind count. ``about`` is for the listener alone."""
        with self._lock:
            self._seen.setdefault(kind, deque(maxlen=_KEPT)).append(max(0.0, seconds))
        if self.listener is not None:
            self.listener(kind, max(0.0, seconds), about)

    def series(self, kind: str) -> deque[float]:
        """The kept measurements themselves, for a hot loop that cannot afford a call per step."""
        with self._lock:
            return self._seen.setdefault(kind, deque(maxlen=_KEPT))

    def p95(self, kind: str) -> float | None:
        """None when nothing was measured yet."""
        with self._lock:
            values = sorted(self._seen.get(kind, ()))
        if not values:
            return None
        return values[min(len(values) - 1, int(0.95 * len(values)))]


class GraceBudget:
    """What may still be spent before the machine goes; never negative, never beyond the deadline."""

    def __init__(self, board: NoticeBoard, durations: Durations | None = None) -> None:
        self._board = board
        self.durations = durations or Durations()

    @property
    def remaining_seconds(self) -> float:
        """Seconds until the deadline, margin already taken off; infinite while there is no notice."""
        return max(0.0, self._board.deadline - self._board.clock.monotonic())

    @property
    def spent_seconds(self) -> float:
        """Seconds since the notice arrived; zero without one."""
        notice = self._board.notice
        return 0.0 if notice is None else max(0.0, self._board.clock.monotonic() - notice.received_at)

    def fits(self, seconds: float) -> bool:
        """Whether something that takes this long would end before the deadline."""
        return seconds <= self.remaining_seconds

    def allot(self, seconds: float) -> float:
        """As much of the wish as there is."""
        return min(max(0.0, seconds), self.remaining_seconds)
