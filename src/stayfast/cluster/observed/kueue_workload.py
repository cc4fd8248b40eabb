"""What Kueue holds of a Job or JobSet: its Workload, how many wait before it, and why Kueue has stopped it."""

from __future__ import annotations

import re

from stayfast.cluster.kubernetes.client import Object
from stayfast.cluster.kubernetes.resources import PROVISIONING_REQUESTS, WORKLOADS
from stayfast.cluster.observed.objects import condition, meta, spec_of
from stayfast.cluster.observed.snapshot import Snapshot
from stayfast.documents.lookup import number

_BY_KUEUE = "DeactivatedDueTo"
"""A person's own deactivation has the reason ``Deactivated``, and stays."""
_WORTH_ANOTHER_TRY = ("RequeuingLimitExceeded", "MaximumExecutionTimeExceeded")
_MACHINES_GONE = ("CapacityRevoked", "BookingExpired", "Failed")
_TAKEN_BACK = re.compile(r"\bcapacity\b.*\b(?:reclaimed|revoked)\b", re.IGNORECASE | re.DOTALL)
"""GKE's words, which Kueue repeats when it stops the workload; the request itself is deleted by then."""


def is_suspended(root: Object) -> bool:
    """Whether somebody holds the Job or JobSet back."""
    return spec_of(root).get("suspend") is True


def workload_of(observed: Snapshot, root: Object) -> Object | None:
    """Kueue's mirror of it; the newest, if there are several."""
    found = observed.owned_by(WORKLOADS, root)
    return max(found, key=lambda item: str(meta(item).get("creationTimestamp", "")), default=None)


def queue_position(observed: Snapshot, workload: Object) -> int | None:
    """How many wait before it in the same local queue, counted by age; Kueue's own order may differ by priority."""
    queue, place = spec_of(workload).get("queueName"), meta(workload).get("namespace")
    mine = (-number(spec_of(workload).get("priority"), 0), str(meta(workload).get("creationTimestamp", "")))
    ahead = 0
    for other in observed.of(WORKLOADS):
        same = spec_of(other).get("queueName") == queue and meta(other).get("namespace") == place
        if (
            same
            and other is not workload
            and not condition(other, "QuotaReserved")
            and not condition(other, "Finished")
        ):
            theirs = (-number(spec_of(other).get("priority"), 0), str(meta(other).get("creationTimestamp", "")))
            ahead += theirs < mine
    return ahead


def is_out(workload: Object) -> bool:
    """Kueue has taken its quota back."""
    return condition(workload, "Evicted") is not None and condition(workload, "QuotaReserved") is None


def why_stopped(observed: Snapshot, workload: Object) -> str:
    """The reason that passes for which Kueue deactivated it, else nothing; all others are left to a person."""
    evicted = condition(workload, "Evicted") or {}
    reason = str(evicted.get("reason") or "")
    if spec_of(workload).get("active") is not False or not reason.startswith(_BY_KUEUE):
        return ""
    reason = reason.removeprefix(_BY_KUEUE)
    if reason == "AdmissionCheck":
        return _lost_machines(observed, workload, str(evicted.get("message") or ""))
    return reason if reason in _WORTH_ANOTHER_TRY else ""


def _lost_machines(observed: Snapshot, workload: Object, message: str) -> str:
    """What the newest request says, or what Kueue has kept of it."""
    requests = observed.owned_by(PROVISIONING_REQUESTS, workload)
    newest = max(requests, key=lambda item: str(meta(item).get("creationTimestamp", "")), default=None)
    if newest is None:
        return _MACHINES_GONE[0] if _TAKEN_BACK.search(message) else ""
    return next((kind for kind in _MACHINES_GONE if condition(newest, kind)), "")
