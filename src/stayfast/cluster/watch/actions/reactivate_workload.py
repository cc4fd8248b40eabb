"""Workloads that Kueue itself took out of the queue for a reason that passes.

Setting ``spec.active`` back to true is not enough: Kueue 0.19 leaves such a workload out of its queue (``Requeued``
stays false). It makes a new Workload, and a new request for machines, when this one is deleted. What is counted is
therefore written on the Job or JobSet, which stays.
"""

from __future__ import annotations

from collections.abc import Iterator

from stayfast.clock import seconds_at, to_rfc3339
from stayfast.cluster.diagnosis.workload_view import pods_of
from stayfast.cluster.kubernetes.client import Object
from stayfast.cluster.kubernetes.resources import JOB_SETS, JOBS, PODS, WORKLOADS, Resource
from stayfast.cluster.observed.kueue_workload import is_out, why_stopped
from stayfast.cluster.observed.objects import condition, meta, spec_of
from stayfast.cluster.observed.pod_endings import ending_of
from stayfast.cluster.watch.actions.action import (
    LONGEST_PAUSE_SECONDS,
    PAUSE_SECONDS,
    Action,
    PlannedAction,
    Verb,
    WatchInput,
    annotation,
    patch,
    remove,
)
from stayfast.model.labels import REACTIVATED_AT, REACTIVATIONS
from stayfast.text.safe import line

REACTIVATE = "reactivate-workload"
RESET_AFTER_SECONDS = 86_400.0
"""After a day without, the pauses start small again."""


def reactivate_workloads(look: WatchInput) -> Iterator[PlannedAction]:
    """Delete the Workload: Kueue queues the run again."""
    observed = look.observed
    if PODS.title in observed.unseen:
        return  # not seeing pods is not the same as there being none
    for workload in observed.of(WORKLOADS):
        why = why_stopped(observed, workload)
        found = next(iter(observed.owners_of(workload, JOB_SETS, JOBS)), None)
        since = seconds_at((condition(workload, "Evicted") or {}).get("lastTransitionTime"))
        if not why or found is None or since is None or not is_out(workload) or condition(workload, "Finished"):
            continue
        kind, root = found
        has_machine = any(ending_of(pod) is None and spec_of(pod).get("nodeName") for pod in pods_of(observed, root))
        if not has_machine and observed.now - since >= _pause_seconds(root, observed.now):
            yield _begin_anew(workload, kind, root, why, observed.now)


def _tries(root: Object, now: float) -> int:
    last, count = seconds_at(annotation(root, REACTIVATED_AT)), annotation(root, REACTIVATIONS)
    fresh = last is not None and now - last < RESET_AFTER_SECONDS
    return int(count) if fresh and count.isascii() and count.isdecimal() and len(count) < 6 else 0


def _pause_seconds(root: Object, now: float) -> float:
    return float(min(LONGEST_PAUSE_SECONDS, PAUSE_SECONDS * 2 ** min(_tries(root, now), 16)))


def _begin_anew(workload: Object, kind: Resource, root: Object, why: str, now: float) -> PlannedAction:
    name, namespace = str(meta(workload).get("name")), str(meta(workload).get("namespace"))
    marks = {REACTIVATED_AT: to_rfc3339(now), REACTIVATIONS: str(_tries(root, now) + 1)}
    steps = (patch(kind, root, {"metadata": {"annotations": marks}}), remove(WORKLOADS, workload))
    sentence = line(f"workload {name} is deleted, and Kueue queues its run again: it had stopped it ({why})")
    return PlannedAction(REACTIVATE, namespace, name, str(meta(workload).get("uid")), sentence, steps)


ACTION = Action(
    REACTIVATE,
    "put a run back into its queue that Kueue stopped: machines taken back, or too many tries",
    ((WORKLOADS, Verb.DELETE), (JOBS, Verb.PATCH), (JOB_SETS, Verb.PATCH)),
    reactivate_workloads,
)
