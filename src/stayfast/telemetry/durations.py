"""Measured durations by kind, and their 95th percentile: what an estimate rests on."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

_KEPT = 256


class Durations:
    """How long each kind of thing has taken; answers with the 95th percentile of what was seen, never a constant."""

    def __init__(self) -> None:
        self._seen: dict[str, deque[float]] = {}
        self._lock = threading.Lock()
        self._listener: Callable[[str, float, dict[str, int]], None] | None = None

    def listen(self, listener: Callable[[str, float, dict[str, int]], None] | None) -> None:
        """Call this with every measurement that has just ended, to make a span of it; None ends that."""
        self._listener = listener

    def add(self, kind: str, seconds: float, **about: int) -> None:
        """Remember one measurement; the newest 256 of a kind count. ``about`` is for the listener alone."""
        with self._lock:
            self._seen.setdefault(kind, deque(maxlen=_KEPT)).append(max(0.0, seconds))
        if self._listener is not None:
            self._listener(kind, max(0.0, seconds), about)

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
