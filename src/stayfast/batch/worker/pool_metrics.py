"""What a scrape of ``stayfast work`` reads: the counters of its workers and its queue, turned into samples."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from stayfast.runtime.runs.run_metrics import add_notice
from stayfast.telemetry.metric_table import METRICS
from stayfast.telemetry.prometheus import PrometheusText

if TYPE_CHECKING:
    from stayfast.batch.queue.depth_reader import QueueDepthReader
    from stayfast.batch.worker.pool import WorkerPool
    from stayfast.runtime.interruption.guard import Guard

LOOK_SECONDS = 5.0


def sample_pool(pool: WorkerPool, guard: Guard, reader: QueueDepthReader) -> PrometheusText:
    """One scrape of ``stayfast work``."""
    out = PrometheusText(METRICS)
    add_notice(out, guard)
    out.add_sample("stayfast_workers", pool.num_workers)
    for outcome, count in pool.tally().as_json().items():
        out.add_sample("stayfast_items_total", count, outcome=outcome)
    reader.look()
    depth = reader.depth
    out.add_sample("stayfast_queue_up", int(depth is not None), queue=reader.name)
    if depth is not None:
        for state, count in asdict(depth).items():
            out.add_sample("stayfast_queue_items", count, queue=reader.name, state=state)
        out.add_sample("stayfast_queue_oldest_seconds", reader.oldest_seconds(), queue=reader.name)
    return out
