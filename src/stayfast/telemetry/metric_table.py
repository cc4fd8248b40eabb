"""Every metric that stayfast serves, in one table, and the Prometheus text format they are served in.

Nothing is counted for the sake of metrics: a scrape reads what the runtime keeps anyway, so that a training loop pays
nothing for being watched.
"""

from __future__ import annotations

import math
from typing import NamedTuple

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Metric(NamedTuple):
    """One documented metric."""

    name: str
    kind: str
    labels: tuple[str, ...]
    meaning: str


RUN_METRICS = (
    Metric("stayfast_run_info", "gauge", ("run", "attempt", "capacity", "zone"), "always 1; says which run this is"),
    Metric("stayfast_attempts_total", "counter", ("run",), "attempts of the run so far, this one included"),
    Metric(
        "stayfast_interruptions_total",
        "counter",
        ("run", "cause"),
        "attempts that were taken away, by cause; `killed` is one that had no warning",
    ),
    Metric("stayfast_failures_total", "counter", ("run",), "attempts that failed by themselves"),
    Metric(
        "stayfast_safe_seconds",
        "summary",
        ("run",),
        "from a notice until the state was durable, over the interruptions that were saved (sum and count)",
    ),
    Metric("stayfast_notice", "gauge", ("cause",), "1 from the moment a notice arrives"),
    Metric("stayfast_notice_remaining_seconds", "gauge", (), "seconds left before this process must be gone"),
    Metric("stayfast_step", "gauge", ("run",), "the last step that was finished"),
    Metric("stayfast_total_steps", "gauge", ("run",), "the number of steps to do, where it is known"),
    Metric("stayfast_saved_step", "gauge", ("run",), "the last step in a committed checkpoint"),
    Metric("stayfast_step_seconds", "summary", ("run", "quantile"), "time of one step, over the last 256"),
    Metric("stayfast_checkpoints_total", "counter", ("run",), "checkpoints begun by this attempt"),
    Metric("stayfast_checkpoint_failures_total", "counter", ("run",), "saves of this attempt that failed"),
    Metric(
        "stayfast_checkpoint_stall_seconds_total", "counter", ("run",), "how long the loop has waited for checkpoints"
    ),
    Metric(
        "stayfast_checkpoint_persist_seconds_total",
        "counter",
        ("run",),
        "how long it took, beside the loop, to make them durable and commit them",
    ),
    Metric("stayfast_checkpoint_bytes_total", "counter", ("run",), "bytes of state committed by this attempt"),
    Metric("stayfast_checkpoint_size_bytes", "gauge", ("run",), "size of the newest committed checkpoint"),
    Metric("stayfast_checkpoint_age_seconds", "gauge", ("run",), "time since the newest commit"),
    Metric("stayfast_useful_seconds_total", "counter", ("run",), "time of all attempts that led to committed steps"),
    Metric("stayfast_save_seconds_total", "counter", ("run",), "time of all attempts that went into waiting for saves"),
    Metric(
        "stayfast_lost_seconds_total",
        "counter",
        ("run",),
        "work after the newest commit of attempts that left without saving it",
    ),
    Metric(
        "stayfast_unaccounted_seconds_total",
        "counter",
        ("run",),
        "from the last commit of killed attempts to the next start: the work lost there, plus the wait for a machine",
    ),
    Metric("stayfast_paid_seconds_total", "counter", ("run",), "time of all attempts, as far as it is known"),
    Metric("stayfast_goodput_ratio", "gauge", ("run",), "useful share of the paid time"),
    Metric("stayfast_cost_usd_total", "counter", ("run",), "what the priced attempts have cost"),
)
WORKER_METRICS = (
    Metric("stayfast_workers", "gauge", (), "worker processes now"),
    Metric(
        "stayfast_items_total",
        "counter",
        ("outcome",),
        "items by outcome: done, skipped (recorded before), failed, dead, lost (the lease had gone to another worker)",
    ),
    Metric(
        "stayfast_queue_items", "gauge", ("queue", "state"), "items in the queue: ready, delayed, leased, done, dead"
    ),
    Metric(
        "stayfast_queue_oldest_seconds",
        "gauge",
        ("queue",),
        "how long the oldest open item has waited, in order of arrival, since it was first seen from here",
    ),
    Metric("stayfast_queue_up", "gauge", ("queue",), "1 when the last look at the queue succeeded"),
)
METRICS = RUN_METRICS + WORKER_METRICS
_BY_NAME = {metric.name: metric for metric in METRICS}
_SUFFIXES = ("_sum", "_count")


class PrometheusText:
    """Collects samples and writes them down; a name or label that is not in the table is a mistake of ours."""

    def __init__(self) -> None:
        self._lines: dict[str, list[str]] = {}

    def add_sample(self, name: str, value: float | None, **labels: object) -> None:
        """One sample; None is left out."""
        if value is None:
            return
        base = next((name[: -len(end)] for end in _SUFFIXES if name.endswith(end) and name not in _BY_NAME), name)
        metric = _BY_NAME[base]
        assert set(labels) <= set(metric.labels), f"{name} has no label {set(labels) - set(metric.labels)}"
        inside = ",".join(f'{label}="{_escape(str(text))}"' for label, text in labels.items())
        self._lines.setdefault(base, []).append(
            f"{name}{{{inside}}} {_number(value)}" if inside else f"{name} {_number(value)}"
        )

    def render(self) -> bytes:
        """Everything, grouped by metric as the format wants it."""
        lines = []
        for metric in METRICS:
            if metric.name in self._lines:
                lines.append(f"# HELP {metric.name} {metric.meaning}")
                lines.append(f"# TYPE {metric.name} {metric.kind}")
                lines += self._lines[metric.name]
        return ("\n".join(lines) + "\n").encode("utf-8", "replace")


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _number(value: float) -> str:
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return str(int(value)) if float(value).is_integer() and abs(value) < 1e15 else repr(float(value))
