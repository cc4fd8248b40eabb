"""The live line of ``stayfast work``: done per second, what is leased and dead, and when it will be over."""

from __future__ import annotations

import time

from stayfast.batch.queue.open_queue import open_queue
from stayfast.batch.queue.protocol import Depth
from stayfast.batch.sink.open_sink import open_sink
from stayfast.batch.worker.pool import PoolOptions, WorkerPool
from stayfast.errors import StayfastError
from stayfast.text.units import hours_or_minutes

_REFRESH_SECONDS = 0.5
_COUNT_SHARE = 20.0  # counting a deep queue takes time: at most a twentieth of ours


def attach(pool: WorkerPool, options: PoolOptions) -> None:
    """Show progress on standard error while the pool runs."""
    from rich.console import Console
    from rich.status import Status

    view = _View(options, Status("starting", console=Console(stderr=True)))
    view.status.start()
    pool.on_tick = lambda: view.show(pool)
    pool.on_end = view.status.stop


class _View:
    def __init__(self, options: PoolOptions, status: object) -> None:
        from rich.status import Status

        assert isinstance(status, Status)
        self.status = status
        self._queue = open_queue(options.queue, sink=options.sink)
        self._queue.missing = open_sink(options.sink).missing
        self._depth: Depth | None = None
        self._next_depth = self._next_show = 0.0
        self._started = time.monotonic()

    def show(self, pool: WorkerPool) -> None:
        now = time.monotonic()
        if now < self._next_show:
            return
        self._next_show = now + _REFRESH_SECONDS
        if now >= self._next_depth:
            try:
                self._depth = self._queue.depth()
            except StayfastError:
                self._depth = None
            took = time.monotonic() - now
            self._next_depth = now + max(2.0, _COUNT_SHARE * took)
        self.status.update(line(pool, self._depth, now - self._started))


def line(pool: WorkerPool, depth: Depth | None, seconds: float) -> str:
    """What one glance should tell."""
    tally = pool.tally()
    done = tally.done + tally.skipped
    rate = done / seconds if seconds > 0 else 0.0
    text = f"{done} done, {rate:.0f}/s, {pool.num_workers} workers, {tally.failed} failed"
    if depth is None:
        return text
    left = depth.ready + depth.delayed + depth.leased
    text += f", {left} left ({depth.leased} leased), {depth.dead} dead"
    if rate > 0 and left:
        seconds = left / rate
        text += f", {f'{seconds:.0f} s' if seconds < 90 else hours_or_minutes(seconds)} to go"
    return text
