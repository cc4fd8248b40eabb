"""The end of the machine's lease as a notice, early enough to leave in good order.

Flex-start machines are taken back after at most seven days. When that happens is known from the start, so the run saves
and leaves a little before, and the next lease goes on where it stopped.
"""

from __future__ import annotations

import logging
import threading

from stayfast.clock import from_rfc3339, to_rfc3339
from stayfast.errors import SettingError
from stayfast.model.notice import Cause, Notice
from stayfast.runtime.interruption.notice_board import NoticeBoard

log = logging.getLogger("stayfast")

LOOK_AGAIN_SECONDS = 5.0  # a downward-API volume follows its annotation within about a minute


class MachineLeaseSource:
    """Watches a fixed instant, a file that may hold one, or both; the earlier counts."""

    def __init__(self, board: NoticeBoard) -> None:
        self._board = board
        self._stopped = threading.Event()
        self._complained: str | None = None
        self._believed: str | None = None

    def start(self) -> None:
        settings = self._board.settings
        ends_at = settings.lease_ends_at
        if ends_at is not None and ends_at <= self._board.clock.wall():
            raise SettingError(
                f"STAYFAST_LEASE_ENDS_AT={to_rfc3339(ends_at)} is in the past",
                help="set it to when this machine will be taken away, or unset it",
            )
        if ends_at is not None or settings.lease_file is not None:
            threading.Thread(target=self._watch, name="stayfast-lease", daemon=True).start()

    def stop(self) -> None:
        self._stopped.set()

    def _watch(self) -> None:
        while not self._stopped.is_set():
            pause = self.check()
            if pause is None:
                return
            self._board.clock.wait(self._stopped, pause)

    def check(self) -> float | None:
        """Post if it is time; returns how long to wait before the next look, None when posted."""
        settings, clock = self._board.settings, self._board.clock
        known = [instant for instant in (settings.lease_ends_at, self._from_file()) if instant is not None]
        if not known:
            return LOOK_AGAIN_SECONDS
        ends_at = min(known)
        left = ends_at - clock.wall()
        if left <= settings.lease_lead_seconds:
            detail = f"the machine's lease ends at {to_rfc3339(ends_at)}"
            self._board.post(Notice(Cause.RUN_LIMIT, clock.monotonic(), max(0.0, left), detail, capped=False))
            return None
        wait = left - settings.lease_lead_seconds
        # Never sleep through a change of the file, nor through a jump of the wall clock.
        return min(wait, LOOK_AGAIN_SECONDS if settings.lease_file else 60.0)

    def _from_file(self) -> float | None:
        path = self._board.settings.lease_file
        if path is None:
            return None
        try:
            with open(path, encoding="utf-8", errors="replace") as file:
                text = file.read(200).strip().strip('"')
        except OSError:
            return None  # not there yet: the annotation may be written after the pod has started
        if not text:
            return None
        try:
            ends_at = from_rfc3339(text)
        except (ValueError, OverflowError):
            self._warn_once(path, text, "is not an RFC 3339 instant")
            return None
        if text != self._believed and ends_at <= self._board.clock.wall():
            self._warn_once(path, text, "is in the past")  # left over from an earlier lease: we still run
            return None
        self._believed = text
        return ends_at

    def _warn_once(self, path: str, text: str, why: str) -> None:
        """Once per text."""
        if text != self._complained:
            self._complained = text
            log.warning(
                "STAYFAST_LEASE_FILE=%s holds %r, which %s; the lease end is not watched until it changes",
                path,
                text,
                why,
                extra={"action": "lease_unreadable"},
            )
