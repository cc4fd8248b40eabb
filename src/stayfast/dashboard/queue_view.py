"""A work queue as the pages show it: depth now, throughput as we watched it, dead letters, another try."""

from __future__ import annotations

from collections import deque
from dataclasses import asdict
from itertools import islice
from typing import Any, NamedTuple

from stayfast.batch.queue.depth_reader import QueueDepthReader
from stayfast.batch.queue.protocol import Depth
from stayfast.clock import Clock
from stayfast.dashboard.run_view import identify
from stayfast.errors import StayfastError
from stayfast.storage.network.urls import url_without_password

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
        self._clock = clock
        self._reader = QueueDepthReader(url, sink, clock, pause_seconds=0.9, count_share=_COUNT_SHARE)
        self.history: deque[DepthSample] = deque(maxlen=_KEPT)
        self.trouble: str | None = None

    def look(self) -> bool:
        """Count, unless that was too recent for what it costs; true when something is new."""
        if not self._reader.look():
            return False
        depth = self._reader.depth
        news = self._reader.trouble != self.trouble
        self.trouble = self._reader.trouble
        if depth is not None:
            news |= not self.history or self.history[-1].depth != depth
            if news or self._clock.wall() - self.history[-1].at >= 10:
                self.history.append(DepthSample(self._clock.wall(), depth))
        self.version += news
        return news

    def summary(self) -> dict[str, Any]:
        """One row of the overview."""
        newest = self.history[-1] if self.history else None
        return {
            "id": self.id,
            "url": _utf8_safe(url_without_password(self.url)),
            "name": _utf8_safe(self._reader.name),
            "trouble": self.trouble,
            "depth": asdict(newest.depth) if newest else None,
            "per_second": self._rate(),
            "oldest_seconds": self._reader.oldest_seconds(),
        }

    def detail(self) -> dict[str, Any]:
        """With the watched history and the dead letters."""
        rows = [[round(item.at, 2), *asdict(item.depth).values()] for item in list(self.history)]
        return {**self.summary(), "history": rows, "dead": self._dead(), "dead_shown": _MOST_DEAD}

    def retry(self, keys: list[str] | None) -> int:
        """Dead items back to ready."""
        count = self._reader.ask(lambda queue: queue.retry(keys))
        self._reader.look_soon()
        return count

    def close(self) -> None:
        """Give the connection back."""
        self._reader.close()

    def _dead(self) -> list[dict[str, Any]]:
        try:
            rows = self._reader.ask(lambda queue: list(islice(queue.dead(), _MOST_DEAD)))
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


def _utf8_safe(text: str) -> str:
    return str(text).encode("utf-8", "replace").decode()
