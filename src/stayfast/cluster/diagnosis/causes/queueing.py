"""A workload that waits in a queue: Kueue's conditions, its admission checks, and the request for machines."""

from __future__ import annotations

import re
from typing import Any

from stayfast.capacity.machines.gke_keys import QUEUE_LABEL
from stayfast.cluster.diagnosis.causes.provisioning import request_status
from stayfast.cluster.diagnosis.diagnosis import Diagnosis, Verdict
from stayfast.cluster.diagnosis.workload_view import WorkloadView
from stayfast.cluster.kubernetes.client import Object
from stayfast.cluster.kubernetes.resources import CLUSTER_QUEUES, LOCAL_QUEUES, PROVISIONING_REQUESTS, WORKLOADS
from stayfast.cluster.observed.kueue_workload import is_suspended, queue_position, workload_of
from stayfast.cluster.observed.objects import age_seconds, condition, meta, spec_of, status_of, title
from stayfast.cluster.observed.snapshot import Snapshot
from stayfast.text.safe import line

UNSEEN_SECONDS = 300.0


def explain_suspension(observed: Snapshot, view: WorkloadView) -> Diagnosis | None:
    """It is suspended, or in a JobSet one of its Jobs is by Kueue."""
    if not view.makes_pods_by_jobs:
        return None
    found = _explain_suspension(observed, view.root)
    if found is not None or view.kind != "JobSet":
        return found
    answers = (_explain_suspension(observed, job) for job in view.jobs)
    return next((answer for answer in answers if answer is not None and answer.code != "suspended"), None)


def _explain_suspension(observed: Snapshot, root: Object) -> Diagnosis | None:
    """Suspended: by Kueue, or by hand."""
    if not is_suspended(root):
        return None
    queue = (meta(root).get("labels") or {}).get(QUEUE_LABEL)
    if not queue:
        return Diagnosis(
            "suspended", Verdict.ACT, "it is suspended, and no queue will start it",
            (line(title(root), "spec.suspend: true, no label", QUEUE_LABEL),),
            f"start it: kubectl patch {str(root.get('kind')).lower()} {meta(root).get('name')} "
            f"-n {meta(root).get('namespace')} --type merge -p '{{\"spec\":{{\"suspend\":false}}}}'",
        )  # fmt: skip
    workload = workload_of(observed, root)
    if workload is None:
        return _no_workload(observed, root, str(queue))
    return (
        _explain_quota(observed, root, workload, str(queue))
        or _explain_request(observed, workload)
        or _explain_checks(workload)
    )


def _no_workload(observed: Snapshot, root: Object, queue: str) -> Diagnosis:
    lines = (line(title(root), f"suspended with {QUEUE_LABEL}={queue}, and there is no Workload for it"),)
    if WORKLOADS.title in observed.unseen:
        return Diagnosis(
            "no-kueue", Verdict.ACT, "it waits for Kueue, which this cluster does not show",
            (*lines, observed.unseen[WORKLOADS.title]), "install Kueue, or use no queue: stayfast check-cluster",
        )  # fmt: skip
    return Diagnosis(
        "not-in-queue", Verdict.ACT if age_seconds(root, observed.now) > UNSEEN_SECONDS else Verdict.WAIT,
        "Kueue has not taken notice of it", lines,
        "check that Kueue runs and manages this namespace and kind: kubectl get pods -n kueue-system",
        "a few seconds",
    )  # fmt: skip


def _explain_quota(observed: Snapshot, root: Object, workload: Object, queue: str) -> Diagnosis | None:
    if condition(workload, "QuotaReserved") is not None:
        return None
    found = condition(workload, "QuotaReserved", "False") or {}
    message, reason = str(found.get("message", "")), str(found.get("reason", ""))
    lines = [line(title(workload), "QuotaReserved=False", reason, "·", message or "no condition yet")]
    place = str(meta(root).get("namespace", ""))
    if ("LocalQueue" in message and "exist" in message) or _is_missing(observed, queue, place):
        return Diagnosis(
            "queue-missing", Verdict.ACT, f"there is no LocalQueue {queue} in namespace {place}", tuple(lines),
            f"run: kubectl get localqueues -n {place}",
        )  # fmt: skip
    stopped = _stopped(observed, queue, place)
    if stopped or "inactive" in message or "stopped" in message:
        return Diagnosis(
            "queue-stopped", Verdict.ACT, "its queue admits nothing now", (*lines, *stopped),
            "look at the ClusterQueue's Active condition: kubectl describe clusterqueue",
        )  # fmt: skip
    if condition(workload, "Evicted") is not None:
        evicted = condition(workload, "Evicted") or {}
        lines.append(line(title(workload), "Evicted", evicted.get("reason"), "·", evicted.get("message")))
    if reason == "ExceedsMaxQuota" or "maximum capacity" in message or "insufficient quota for" in message:
        return Diagnosis(
            "quota-too-small", Verdict.ACT, "it asks for more than its queue can ever give", tuple(lines),
            "ask for less, or raise the nominal quota of the ClusterQueue",
        )  # fmt: skip
    if "insufficient unused quota" in message:
        ahead = queue_position(observed, workload)
        lines.append(f"{ahead} older or more important workloads wait in the queue {queue}")
        missing = re.search(
            r"insufficient unused quota for ([\w./-]+) in flavor ([\w.-]+), ([\w.]+) more needed", message
        )
        what = f"{missing[3]} more {missing[1]} of flavor {missing[2]}" if missing else "quota"
        return Diagnosis(
            "quota-in-use", Verdict.WAIT, f"others use the quota: it waits for {what}", tuple(lines),
            "wait, raise the quota, or give it more priority",
            "as long as what runs now; see: kubectl get workloads -A",
        )  # fmt: skip
    evicted_by = condition(workload, "Evicted")
    if evicted_by is not None:
        return Diagnosis(
            "queue-preempted", Verdict.WAIT, "Kueue gave its place to another workload", tuple(lines),
            "wait: it is queued again and resumes from its checkpoint", "as long as what runs now",
        )  # fmt: skip
    return Diagnosis(
        "queued", Verdict.WAIT, f"it waits in the queue {queue}", tuple(lines), "wait",
    )  # fmt: skip


def _is_missing(observed: Snapshot, queue: str, namespace: str) -> bool:
    readable = LOCAL_QUEUES.title in observed.tables
    return readable and observed.named(LOCAL_QUEUES, namespace, queue) is None


def _stopped(observed: Snapshot, queue: str, namespace: str) -> tuple[str, ...]:
    local = observed.named(LOCAL_QUEUES, namespace, queue)
    owner = observed.named(CLUSTER_QUEUES, None, str(spec_of(local).get("clusterQueue"))) if local else None
    found = []
    for item in (local, owner):
        if item is not None:
            off = condition(item, "Active", "False")
            if off is not None:
                found.append(line(title(item), "Active=False", off.get("reason"), "·", off.get("message")))
            if spec_of(item).get("stopPolicy") in ("Hold", "HoldAndDrain"):
                found.append(line(title(item), "stopPolicy:", spec_of(item)["stopPolicy"]))
    return tuple(found)


def _explain_request(observed: Snapshot, workload: Object) -> Diagnosis | None:
    requests = observed.owned_by(PROVISIONING_REQUESTS, workload)
    if not requests:
        return None
    return request_status(observed, max(requests, key=lambda item: str(meta(item).get("creationTimestamp", ""))))


def _explain_checks(workload: Object) -> Diagnosis | None:
    rows: list[dict[str, Any]] = [
        row for row in status_of(workload).get("admissionChecks") or [] if isinstance(row, dict)
    ]
    open_rows = [row for row in rows if row.get("state") != "Ready"]
    lines = tuple(
        line(title(workload), f"admission check {row.get('name')}: {row.get('state')}", "·", row.get("message"))
        for row in open_rows
    )
    if any(row.get("state") == "Rejected" for row in open_rows):
        return Diagnosis(
            "admission-rejected", Verdict.ACT, "an admission check has refused it", lines,
            "read the message above; after mending: stayfast cancel, then submit again",
        )  # fmt: skip
    if open_rows:
        return Diagnosis(
            "admission-check", Verdict.WAIT, "its quota is reserved and an admission check is not ready", lines, "wait"
        )
    if condition(workload, "Admitted") is not None:
        return Diagnosis(
            "admitted", Verdict.WAIT, "Kueue has admitted it and is about to start it",
            (line(title(workload), "Admitted=True"),), "wait", "a few seconds",
        )  # fmt: skip
    return None
