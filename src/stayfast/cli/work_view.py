"""The live line of ``stayfast work``: done per second, what is leased and dead, and when it will be over."""

from __future__ import annotations

from stayfast.batch.queue.depth_reader import QueueDepthReader
from stayfast.batch.queue.protocol import Depth
from stayfast.batch.worker.pool import PoolOptions, WorkerPool
from stayfast.clock import SystemClock
from stayfast.text.units import hours_or_minutes

_REFRESH_SECONDS = 0.5
_COUNT_SECONDS = 2.0


class WorkView:
    """Shows progress on standard error while the pool runs."""

    def __init__(self, options: PoolOptions) -> None:
        from rich.console import Console
        from rich.status import Status

        self._clock = SystemClock()
        self._reader = QueueDepthReader(options.queue, options.sink, self._clock, pause_seconds=_COUNT_SECONDS)
        self._next_show = 0.0
        self._started = self._clock.monotonic()
        self._status = Status("starting", console=Console(stderr=True))
        self._status.start()

    def show(self, pool: WorkerPool) -> None:
        now = self._clock.monotonic()
        if now < self._next_show:
            return
        self._next_show = now + _REFRESH_SECONDS
        self._reader.look()
        self._status.update(line(pool, self._reader.depth, now - self._started))

    def close(self) -> None:
        self._status.stop()
        self._reader.close()


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
