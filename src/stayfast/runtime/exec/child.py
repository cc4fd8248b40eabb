"""The program that ``stayfast exec`` runs: its notice, its deadlines, its end."""

from __future__ import annotations

import os
import time
from typing import Any

from stayfast.model.exit_codes import FAILED
from stayfast.settings import Settings

_RESERVE = 0.5  # of the margin: a child that is ours leaves by itself a margin before the window ends


class SupervisedChild:
    """What is known about the program that is being run."""

    def __init__(self, pid: int, settings: Settings) -> None:
        self.pid = pid
        self._settings = settings
        self.status: int | None = None
        self.ended_at = float("inf")
        self.notice_at: float | None = None
        self.leave_at = float("inf")
        """When everything has to be done, the last copy included."""
        self.notice_signal = ""
        self.cause: str | None = None
        """Why, where a notice says more than a signal does."""
        self.killed = False
        self.reserved_seconds = 0.0
        """Seconds of the window that the last copy will need."""
        self.outcomes: list[dict[str, Any]] = []

    def give_notice(
        self, name: str, cause: str | None = None, leave_at: float | None = None, *, reserved_seconds: float = 0.0
    ) -> None:
        """The machine goes: everything has to be done by ``leave_at``, or by the end of a signal's window."""
        self.notice_at, self.notice_signal, self.cause = time.monotonic(), name, cause
        self.leave_at = self._window() if leave_at is None else leave_at
        self.reserved_seconds = reserved_seconds

    def shorten_window(self) -> None:
        """A further signal: its window counts from now, where that ends earlier."""
        self.leave_at = min(self.leave_at, self._window())

    def _window(self) -> float:
        """The end of the window of a signal that comes now."""
        window = self._settings.window_seconds - _RESERVE * self._settings.margin_seconds
        return time.monotonic() + max(0.0, window)

    @property
    def deadline(self) -> float:
        """When the program has to be gone."""
        return self.leave_at - self.reserved_seconds

    @property
    def given_up_at(self) -> float:
        """Half of what is kept back is for dying, the rest for the report."""
        reserve = _RESERVE * self._settings.margin_seconds
        return self.deadline + max(0.05, reserve / 2)

    @property
    def used_seconds(self) -> float:
        """Since the notice."""
        return 0.0 if self.notice_at is None else time.monotonic() - self.notice_at

    @property
    def allowed_seconds(self) -> float | None:
        """From the notice to the end of the window; none without a notice."""
        if self.notice_at is None:
            return None
        if self.cause in (None, "superseded"):
            return self._settings.window_seconds
        return round(self.leave_at - self.notice_at, 3)

    @property
    def code(self) -> int:
        """The program's own exit code, 128 + n when a signal ended it."""
        if self.status is None:
            return FAILED
        code = os.waitstatus_to_exitcode(self.status)
        return code if code >= 0 else 128 - code
