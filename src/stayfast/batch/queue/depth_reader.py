"""How deep a queue is, counted no more often than that is worth."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from typing import TypeVar

from stayfast.batch.queue.open_queue import open_queue
from stayfast.batch.queue.protocol import Depth, Queue
from stayfast.clock import Clock
from stayfast.errors import StayfastError, UrlError
from stayfast.model.queue_age import Backlog
from stayfast.storage.network.urls import queue_name

T = TypeVar("T")


class QueueDepthReader:
    """Looks at a queue through a connection of its own; may be used from many threads."""

    def __init__(
        self, url: str, sink: str | None, clock: Clock, *, pause_seconds: float, count_share: float = 20.0
    ) -> None:
        """Between two looks lie ``pause_seconds``, and ``count_share`` times what counting a deep queue took."""
        self._url, self._sink, self._clock = url, sink, clock
        self._pause_seconds, self._count_share = pause_seconds, count_share
        self.name = queue_name(url)
        self.depth: Depth | None = None
        """Counts by state at the last look; None when the queue could not be reached."""
        self.trouble: str | None = None
        """Why it could not."""
        self._queue: Queue | None = None
        self._next = float("-inf")
        self._backlog = Backlog()
        self._lock = threading.Lock()

    def look(self) -> bool:
        """Count, unless that was too recent; returns whether it was tried."""
        with self._lock:
            started = self._clock.monotonic()
            if started < self._next:
                return False
            pause = self._pause_seconds
            self.depth = self.trouble = None
            try:
                self.depth = self._open().depth()
                self._backlog.add(started, self.depth.enqueued, self.depth.done + self.depth.dead)
            except StayfastError as error:
                self.trouble = str(error)
                self._drop()
                if isinstance(error, UrlError):  # the workers have not made it yet
                    pause = 0.0
            self._next = started + max(pause, self._count_share * (self._clock.monotonic() - started))
            return True

    def oldest_seconds(self) -> float:
        """How long the oldest open item has waited, as far as we have seen."""
        return self._backlog.oldest_seconds(self._clock.monotonic())

    def ask(self, question: Callable[[Queue], T]) -> T:
        """The answer of the queue to something else, on the same connection."""
        with self._lock:
            return question(self._open())

    def look_soon(self) -> None:
        """Count at the next look, however recent the last one was."""
        self._next = float("-inf")

    def close(self) -> None:
        """Give the connection back, and look no more."""
        with self._lock:
            self._next = float("inf")
            self._drop()

    def _open(self) -> Queue:
        if self._queue is None:
            self._queue = open_queue(self._url, sink=self._sink, create=False)
        return self._queue

    def _drop(self) -> None:
        queue, self._queue = self._queue, None
        if queue is not None:
            with contextlib.suppress(StayfastError):  # it was broken already
                queue.close()
