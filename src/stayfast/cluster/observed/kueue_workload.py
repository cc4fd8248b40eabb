"""What Kueue holds of a Job or JobSet: its Workload, and how many wait before it."""

from __future__ import annotations

from stayfast.cluster.kubernetes.client import Object
from stayfast.cluster.kubernetes.resources import WORKLOADS
from stayfast.cluster.observed.objects import condition, meta, spec_of
from stayfast.cluster.observed.snapshot import Snapshot
from stayfast.documents.lookup import number


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
