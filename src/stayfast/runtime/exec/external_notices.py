"""Notices for ``stayfast exec`` beyond signals: the metadata server, the lease, a file, when the environment says so.

A program in any language then gets SIGTERM as soon as anything is known, and the termination message the true cause.
Loaded only when one of them is asked for.
"""

from __future__ import annotations

import os
import signal

from stayfast.clock import SystemClock
from stayfast.model.notice import Notice
from stayfast.runtime.interruption.notice_board import NoticeBoard
from stayfast.runtime.interruption.sources import open_sources, source_names
from stayfast.settings import Settings


class ExternalNotices:
    """What the other sources say."""

    def __init__(self, settings: Settings) -> None:
        self._board = NoticeBoard(settings, SystemClock())
        self._sources = open_sources(self._board, source_names(settings, detect=False))

    def start(self) -> None:
        """Watch from now on; the main thread, which waits for signals, is woken by one that means nothing else."""
        self._board.on_notice(lambda: os.kill(os.getpid(), signal.SIGCHLD))
        for source in self._sources:
            source.start()

    @property
    def notice(self) -> Notice | None:
        """The notice, or None."""
        return self._board.notice

    @property
    def deadline(self) -> float:
        """When to be gone, margin taken off."""
        return self._board.deadline
