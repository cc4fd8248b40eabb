"""How long the oldest open item of a queue has been waiting, from counts alone."""

from __future__ import annotations

from collections import deque

_KEPT = 2000


class Backlog:
    """Remembers how many items had arrived by when.

    Queues hand out the oldest item first, so with n items settled the oldest open one is the n+1st that arrived, and
    the first reading with more than n arrivals says when. What was there before the first reading is at least as old as
    that reading; items that waited out a back-off make it an estimate.
    """

    def __init__(self) -> None:
        self._arrivals: deque[tuple[float, int]] = deque(maxlen=_KEPT)
        self._settled = 0

    def add(self, now: float, arrived: int, settled: int) -> None:
        """One reading: items ever enqueued, and those done or dead."""
        self._settled = settled
        while self._arrivals and self._arrivals[-1][1] > arrived:  # the queue was replaced by another
            self._arrivals.pop()
        if not self._arrivals or self._arrivals[-1][1] != arrived:
            self._arrivals.append((now, arrived))
        while len(self._arrivals) > 1 and self._arrivals[0][1] <= settled:
            self._arrivals.popleft()

    def oldest_seconds(self, now: float) -> float:
        """Zero when nothing is open or nothing is known."""
        for at, arrived in self._arrivals:
            if arrived > self._settled:
                return max(0.0, now - at)
        return 0.0
