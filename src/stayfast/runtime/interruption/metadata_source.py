"""The GCE metadata server as a source of notices: preemption and host maintenance, by long polling.

Silent and free where there is no such server: nothing is started unless the machine says it is Google's or the host is
named. Answers that make no sense are ignored and asked again later, with growing pauses.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from stayfast.backoff import Backoff
from stayfast.model.notice import Cause, Notice
from stayfast.runtime.interruption.notice_board import NoticeBoard

log = logging.getLogger("stayfast")

FIRST_PAUSE_SECONDS = 1.0
LONGEST_PAUSE_SECONDS = 60.0
WAIT_SECONDS = 300  # how long the server may hold a poll; the socket waits a little longer


def _is_preempted(value: str) -> str | None:
    return "the VM is being preempted" if value == "TRUE" else None


def _is_maintenance(value: str) -> str | None:
    return "host maintenance will stop the VM" if value == "TERMINATE_ON_HOST_MAINTENANCE" else None


WATCHED: tuple[tuple[str, Cause, Callable[[str], str | None]], ...] = (
    ("instance/preempted", Cause.PREEMPTION, _is_preempted),
    ("instance/maintenance-event", Cause.MAINTENANCE, _is_maintenance),
)


def on_gce() -> bool:
    """What the firmware says, at the price of reading one small file."""
    try:
        with open("/sys/class/dmi/id/product_name", encoding="ascii", errors="replace") as file:
            return "Google" in file.read(100)
    except OSError:
        return False


class MetadataSource:
    """One long poll per watched value, each on a thread of its own."""

    def __init__(self, board: NoticeBoard) -> None:
        self._board = board
        self._stopped = threading.Event()

    def start(self) -> None:
        settings = self._board.settings
        if settings.metadata == "off":
            return
        if settings.metadata == "auto" and settings.metadata_host is None and not on_gce():
            return
        for path, cause, judge in WATCHED:
            arguments = (path, cause, judge)
            threading.Thread(target=self._watch, args=arguments, name=f"stayfast-{cause}", daemon=True).start()

    def stop(self) -> None:
        self._stopped.set()  # the polls end by themselves; their threads are daemons

    def _watch(self, path: str, cause: Cause, judge: Callable[[str], str | None]) -> None:
        backoff = Backoff(FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS)
        etag, pauses, last = "0", backoff.pauses(), None
        while not self._stopped.is_set():
            try:
                value, new_etag = self._ask(path, etag)
            except (OSError, ValueError) as error:
                log.debug("metadata %s: %s", path, error)
                self._board.clock.wait(self._stopped, next(pauses))
                continue
            detail = judge(value)
            if detail is not None and not self._stopped.is_set():
                self._board.post(
                    Notice(cause, self._board.clock.monotonic(), float("inf"), f"metadata server: {detail}")
                )
                return
            if value == last:  # the server's wait ended without a change, or it does not know how to wait
                self._board.clock.wait(self._stopped, FIRST_PAUSE_SECONDS)
            etag, pauses, last = new_etag, backoff.pauses(), value

    def _ask(self, path: str, etag: str) -> tuple[str, str]:
        from http.client import HTTPException  # 50 ms that only a VM on GCE needs to spend
        from urllib.parse import quote

        from stayfast.storage.network.metadata_server import DEFAULT_HOST, read_metadata

        host = self._board.settings.metadata_host or DEFAULT_HOST  # it was checked when the setting was read
        query = f"?wait_for_change=true&timeout_sec={WAIT_SECONDS}&last_etag={quote(etag, safe='')}"
        try:
            found = read_metadata(host, path + query, timeout_seconds=WAIT_SECONDS + 10)
        except HTTPException as error:
            raise ValueError(f"{type(error).__name__}: {error}") from error
        if found.status != 200:
            raise ValueError(f"status {found.status}")
        if not found.is_google:
            raise ValueError("the answer does not come from a metadata server")
        return found.body.decode("utf-8", "replace").strip(), found.etag or etag
