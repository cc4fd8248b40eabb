"""The notice board: sources post, everybody else looks; and the grace budget, what is left of the window.

The first notice wins; later ones may only bring the deadline closer (and may name a cause when the first could not: a
SIGTERM says that the machine goes, not why).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import replace

from stayfast.clock import Clock
from stayfast.model.notice import Cause, Notice
from stayfast.settings import Settings
from stayfast.telemetry.durations import Durations

log = logging.getLogger("stayfast")


class NoticeBoard:
    """Holds the one notice of this process and the deadline that follows from it."""

    def __init__(self, settings: Settings, clock: Clock) -> None:
        self.settings = settings
        self.clock = clock
        self.arrived = threading.Event()
        self.shortened = threading.Event()
        self._notice: Notice | None = None
        self._deadline = float("inf")
        self._listeners: list[Callable[[], object]] = []
        self._lock = threading.Lock()

    @property
    def notice(self) -> Notice | None:
        """The notice, or None while nothing threatens."""
        return self._notice

    @property
    def deadline(self) -> float:
        """Monotonic seconds by which this process must be gone, margin taken off; infinite without a notice."""
        return self._deadline

    def on_notice(self, listener: Callable[[], object]) -> None:
        """Call once, from the thread that posts, when the first notice arrives; at once if it already has."""
        with self._lock:
            if self._notice is None:
                self._listeners.append(listener)
                return
        listener()

    def post(self, notice: Notice) -> None:
        """Announce a notice; safe from any thread, harmless to repeat."""
        deadline = effective_deadline(notice, self.settings)
        with self._lock:
            first = self._notice is None
            if self._notice is None:
                self._notice, self._deadline = notice, deadline
            else:
                if self._notice.cause is Cause.UNKNOWN and notice.cause is not Cause.UNKNOWN:
                    self._notice = replace(self._notice, cause=notice.cause)
                if deadline < self._deadline:
                    self._deadline = deadline
                    self.shortened.set()
            listeners, self._listeners = (self._listeners, []) if first else ([], self._listeners)
        if first:
            self.arrived.set()
            for listener in listeners:
                listener()
            log.warning(
                "notice: %s (%s), %.1f s to leave",
                notice.cause,
                notice.detail or "no detail",
                max(0.0, deadline - self.clock.monotonic()),
                extra={"action": "notice_received"},
            )

    def expire_now(self) -> None:
        """Leave now: a person pressed Ctrl-C twice and means it."""
        with self._lock:
            self._deadline = min(self._deadline, self.clock.monotonic())
        self.shortened.set()


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


def effective_deadline(notice: Notice, settings: Settings) -> float:
    """When to be gone: the source's own window, capped by what a pod gets, minus the margin."""
    grace = notice.grace_seconds
    if notice.capped:
        grace = min(grace, settings.window_seconds)
    return notice.received_at + max(0.0, grace - settings.margin_seconds)
