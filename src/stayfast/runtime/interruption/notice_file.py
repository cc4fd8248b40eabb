"""A file that appears, as a notice: for schedulers that can write a file but cannot signal the process."""

from __future__ import annotations

import os
import threading

from stayfast.model.notice import Cause, Notice
from stayfast.runtime.interruption.notice_board import NoticeBoard

LOOK_AGAIN_SECONDS = 0.1


class NoticeFileSource:
    """Looks for ``STAYFAST_NOTICE_FILE`` ten times a second; its first line becomes the notice's detail."""

    def __init__(self, board: NoticeBoard) -> None:
        self._board = board
        self._stopped = threading.Event()

    def start(self) -> None:
        if self._board.settings.notice_file is not None:
            threading.Thread(target=self._watch, name="stayfast-notice-file", daemon=True).start()

    def stop(self) -> None:
        self._stopped.set()

    def _watch(self) -> None:
        while not self._stopped.is_set() and not self.check():
            self._board.clock.wait(self._stopped, LOOK_AGAIN_SECONDS)

    def check(self) -> bool:
        """Post if the file is there."""
        path = self._board.settings.notice_file
        if path is None or not os.path.exists(path):
            return False
        try:
            with open(path, encoding="utf-8", errors="replace") as file:
                line = file.readline(200).strip()
        except OSError:
            line = ""
        detail = f"{path}: {line}" if line else f"{path} appeared"
        self._board.post(Notice(Cause.UNKNOWN, self._board.clock.monotonic(), float("inf"), detail))
        return True
