"""Why a workload does not run: the layers are asked from the end backwards, and the first answer counts."""

from __future__ import annotations

from functools import cache

from stayfast.cluster.diagnosis.causes.creation import explain_deployment, explain_missing_jobs, explain_missing_pods
from stayfast.cluster.diagnosis.causes.endings import explain_ended_pod, explain_ended_workload
from stayfast.cluster.diagnosis.causes.pods import explain_running, explain_waiting
from stayfast.cluster.diagnosis.causes.provisioning import explain_request
from stayfast.cluster.diagnosis.causes.queueing import explain_suspension
from stayfast.cluster.diagnosis.causes.termination import budget_notes, explain_terminating
from stayfast.cluster.diagnosis.diagnosis import Diagnosis, Verdict
from stayfast.cluster.diagnosis.workload_view import Diagnoser, view_of
from stayfast.cluster.kubernetes.client import Object
from stayfast.cluster.kubernetes.resources import (
    DEPLOYMENTS,
    EVENTS,
    JOB_SETS,
    JOBS,
    NODES,
    PODS,
    PROVISIONING_REQUESTS,
    WORKLOADS,
    Resource,
)
from stayfast.cluster.observed.objects import meta, title
from stayfast.cluster.observed.snapshot import Snapshot
from stayfast.model.labels import RUN_LABEL
from stayfast.registry import Registry
from stayfast.text.safe import line

DIAGNOSERS: tuple[Diagnoser, ...] = (
    explain_ended_pod,
    explain_request,
    explain_ended_workload,
    explain_suspension,
    explain_missing_jobs,
    explain_terminating,
    explain_waiting,
    explain_running,
    explain_missing_pods,
    explain_deployment,
)
"""Asked in this order, and the first answer counts: what is over, then queue, nodes, containers, and last why nothing
was made. Those of installed packages (entry points of the group ``stayfast.diagnosers``) are asked before ours: they
know something particular.
"""
ROOTS = (JOB_SETS, JOBS, DEPLOYMENTS, PODS, WORKLOADS, PROVISIONING_REQUESTS)
_SHORT = {"Deployment": ("deploy",), "Pod": ("po",), "Workload": ("wl",), "ProvisioningRequest": ("provreq", "pr")}


def find_root(observed: Snapshot, name: str, namespace: str | None) -> Object | None:
    """The object that a person means by ``NAME`` or ``KIND/NAME``; a run's name counts too."""
    kind, _, name = name.rpartition("/")
    kinds = [resource for resource in ROOTS if not kind or kind.lower() in _words(resource)]
    for resource in kinds:
        found = observed.named(resource, namespace, name)
        if found is not None:
            return found
    for resource in [resource for resource in kinds if resource in (JOB_SETS, JOBS, DEPLOYMENTS)]:
        labelled = [
            item
            for item in observed.of(resource)
            if (meta(item).get("labels") or {}).get(RUN_LABEL) == name
            and (namespace is None or meta(item).get("namespace") == namespace)
        ]
        if labelled:
            return max(labelled, key=lambda item: str(meta(item).get("creationTimestamp", "")))
    return None


def _words(resource: Resource) -> tuple[str, ...]:
    """How people name a kind, as kubectl understands them."""
    title_of = resource.kind.lower()
    return (title_of, resource.plural, f"{title_of}.{resource.group}", resource.title, *_SHORT.get(resource.kind, ()))


def diagnose(observed: Snapshot, root: Object) -> Diagnosis:
    """The cause, from everything that was observed; a Workload of Kueue speaks for the Job that it mirrors."""
    view = view_of(observed, _mirrored(observed, root))
    answers = (diagnoser(observed, view) for diagnoser in (*_installed(), *DIAGNOSERS))
    found = next((answer for answer in answers if answer is not None), None) or Diagnosis(
        "unknown", Verdict.ACT, "nothing that was observed says why", (line(title(root), "exists"),),
        f"run: kubectl describe {str(root.get('kind', '')).lower()} {meta(root).get('name')} "
        f"-n {meta(root).get('namespace')}",
    )  # fmt: skip
    notes = [*found.also, *budget_notes(observed, view.live_pods)]
    if found.verdict is not Verdict.FINE:
        notes += [f"{name} could not be read: {why}" for name, why in observed.unseen.items() if _is_relevant(name)]
    return found._replace(also=tuple(notes))


class Diagnoses:
    """The diagnoses of one snapshot: each is made when it is first asked for, and then the same for everybody."""

    def __init__(self, observed: Snapshot) -> None:
        self._observed = observed
        self._known: dict[int, Diagnosis] = {}

    def of(self, root: Object) -> Diagnosis:
        """Of an object of the snapshot."""
        if id(root) not in self._known:
            self._known[id(root)] = diagnose(self._observed, root)
        return self._known[id(root)]


@cache
def _installed() -> tuple[Diagnoser, ...]:
    added: Registry[Diagnoser] = Registry("stayfast.diagnosers", {})
    return tuple(part for name in added.installed_names() if (part := added.find(name)) is not None)


def _mirrored(observed: Snapshot, root: Object) -> Object:
    owners = observed.owners_of(root, JOB_SETS, JOBS) if root.get("kind") == "Workload" else []
    return owners[0][1] if owners else root


def _is_relevant(title_of_kind: str) -> bool:
    return title_of_kind in (EVENTS.title, PODS.title, JOBS.title, NODES.title)
