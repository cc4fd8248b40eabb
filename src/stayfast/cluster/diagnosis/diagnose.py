"""Why a workload does not run: the layers are asked from the end backwards, and the first answer counts."""

from __future__ import annotations

from collections.abc import Iterator

from stayfast.clock import seconds_at
from stayfast.cluster.diagnosis.causes.containers import explain_containers
from stayfast.cluster.diagnosis.causes.creation import (
    budget_notes,
    explain_creation,
    explain_deployment,
    explain_terminating,
)
from stayfast.cluster.diagnosis.causes.endings import explain_ending
from stayfast.cluster.diagnosis.causes.provisioning import explain_request
from stayfast.cluster.diagnosis.causes.queueing import explain_suspension
from stayfast.cluster.diagnosis.causes.scheduling import explain_gate, explain_scheduling
from stayfast.cluster.diagnosis.diagnosis import REPLACEMENT_WAIT, Diagnosis, Verdict
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
from stayfast.cluster.observed.objects import age_seconds, condition, meta, owner_uids, spec_of, status_of, title
from stayfast.cluster.observed.pod_endings import ending_of
from stayfast.cluster.observed.snapshot import Snapshot
from stayfast.model.labels import RUN_LABEL
from stayfast.text.safe import line
from stayfast.text.units import duration

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
    """The cause, from everything that was observed."""
    found = next(_diagnoses(observed, root), None) or Diagnosis(
        "unknown", Verdict.ACT, "nothing that was observed says why", (line(title(root), "exists"),),
        f"run: kubectl describe {str(root.get('kind', '')).lower()} {meta(root).get('name')} "
        f"-n {meta(root).get('namespace')}",
    )  # fmt: skip
    pods = pods_of(observed, root)
    notes = [*found.also, *budget_notes(observed, [pod for pod in pods if ending_of(pod) is None])]
    if found.verdict is not Verdict.FINE:
        notes += [f"{name} could not be read: {why}" for name, why in observed.unseen.items() if _is_relevant(name)]
    return found._replace(also=tuple(notes))


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


def _diagnoses(observed: Snapshot, root: Object) -> Iterator[Diagnosis]:
    kind = root.get("kind")
    if kind == "Pod":
        yield from _pod_answers(observed, [root])
        return
    if kind in ("Workload", "ProvisioningRequest"):
        yield from _queue_answers(observed, root)
        return
    if kind == "Deployment":
        yield from _pod_answers(observed, [pod for pod in pods_of(observed, root) if ending_of(pod) is None])
        yield explain_deployment(observed, root)
        return
    for found in (explain_ending(observed, root), explain_suspension(observed, root)):
        if found is not None:
            yield found
    jobs = jobs_of(observed, root)
    if kind == "JobSet":
        if not jobs:
            yield _jobset_without_jobs(observed, root)
            return
        for job in jobs:
            found = explain_suspension(observed, job) if spec_of(job).get("suspend") else None
            if found is not None and found.code != "suspended":
                yield found
    pods = pods_of(observed, root)
    alive = [pod for pod in pods if ending_of(pod) is None]
    yield from _pod_answers(observed, alive)
    for job in jobs:
        found = (explain_ending(observed, job) if kind == "JobSet" else None) or explain_creation(observed, job)
        if found is not None and found.code != "finished":
            yield found


def _queue_answers(observed: Snapshot, root: Object) -> Iterator[Diagnosis]:
    """A request for machines speaks for itself; a Workload for the Job that it mirrors."""
    if root.get("kind") == "ProvisioningRequest":
        yield explain_request(observed, root) or Diagnosis(
            "provisioned", Verdict.FINE, "the machines are there", (line(title(root), "Provisioned=True"),),
            "ask about its run instead",
        )  # fmt: skip
        return
    for resource in (JOB_SETS, JOBS):
        for item in observed.of(resource):
            if str(meta(item).get("uid") or "") in owner_uids(root):
                yield diagnose(observed, item)


def _pod_answers(observed: Snapshot, pods: list[Object]) -> Iterator[Diagnosis]:
    """The pod that is furthest from running answers for all."""
    if len(pods) == 1 and ending_of(pods[0]) is not None:
        end = ending_of(pods[0])
        assert end is not None
        yield Diagnosis(
            "pod-ended", Verdict.FINE if end.code == 0 else Verdict.ACT, f"the pod has ended: {end.outcome.value}",
            (end.evidence,), "ask about its Job instead",
        )  # fmt: skip
        return
    found = explain_terminating(observed, pods)
    if found is not None:
        yield found
    waiting = [pod for pod in pods if not _runs(pod)]
    for pod in waiting:
        for answer in (explain_gate(pod), explain_scheduling(observed, pod), explain_containers(observed, pod)):
            if answer is not None:
                yield _with_pod_counts(answer, waiting, pods)
    if waiting:
        pod = waiting[0]
        yield Diagnosis(
            "not-seen-yet", Verdict.WAIT, "the scheduler has not looked at the pod yet",
            (line(title(pod), "Pending for", duration(age_seconds(pod, observed.now))),), "wait", "seconds",
        )  # fmt: skip
    elif pods:
        yield _explain_running(observed, pods)


def _with_pod_counts(answer: Diagnosis, waiting: list[Object], pods: list[Object]) -> Diagnosis:
    if len(pods) < 2:
        return answer
    return answer._replace(evidence=(*answer.evidence, f"{len(waiting)} of {len(pods)} pods do not run"))


def _runs(pod: Object) -> bool:
    return status_of(pod).get("phase") == "Running" and not any(
        isinstance(row, dict) and isinstance(row.get("state"), dict) and "waiting" in row["state"]
        for row in status_of(pod).get("containerStatuses") or []
    )


def _explain_running(observed: Snapshot, pods: list[Object]) -> Diagnosis:
    starts = [seconds_at(status_of(pod).get("startTime")) for pod in pods]
    oldest = min((start for start in starts if start is not None), default=observed.now)
    lines = [line(title(pod), "Running on", spec_of(pod).get("nodeName")) for pod in pods[:3]]
    targeted = [pod for pod in pods if condition(pod, "DisruptionTarget")]
    for pod in targeted[:3]:
        found = condition(pod, "DisruptionTarget") or {}
        lines.append(line(title(pod), "DisruptionTarget", found.get("reason"), "·", found.get("message")))
    if targeted:
        return Diagnosis(
            "being-interrupted", Verdict.WAIT, "it is being interrupted at this moment", tuple(lines), "wait",
            REPLACEMENT_WAIT,
        )  # fmt: skip
    words = f"it runs: {len(pods)} pod{'s' * (len(pods) > 1)}, for {duration(observed.now - oldest)}"
    return Diagnosis("running", Verdict.FINE, words, tuple(lines), "nothing to do")


def _jobset_without_jobs(observed: Snapshot, root: Object) -> Diagnosis:
    events = observed.events_of(root)
    lines = tuple(line(title(root), event.get("reason"), "·", event.get("message")) for event in events[:3])
    late = age_seconds(root, observed.now) > 60
    return Diagnosis(
        "jobset-without-jobs", Verdict.ACT if late else Verdict.WAIT, "the JobSet has made no Job",
        lines or (line(title(root), "no Jobs, no events"),),
        "check that the JobSet controller runs: kubectl get pods -n jobset-system", "a few seconds",
    )  # fmt: skip


def _is_relevant(title_of_kind: str) -> bool:
    return title_of_kind in (EVENTS.title, PODS.title, JOBS.title, NODES.title)
