"""Time, as one of the three seams: everything that waits or measures takes a ``Clock``.

Inside a process instants are monotonic seconds; on the wire they are UTC RFC 3339. ``ManualClock`` is
product code: the simulator and the tests run on it, so that no test has to wait for real.
"""

from __future__ import annotations

import datetime as _datetime
import threading
import time as _time
from typing import Protocol


class Clock(Protocol):
    """All that stayfast asks of time."""

    def monotonic(self) -> float:
        """Seconds that never go backwards; only differences mean anything."""

    def wall(self) -> float:
        """Seconds since the epoch, UTC; may jump."""

    def sleep(self, seconds: float) -> None:
        """Wait; never shorter than asked."""

    def wait(self, event: threading.Event, seconds: float | None) -> bool:
        """Wait until the event is set or the time is over; true when set."""


class SystemClock:
    """The machine's own clocks."""

    def monotonic(self) -> float:
        return _time.monotonic()

    def wall(self) -> float:
        return _time.time()

    def sleep(self, seconds: float) -> None:
        if seconds > 0:
            _time.sleep(seconds)

    def wait(self, event: threading.Event, seconds: float | None) -> bool:
        return event.wait(seconds)


class ManualClock:
    """A clock that moves only when told to; sleeping moves it."""

    def __init__(self, *, monotonic: float = 1000.0, wall: float = 1_700_000_000.0) -> None:
        self._monotonic = monotonic
        self._wall = wall
        self._lock = threading.Lock()

    def monotonic(self) -> float:
        with self._lock:
            return self._monotonic

    def wall(self) -> float:
        with self._lock:
            return self._wall

    def sleep(self, seconds: float) -> None:
        self.advance(max(0.0, seconds))

    def wait(self, event: threading.Event, seconds: float | None) -> bool:
        if event.is_set() or seconds is None:
            return event.is_set()
        self.advance(seconds)
        return event.is_set()

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        if seconds < 0:
            raise ValueError(f"time cannot go back by {-seconds} s")
        with self._lock:
            self._monotonic += seconds
            self._wall += seconds

    def jump_wall(self, seconds: float) -> None:
        """Move the wall clock alone, as NTP or a bad host does."""
        with self._lock:
            self._wall += seconds


def to_rfc3339(wall_seconds: float) -> str:
    """Seconds since the epoch as ``2026-11-15T20:03:37.125Z``."""
    moment = _datetime.datetime.fromtimestamp(wall_seconds, _datetime.UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def from_rfc3339(text: str) -> float:
    """The inverse of :func:`to_rfc3339`; an offset is required, so that no zone is ever guessed."""
    moment = _datetime.datetime.fromisoformat(text.strip())
    if moment.tzinfo is None:
        raise ValueError(f"{text!r} has no time zone; write it like 2026-11-15T20:03:37Z")
    return moment.timestamp()


def seconds_at(value: object) -> float | None:
    """What somebody else wrote as a timestamp, as wall-clock seconds; nothing when it is none."""
    if not isinstance(value, str):
        return None
    try:
        return from_rfc3339(value)
    except ValueError:
        return None
