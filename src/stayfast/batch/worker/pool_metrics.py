"""What a scrape of ``stayfast work`` reads: the counters of its workers and its queue, turned into samples."""

from __future__ import annotations

import threading
from dataclasses import asdict
from typing import TYPE_CHECKING

from stayfast.batch.queue.open_queue import open_queue
from stayfast.batch.queue.protocol import Depth, Queue
from stayfast.batch.sink.open_sink import open_sink
from stayfast.clock import Clock
from stayfast.errors import StayfastError, UrlError
from stayfast.model.queue_age import Backlog
from stayfast.runtime.runs.run_metrics import add_notice
from stayfast.telemetry.metric_table import METRICS
from stayfast.telemetry.prometheus import PrometheusText

if TYPE_CHECKING:
    from stayfast.batch.worker.pool import WorkerPool
    from stayfast.runtime.interruption.guard import Guard

_COUNT_SHARE = 20.0  # counting a deep queue takes time: at most a twentieth of it
_LOOK_SECONDS = 5.0


def sample_pool(pool: WorkerPool, guard: Guard, reader: QueueDepthReader) -> PrometheusText:
    """One scrape of ``stayfast work``."""
    out = PrometheusText(METRICS)
    add_notice(out, guard)
    out.add_sample("stayfast_workers", pool.num_workers)
    for outcome, count in pool.tally().as_json().items():
        out.add_sample("stayfast_items_total", count, outcome=outcome)
    depth = reader.depth()
    out.add_sample("stayfast_queue_up", int(depth is not None), queue=reader.name)
    if depth is not None:
        for state, count in asdict(depth).items():
            out.add_sample("stayfast_queue_items", count, queue=reader.name, state=state)
        out.add_sample("stayfast_queue_oldest_seconds", reader.oldest_seconds(), queue=reader.name)
    return out


class QueueDepthReader:
    """Looks at a queue through a connection of its own, no more often than its counting is worth."""

    def __init__(self, url: str, sink: str, clock: Clock) -> None:
        self._url, self._sink, self._clock = url, sink, clock
        self.name = _name(url)
        self._queue: Queue | None = None
        self._depth: Depth | None = None
        self._next = float("-inf")
        self._backlog = Backlog()
        self._lock = threading.Lock()

    def depth(self) -> Depth | None:
        """Counts by state, at most a few seconds old; None when the queue cannot be reached."""
        with self._lock:
            started = self._clock.monotonic()
            if started < self._next:
                return self._depth
            try:
                self._depth = self._open().depth()
                self._backlog.add(started, self._depth.enqueued, self._depth.done + self._depth.dead)
            except UrlError:  # the workers have not made it yet
                return None
            except StayfastError:
                self._depth = None
            took = self._clock.monotonic() - started
            self._next = started + max(_LOOK_SECONDS, _COUNT_SHARE * took)
            return self._depth

    def oldest_seconds(self) -> float:
        """How long the oldest open item has waited, as far as we have seen."""
        return self._backlog.oldest_seconds(self._clock.monotonic())

    def close(self) -> None:
        """Give the connection back."""
        with self._lock:
            self._next = float("inf")
            if self._queue is not None:
                self._queue.close()

    def _open(self) -> Queue:
        if self._queue is None:
            missing = open_sink(self._sink, create=False).missing
            self._queue = open_queue(self._url, sink=self._sink, create=False)
            self._queue.missing = missing
        return self._queue


def _name(url: str) -> str:
    """``?queue=name``, or the last part of the path; never the whole URL, which may hold a password."""
    plain, _, query = url.partition("?")
    chosen = next((part[6:] for part in query.split("&") if part.startswith("queue=")), None)
    return chosen or plain.rpartition("/")[2]
