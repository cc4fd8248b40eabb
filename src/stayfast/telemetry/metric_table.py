"""Every metric that stayfast serves, in one table.

Nothing is counted for the sake of metrics: a scrape reads what the runtime keeps anyway, so that a training loop pays
nothing for being watched.
"""

from __future__ import annotations

from stayfast.telemetry.prometheus import Metric

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
WATCH_METRICS = (
    Metric("stayfast_build_info", "gauge", ("version",), "version of stayfast"),
    Metric("stayfast_runs", "gauge", ("namespace", "phase"), "runs by phase"),
    Metric("stayfast_interrupted_pods", "gauge", ("namespace", "cause"), "interrupted pods that still exist"),
    Metric("stayfast_oldest_pending_seconds", "gauge", ("namespace",), "age of the oldest waiting pod"),
    Metric("stayfast_alerts", "gauge", ("namespace", "code"), "alerts that hold now"),
    Metric("stayfast_watch_last_look_timestamp_seconds", "gauge", (), "when the watch last looked"),
    Metric("stayfast_watch_actions_total", "counter", (), "actions since the start"),
    Metric("stayfast_watch_alerts_total", "counter", (), "alerts since the start"),
    Metric("stayfast_watch_cluster_events_total", "counter", (), "cluster_events since the start"),
    Metric("stayfast_watch_failed_sends_total", "counter", (), "failed_sends since the start"),
    Metric("stayfast_watch_looks_total", "counter", (), "looks since the start"),
)
"""What ``stayfast watch`` serves about a cluster."""
