"""Kueue: metadata in the place where Kueue looks, names that resolve, resources and quotas that fit."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from holdfast.documents.tree import Path
from holdfast.lint.bundle import Bundle, same_namespace
from holdfast.lint.finding import ERROR, WARNING, Edit, Fix, Hit
from holdfast.lint.objects import Item, dig, items, mapping, text
from holdfast.lint.profile import GPU, PROVREQ_PREFIX, QUEUE_LABEL, TPU, Pod
from holdfast.lint.quantity import quantity
from holdfast.lint.rule import BUNDLE, POD, rule
from holdfast.lint.workloads import GANGS

_LABELS_PODS = frozenset(("Pod", "Deployment", "StatefulSet", "LeaderWorkerSet", "PodTemplate"))


@rule("HF304", "kueue-metadata-misplaced", POD)
def kueue_metadata_misplaced(pod: Pod, _bundle: Bundle) -> Iterator[Hit]:
    """Kueue labels and annotations where Kueue does not look."""
    item = pod.item
    if QUEUE_LABEL in item.annotations:
        yield Hit(
            ("metadata", "annotations", QUEUE_LABEL),
            f"{QUEUE_LABEL} is a label: as an annotation Kueue never sees it",
            ERROR,
            _move(item, ("metadata", "annotations"), QUEUE_LABEL, "labels"),
        )
    if pod.kind not in _LABELS_PODS:
        template: Path = (*pod.path, "metadata")
        for field, values in (("labels", pod.labels), ("annotations", pod.annotations)):
            if QUEUE_LABEL in values and not pod.queue:
                yield Hit(
                    (*template, field, QUEUE_LABEL),
                    f"Kueue reads {QUEUE_LABEL} on the {pod.kind} itself, not on the pod template: the job does "
                    "not queue",
                    ERROR,
                    _move(item, (*template, field), QUEUE_LABEL, "labels"),
                )
        for key in pod.annotations:
            if isinstance(key, str) and key.startswith(PROVREQ_PREFIX):
                yield Hit(
                    (*template, "annotations", key),
                    f"Kueue reads {key} on the {pod.kind} itself, not on the pod template: the value has no effect",
                    ERROR,
                    _move(item, (*template, "annotations"), key, "annotations"),
                )
    job = pod.template.job
    if pod.kind == "Job" and job is not None and job.spec.get("suspend") is True and not _has_queue(pod):
        yield Hit(
            (*job.path, "suspend"), f"suspended and without the label {QUEUE_LABEL}: nobody will ever start it", ERROR
        )


def _has_queue(pod: Pod) -> bool:
    return bool(pod.queue) or QUEUE_LABEL in pod.labels or QUEUE_LABEL in {**pod.item.annotations, **pod.annotations}


def _move(item: Item, source: Path, key: str, target: str) -> Fix:
    value = mapping(dig(item.value, *source)).get(key)
    existing = item.metadata.get(target)
    add = (
        Edit("set", ("metadata", target), value, key=key)
        if isinstance(existing, dict)
        else Edit("set", ("metadata",), {key: value}, key=target)
    )
    return Fix((Edit("remove", (*source, key)), add), safe=False)


@rule("HF305", "kueue-chain-unresolved", BUNDLE)
def kueue_chain_unresolved(bundle: Bundle, _same: Bundle) -> Iterator[Hit]:
    """A link of LocalQueue, ClusterQueue, ResourceFlavor, AdmissionCheck, ProvisioningRequestConfig leads nowhere."""
    for pod_item in {id(pod.item): pod for pod in bundle.pods if pod.queue}.values():
        queues = [
            item for item in bundle.of_kind("LocalQueue") if same_namespace(item.namespace, pod_item.item.namespace)
        ]
        if queues and not any(item.name == pod_item.queue for item in queues):
            yield Hit(
                ("metadata", "labels", QUEUE_LABEL),
                f"there is no LocalQueue {pod_item.queue} in this bundle (there is: "
                f"{', '.join(i.name for i in queues)})",
                ERROR if any(item.file == pod_item.item.file for item in queues) else WARNING,
                item=pod_item.item,
            )
    for queue in bundle.of_kind("LocalQueue"):
        yield from _link(bundle, queue, ("spec", "clusterQueue"), "ClusterQueue", queue.spec.get("clusterQueue"))
    for queue in bundle.of_kind("ClusterQueue"):
        for path, name in _flavors(queue):
            yield from _link(bundle, queue, path, "ResourceFlavor", name)
        for path, name in _checks(queue):
            yield from _link(bundle, queue, path, "AdmissionCheck", name)
    for check in bundle.of_kind("AdmissionCheck"):
        kind = text(dig(check.spec, "parameters", "kind"))
        if kind in ("ProvisioningRequestConfig", "MultiKueueConfig"):
            yield from _link(bundle, check, ("spec", "parameters", "name"), kind, dig(check.spec, "parameters", "name"))


def _link(bundle: Bundle, item: Item, path: Path, kind: str, name: Any) -> Iterator[Hit]:
    known = [found.name for found in bundle.of_kind(kind)]
    if known and isinstance(name, str) and name not in known:
        yield Hit(path, f"there is no {kind} {name} in this bundle (there is: {', '.join(known)})", ERROR, item=item)


def _groups(queue: Item) -> Iterator[tuple[Path, dict[str, Any]]]:
    for index, group in enumerate(items(queue.spec.get("resourceGroups"))):
        yield ("spec", "resourceGroups", index), mapping(group)


def _flavors(queue: Item) -> Iterator[tuple[Path, Any]]:
    for path, group in _groups(queue):
        for index, flavor in enumerate(items(group.get("flavors"))):
            yield (*path, "flavors", index, "name"), mapping(flavor).get("name")


def _checks(queue: Item) -> Iterator[tuple[Path, Any]]:
    for index, name in enumerate(items(queue.spec.get("admissionChecks"))):
        yield ("spec", "admissionChecks", index), name
    for index, entry in enumerate(items(dig(queue.spec, "admissionChecksStrategy", "admissionChecks"))):
        yield ("spec", "admissionChecksStrategy", "admissionChecks", index, "name"), mapping(entry).get("name")


def _requested(pod: Pod) -> dict[str, float]:
    names: dict[str, None] = {}
    for container in pod.containers:
        names |= dict.fromkeys((*container.requests, *container.limits))
    return {name: pod.request(name) for name in names if isinstance(name, str)}


@rule("HF306", "kueue-uncovered-resource", POD)
def kueue_uncovered_resource(pod: Pod, bundle: Bundle) -> Iterator[Hit]:
    """A requested resource that the ClusterQueue does not cover."""
    queue = bundle.cluster_queue(pod)
    if queue is None:
        return
    covered = {name for _, group in _groups(queue) for name in items(group.get("coveredResources"))}
    if not covered:
        return
    for name in _requested(pod):
        if name not in covered:
            container = next(entry for entry in pod.containers if entry.mentions(name))
            field = "requests" if name in container.requests else "limits"
            yield Hit(
                (*container.path, "resources", field, name),
                f"ClusterQueue {queue.name} does not cover {name}: the workload is never admitted (unless Kueue is "
                "configured to leave it out)",
                ERROR if name in ("cpu", "memory", GPU, TPU) else WARNING,
            )


@rule("HF603", "over-quota", POD)
def over_quota(pod: Pod, bundle: Bundle) -> Iterator[Hit]:
    """More than the queue will ever have, or more than the configured cap."""
    count = pod.template.pods
    if count is None or count < 1:
        return
    path = _parallelism_path(pod)
    cap = bundle.settings.max_accelerators
    total = pod.accelerators * count
    if cap is not None and total > cap:
        yield Hit(path, f"{count} pods ask for {total:g} accelerators, above the cap of {cap}", WARNING)
    queue = bundle.cluster_queue(pod)
    if queue is None or queue.spec.get("cohort") or queue.spec.get("cohortName"):
        return
    minimum = "kueue.x-k8s.io/job-min-parallelism" in pod.item.annotations
    for name, amount in _requested(pod).items():
        largest = _largest_quota(queue, name)
        if largest is not None and amount * count > largest and not minimum:
            yield Hit(
                path,
                f"{count} x {amount:g} {name} is more than the {largest:g} that ClusterQueue {queue.name} has in any "
                "flavor, and it is in no cohort: never admitted",
                ERROR,
            )


def _largest_quota(queue: Item, name: str) -> float | None:
    quotas = []
    for _, group in _groups(queue):
        for flavor in items(group.get("flavors")):
            for resource in items(mapping(flavor).get("resources")):
                found = mapping(resource)
                quotas += [quantity(found.get("nominalQuota"))] if found.get("name") == name else []
    known = [quota for quota in quotas if quota is not None]
    return max(known) if known and len(known) == len(quotas) else None


def _parallelism_path(pod: Pod) -> Path:
    job = pod.template.job
    if job is not None and "parallelism" in job.spec:
        return (*job.path, "parallelism")
    if pod.kind in GANGS or "replicas" not in pod.item.spec:
        return pod.path
    return ("spec", "replicas")
