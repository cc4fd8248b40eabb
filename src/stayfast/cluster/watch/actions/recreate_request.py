"""Requests for machines that will not be answered any more.

Kueue makes a new request at once for a workload that holds its quota and has none. So a request is deleted only while
Kueue waits for it and does nothing by itself: no pod has a machine, and Kueue has neither planned another try nor given
up. How long a failed request is left alone comes from the times in the objects, so a watch that starts anew waits too.
"""

from __future__ import annotations

from collections.abc import Iterator

from stayfast.clock import seconds_at
from stayfast.cluster.diagnosis.causes.provisioning import FAILURES, next_try, workload_behind
from stayfast.cluster.diagnosis.workload_view import pods_of
from stayfast.cluster.kubernetes.client import Object
from stayfast.cluster.kubernetes.resources import JOB_SETS, JOBS, PODS, PROVISIONING_REQUESTS
from stayfast.cluster.observed.objects import condition, meta, spec_of, status_of
from stayfast.cluster.observed.pod_endings import ending_of
from stayfast.cluster.observed.snapshot import Snapshot
from stayfast.cluster.watch.actions.action import (
    LONGEST_PAUSE_SECONDS,
    PAUSE_SECONDS,
    Action,
    PlannedAction,
    Verb,
    WatchInput,
    remove,
)
from stayfast.documents.lookup import mappings
from stayfast.text.safe import line

RECREATE_REQUEST = "recreate-request"


def recreate_requests(look: WatchInput) -> Iterator[PlannedAction]:
    """Delete it: Kueue makes a new one."""
    observed = look.observed
    if PODS.title in observed.unseen:
        return  # not seeing pods is not the same as there being none
    for request in observed.of(PROVISIONING_REQUESTS):
        found = look.diagnoses.of(request)
        workload = workload_behind(observed, request)
        if workload is None or not _waits_for_it(observed, workload):
            continue
        kind = FAILURES.get(found.code)
        if found.code == "provisioning-stuck" or (kind and _was_left_alone(workload, request, kind, observed.now)):
            name, namespace, uid = (str(meta(request).get(key) or "") for key in ("name", "namespace", "uid"))
            sentence = line(f"request {name} is deleted: {found.cause}")
            yield PlannedAction(
                RECREATE_REQUEST, namespace, name, uid, sentence, (remove(PROVISIONING_REQUESTS, request),)
            )


def _waits_for_it(observed: Snapshot, workload: Object) -> bool:
    """Kueue holds the quota and waits for this request alone, and no pod of the run has a machine."""
    if spec_of(workload).get("active") is False or condition(workload, "QuotaReserved") is None:
        return False
    if any(condition(workload, kind) for kind in ("Admitted", "Evicted", "Finished")):
        return False
    is_rejected = any(row.get("state") == "Rejected" for row in mappings(status_of(workload).get("admissionChecks")))
    if is_rejected or next_try(workload, observed.now) is not None:
        return False
    roots = [root for _, root in observed.owners_of(workload, JOB_SETS, JOBS)]
    pods = [pod for root in roots for pod in pods_of(observed, root)]
    return bool(roots) and not any(ending_of(pod) is None and spec_of(pod).get("nodeName") for pod in pods)


def _was_left_alone(workload: Object, request: Object, kind: str, now: float) -> bool:
    """Five minutes at first; then as long as the workload had held its quota before, so each pause is twice the last.

    The next request fails at the end of a pause, and half of the time since the quota was reserved is the next pause.
    """
    failed = seconds_at((condition(request, kind) or {}).get("lastTransitionTime"))
    reserved = seconds_at((condition(workload, "QuotaReserved") or {}).get("lastTransitionTime"))
    if failed is None or reserved is None:
        return False
    return now - failed >= min(LONGEST_PAUSE_SECONDS, max(PAUSE_SECONDS, (now - reserved) / 2))


ACTION = Action(
    RECREATE_REQUEST,
    "delete a request for machines that is stuck or has failed and Kueue does not retry",
    ((PROVISIONING_REQUESTS, Verb.DELETE),),
    recreate_requests,
)
