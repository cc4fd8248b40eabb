"""A work queue as the pages show it: depth now, throughput as we watched it, dead letters, another try."""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import asdict
from itertools import islice
from typing import Any, NamedTuple

from stayfast.batch.queue.open_queue import open_queue
from stayfast.batch.queue.protocol import Depth, Queue
from stayfast.batch.sink.open_sink import open_sink
from stayfast.clock import Clock
from stayfast.dashboard.run_view import identify
from stayfast.errors import StayfastError
from stayfast.model.queue_age import Backlog

_KEPT = 600
_MOST_DEAD = 200
_LONGEST_REASON = 2000
_COUNT_SHARE = 50.0  # counting a deep queue takes time: at most a fiftieth of it
_RATE_SECONDS = 15.0


class DepthSample(NamedTuple):
    """The counts at one moment."""

    at: float
    depth: Depth


class QueueView:
    """One queue; every call may block, so none is made from the event loop."""

    def __init__(self, url: str, sink: str | None, clock: Clock) -> None:
        self.id = identify(url)
        self.url = url
        self.version = 0
        self._sink_url = sink
        self._clock = clock
        self._queue: Queue | None = None
        self._lock = threading.Lock()
        self._next_look = 0.0
        self._backlog = Backlog()
        self.history: deque[DepthSample] = deque(maxlen=_KEPT)
        self.trouble: str | None = None

    def look(self) -> bool:
        """Count, unless that was too recent for what it costs; true when something is new."""
        now = self._clock.monotonic()
        if now < self._next_look:
            return False
        trouble: str | None = None
        depth: Depth | None = None
        try:
            with self._lock:
                depth = self._open().depth()
        except StayfastError as error:
            trouble = str(error)
            self._drop()
        took = self._clock.monotonic() - now
        self._next_look = now + max(0.9, _COUNT_SHARE * took)
        news = trouble != self.trouble
        self.trouble = trouble
        if depth is not None:
            news |= not self.history or self.history[-1].depth != depth
            self._backlog.add(now, depth.enqueued, depth.done + depth.dead)
            if news or self._clock.wall() - self.history[-1].at >= 10:
                self.history.append(DepthSample(self._clock.wall(), depth))
        self.version += news
        return news

    def summary(self) -> dict[str, Any]:
        """One row of the overview."""
        newest = self.history[-1] if self.history else None
        return {
            "id": self.id,
            "url": _without_password(self.url),
            "name": _name(self.url),
            "trouble": self.trouble,
            "depth": asdict(newest.depth) if newest else None,
            "per_second": self._rate(),
            "oldest_seconds": self._backlog.oldest_seconds(self._clock.monotonic()),
        }

    def detail(self) -> dict[str, Any]:
        """With the watched history and the dead letters."""
        rows = [[round(item.at, 2), *asdict(item.depth).values()] for item in list(self.history)]
        return {**self.summary(), "history": rows, "dead": self._dead(), "dead_shown": _MOST_DEAD}

    def retry(self, keys: list[str] | None) -> int:
        """Dead items back to ready."""
        with self._lock:
            count = self._open().retry(keys)
        self._next_look = 0.0
        return count

    def close(self) -> None:
        """Give the connection back."""
        self._drop()

    def _dead(self) -> list[dict[str, Any]]:
        try:
            with self._lock:
                rows = list(islice(self._open().dead(), _MOST_DEAD))
        except StayfastError as error:
            self.trouble = str(error)
            return []
        return [
            {
                "key": _utf8_safe(row.key),
                "failures": row.failures,
                "reason": _utf8_safe(row.reason)[-_LONGEST_REASON:],
                "payload": _utf8_safe(row.payload)[:_LONGEST_REASON],
            }
            for row in rows
        ]

    def _rate(self) -> float | None:
        """Items done per second, over the last quarter of a minute."""
        readings = list(self.history)
        if len(readings) < 2:
            return None
        newest = readings[-1]
        since = self._clock.wall() - _RATE_SECONDS
        if newest.at < since:
            return 0.0
        before = next((item for item in readings if item.at >= since), newest)
        if before is newest:
            before = readings[-2]
        seconds = max(newest.at - before.at, 1e-3)
        return max(0.0, (newest.depth.done - before.depth.done) / seconds)

    def _open(self) -> Queue:
        if self._queue is None:
            self._queue = open_queue(self.url, sink=self._sink_url, create=False)
            if self._sink_url is not None:
                self._queue.missing = open_sink(self._sink_url).missing
        return self._queue

    def _drop(self) -> None:
        with self._lock:
            queue, self._queue = self._queue, None
            if queue is not None:
                try:
                    queue.close()
                except StayfastError:
                    pass  # it was broken already


def _name(url: str) -> str:
    plain, _, query = url.partition("?")
    chosen = next((part[6:] for part in query.split("&") if part.startswith("queue=")), None)
    return _utf8_safe(chosen or plain.rpartition("/")[2] or plain)


def _without_password(url: str) -> str:
    """Nobody who looks at a page needs the password of a database."""
    scheme, mark, rest = url.partition("://")
    place, slash, path = rest.partition("/")
    user, at, host = place.rpartition("@")
    if at and ":" in user:
        place = f"{user.partition(':')[0]}:…@{host}"
    query = path.partition("?")
    parts = [part if not part.startswith("password=") else "password=…" for part in query[2].split("&")]
    path = query[0] + query[1] + "&".join(parts)
    return _utf8_safe(f"{scheme}{mark}{place}{slash}{path}")


def _utf8_safe(text: str) -> str:
    return str(text).encode("utf-8", "replace").decode()
