"""What a save will take, learned from the saves so far; the drain asks before it spends its budget."""

from __future__ import annotations

import collections
import threading

FIRST_SNAPSHOT_BYTES_PER_SECOND = 1e9
FIRST_PERSIST_BYTES_PER_SECOND = 100e6
REMEMBERED = 8
MEANINGFUL_BYTES = 1 << 20


class SaveRates:
    """The slowest of the last few saves: a promise to a deadline is made on bad days, not on average ones."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._snapshots: collections.deque[tuple[int, float]] = collections.deque(maxlen=REMEMBERED)
        self._persists: collections.deque[tuple[int, float]] = collections.deque(maxlen=REMEMBERED)

    def snapshot_took(self, size: int, seconds: float) -> None:
        with self._lock:
            self._snapshots.append((size, seconds))

    def persist_took(self, written: int, seconds: float) -> None:
        with self._lock:
            self._persists.append((written, seconds))

    def estimate(self, state_bytes: int) -> tuple[float, float]:
        """Seconds to snapshot and seconds to persist a state of this many bytes, all of it changed."""
        with self._lock:
            snapshots = list(self._snapshots)[1:] or list(self._snapshots)  # the first one also paid for its memory
            return (
                _seconds(state_bytes, snapshots, FIRST_SNAPSHOT_BYTES_PER_SECOND),
                _seconds(state_bytes, list(self._persists), FIRST_PERSIST_BYTES_PER_SECOND),
            )


def _seconds(size: int, rows: list[tuple[int, float]], first_rate: float) -> float:
    """Small saves tell the fixed cost, large ones the rate."""
    fixed = max((seconds for done, seconds in rows if done < MEANINGFUL_BYTES), default=0.0)
    rates = [done / seconds for done, seconds in rows if done >= MEANINGFUL_BYTES and seconds > 0]
    if not rates and rows and size < MEANINGFUL_BYTES:
        return fixed
    return fixed + size / min(rates, default=first_rate)
