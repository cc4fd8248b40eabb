"""What belongs to one workload in a snapshot, worked out once: its Jobs, its pods, and those that still live."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from stayfast.cluster.diagnosis.diagnosis import Diagnosis
from stayfast.cluster.kubernetes.client import Object
from stayfast.cluster.kubernetes.resources import JOBS, PODS
from stayfast.cluster.observed.objects import meta
from stayfast.cluster.observed.pod_endings import ending_of
from stayfast.cluster.observed.snapshot import Snapshot


class WorkloadView(NamedTuple):
    """A Job, JobSet, Deployment, pod or queue object with what is below it."""

    root: Object
    jobs: list[Object]
    """Newest last."""
    pods: list[Object]
    live_pods: list[Object]
    """Those that have not ended."""

    @property
    def kind(self) -> str:
        """Of the root."""
        return str(self.root.get("kind"))

    @property
    def makes_pods_by_jobs(self) -> bool:
        """A Job or a JobSet."""
        return self.kind not in ("Deployment", "Pod", "Workload", "ProvisioningRequest")


class Diagnoser(Protocol):
    """One cause: a pure function that gives its answer, or nothing where another cause has to be asked."""

    def __call__(self, observed: Snapshot, view: WorkloadView, /) -> Diagnosis | None: ...


def view_of(observed: Snapshot, root: Object) -> WorkloadView:
    """Everything below the root."""
    pods = pods_of(observed, root)
    return WorkloadView(root, jobs_of(observed, root), pods, [pod for pod in pods if ending_of(pod) is None])


def jobs_of(observed: Snapshot, root: Object) -> list[Object]:
    """The Jobs below it, newest last."""
    if root.get("kind") == "Job":
        return [root]
    return sorted(observed.owned_by(JOBS, root), key=lambda job: str(meta(job).get("creationTimestamp", "")))


def pods_of(observed: Snapshot, root: Object) -> list[Object]:
    """The pods below it."""
    if root.get("kind") == "Pod":
        return [root]
    if root.get("kind") == "Deployment":
        return observed.selected_by(root)
    return [pod for job in jobs_of(observed, root) for pod in observed.owned_by(PODS, job)]
