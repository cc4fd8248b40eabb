"""Machines whose end is known: the run queues for the next lease when its pods have saved.

Kueue keeps an admitted workload on the machines of its request, and deactivates it (``spec.active: false``) when they
are taken back; nothing makes it active again by itself. A run longer than a lease is therefore a chain: the pods save
and leave before the end, the workload is put back into its queue, and the next request for machines resumes it.
"""

from __future__ import annotations

from collections.abc import Iterator

from stayfast.clock import seconds_at
from stayfast.cluster.diagnosis.workload_view import pods_of
from stayfast.cluster.kubernetes.client import Object
from stayfast.cluster.kubernetes.resources import JOB_SETS, JOBS, WORKLOADS
from stayfast.cluster.observed.kueue_workload import is_out, workload_of
from stayfast.cluster.observed.objects import condition, meta, spec_of
from stayfast.cluster.observed.pod_endings import PodEnding, ending_of
from stayfast.cluster.observed.snapshot import Snapshot
from stayfast.cluster.watch.actions.action import Action, PlannedAction, Verb, WatchInput, annotation, patch
from stayfast.cluster.watch.actions.copy_lease import machine_ends
from stayfast.model.exit_codes import Outcome
from stayfast.model.labels import LEASE_ENDS_AT, REQUEUED_LEASE
from stayfast.model.notice import Cause
from stayfast.text.safe import line

REQUEUE_LEASE = "requeue-lease"

REQUEUE_SECONDS = 3600.0
"""A pod that left because of its lease, this long before the end or less, would only come back to the same machines."""
TOO_SHORT_SECONDS = 900.0
"""A pod that starts on a machine with less left than this can only save and leave again; no lease is this short."""


def requeue_leases(look: WatchInput) -> Iterator[PlannedAction]:
    """Two steps, the second as soon as Kueue has taken the first: out of the lease that ends, back into the queue."""
    observed = look.observed
    ends = machine_ends(observed)
    for root in [*observed.of(JOB_SETS), *observed.of(JOBS)]:
        workload = workload_of(observed, root)
        if workload is None or condition(workload, "Finished"):
            continue
        if spec_of(workload).get("active") is False:
            if annotation(workload, REQUEUED_LEASE) and is_out(workload):
                yield _activate(workload)
        elif condition(workload, "Admitted"):
            ends_at = _left_because_of(observed, pods_of(observed, root), ends)
            if ends_at and annotation(workload, REQUEUED_LEASE) != ends_at:
                yield _deactivate(workload, ends_at)


def _left_because_of(observed: Snapshot, pods: list[Object], ends: dict[str, str]) -> str:
    """The end of the lease that the run has saved and left for; nothing while a pod that did not leave has a machine.

    The report of a pod tells. A JobSet deletes such pods when it starts over. Then the next life tells: nobody gets a
    pod on a machine that has only minutes left, unless the one before has just left it.
    """
    signs = [sign for pod in pods if (sign := _sign(pod, ends, observed.now)) is not None]
    if not signs:
        return ""
    left_at = min(at for at, _ in signs)
    born = (seconds_at(meta(pod).get("creationTimestamp")) for pod in pods if _has_machine(pod))
    return "" if any(at is not None and at < left_at for at in born) else signs[0][1]


def _sign(pod: Object, ends: dict[str, str], now: float) -> tuple[float, str] | None:
    """When a pod left for the end of its lease at the latest, and that end."""
    end = ending_of(pod)
    ends_at = annotation(pod, LEASE_ENDS_AT) or ends.get(str(spec_of(pod).get("nodeName") or ""), "")
    due = seconds_at(ends_at)
    if due is None:
        return None
    born, hopeless = seconds_at(meta(pod).get("creationTimestamp")), due - TOO_SHORT_SECONDS
    if end is None:
        return (hopeless, ends_at) if born is not None and hopeless <= born <= now <= due else None
    is_near = due - REQUEUE_SECONDS <= now <= due + REQUEUE_SECONDS
    return (now if end.at is None else end.at, ends_at) if is_near and _left_for_its_lease(end) else None


def _has_machine(pod: Object) -> bool:
    return ending_of(pod) is None and bool(spec_of(pod).get("nodeName"))


def _left_for_its_lease(end: PodEnding) -> bool:
    return end.report is not None and end.outcome is Outcome.INTERRUPTED and end.cause is Cause.RUN_LIMIT


def _deactivate(workload: Object, ends_at: str) -> PlannedAction:
    name, namespace = str(meta(workload).get("name")), str(meta(workload).get("namespace"))
    change = {"metadata": {"annotations": {REQUEUED_LEASE: ends_at}}, "spec": {"active": False}}
    sentence = line(f"workload {name} gives back machines that end at {ends_at}: its pods have saved and left")
    step = patch(WORKLOADS, workload, change)
    return PlannedAction(REQUEUE_LEASE, namespace, name, str(meta(workload).get("uid")), sentence, (step,), ends_at)


def _activate(workload: Object) -> PlannedAction:
    name, namespace = str(meta(workload).get("name")), str(meta(workload).get("namespace"))
    step = patch(WORKLOADS, workload, {"spec": {"active": True}})
    version = str(meta(workload).get("resourceVersion") or "")
    sentence = line(f"workload {name} has left its lease and queues for the next")
    return PlannedAction(
        REQUEUE_LEASE, namespace, name, str(meta(workload).get("uid")), sentence, (step,), f"active@{version}"
    )


ACTION = Action(
    REQUEUE_LEASE,
    "give back machines whose lease ends, when the pods have saved and left; queue for the next",
    ((WORKLOADS, Verb.PATCH),),
    requeue_leases,
)
