"""Kueue: metadata in the place where Kueue looks, names that resolve, resources and quotas that fit."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from stayfast.capacity.machines.gke_keys import PROVREQ_PREFIX, QUEUE_LABEL
from stayfast.documents.editor import Edit
from stayfast.documents.lookup import dig, items, mapping, text
from stayfast.documents.positions import Path
from stayfast.lint.finding import ERROR, WARNING, Fix, Hit
from stayfast.lint.objects.bundle import Bundle, same_namespace
from stayfast.lint.objects.objects import ManifestObject
from stayfast.lint.objects.pod import GPU, TPU, PodProfile
from stayfast.lint.objects.workloads import GANG_KINDS
from stayfast.lint.rule import BUNDLE, OBJECT, POD, rule
from stayfast.text.units import quantity

_LABELS_PODS = frozenset(("Pod", "Deployment", "StatefulSet", "LeaderWorkerSet", "PodTemplate"))


@rule("SF304", "kueue-metadata-misplaced", POD)
def kueue_metadata_misplaced(pod: PodProfile, bundle: Bundle) -> Iterator[Hit]:
    """Kueue labels and annotations where Kueue does not look."""
    if QUEUE_LABEL in pod.owner_annotations:
        yield Hit(
            (*pod.owner_path, "annotations", QUEUE_LABEL),
            f"{QUEUE_LABEL} is a label: as an annotation Kueue never sees it",
            ERROR,
            _move(pod, (*pod.owner_path, "annotations"), QUEUE_LABEL, "labels"),
        )
    if pod.kind == "CronJob":
        yield from _on_the_cron_job(pod)
    if pod.kind not in _LABELS_PODS:
        template: Path = (*pod.path, "metadata")
        for field, values in (("labels", pod.labels), ("annotations", pod.annotations)):
            if QUEUE_LABEL in values and not pod.queue:
                yield Hit(
                    (*template, field, QUEUE_LABEL),
                    f"Kueue reads {QUEUE_LABEL} on the {pod.kind} itself, not on the pod template: the job does "
                    "not queue",
                    ERROR,
                    _move(pod, (*template, field), QUEUE_LABEL, "labels"),
                )
        for key in pod.annotations:
            if isinstance(key, str) and key.startswith(PROVREQ_PREFIX):
                yield Hit(
                    (*template, "annotations", key),
                    f"Kueue reads {key} on the {pod.kind} itself, not on the pod template: the value has no effect",
                    ERROR,
                    _move(pod, (*template, "annotations"), key, "annotations"),
                )
    if pod.kind == "JobSet" and pod.template.job is not None:
        metadata: Path = (*pod.template.job.path[:-1], "metadata")
        labels = mapping(dig(pod.item.value, *metadata, "labels"))
        if QUEUE_LABEL in labels and not pod.queue:
            yield Hit(
                (*metadata, "labels", QUEUE_LABEL),
                f"Kueue reads {QUEUE_LABEL} on the JobSet itself, not on its Jobs: the set does not queue",
                ERROR,
                _move(pod, (*metadata, "labels"), QUEUE_LABEL, "labels"),
            )
    path = next((path for path in _SUSPENDS.get(pod.kind, ()) if dig(pod.item.value, *path) is True), None)
    if path is not None and not _has_queue(pod) and not bundle.named("LocalQueue", "default", pod.item.namespace):
        yield Hit(path, f"suspended and without the label {QUEUE_LABEL}: nobody will ever start it", ERROR)


@rule("SF304", "kueue-metadata-misplaced", OBJECT, "TrainJob")
def kueue_metadata_of_train_job(item: ManifestObject, bundle: Bundle) -> Iterator[Hit]:
    """The same for a TrainJob, whose pods are described elsewhere."""
    if QUEUE_LABEL in item.annotations:
        message = f"{QUEUE_LABEL} is a label: as an annotation Kueue never sees it"
        yield Hit(("metadata", "annotations", QUEUE_LABEL), message, ERROR)
        return
    held = QUEUE_LABEL in item.labels or bundle.named("LocalQueue", "default", item.namespace)
    if item.spec.get("suspend") is True and not held:
        message = f"suspended and without the label {QUEUE_LABEL}: nobody will ever start it"
        yield Hit(("spec", "suspend"), message, ERROR)


_SPEC: tuple[Path, ...] = (("spec", "suspend"),)
_RUN_POLICY: tuple[Path, ...] = (("spec", "runPolicy", "suspend"), ("spec", "suspend"))
_SUSPENDS: dict[str, tuple[Path, ...]] = {
    "Job": _SPEC, "JobSet": _SPEC, "RayJob": _SPEC, "RayCluster": _SPEC,
    "CronJob": (("spec", "jobTemplate", "spec", "suspend"),),
    "MPIJob": _RUN_POLICY, "PyTorchJob": _RUN_POLICY, "TFJob": _RUN_POLICY, "JAXJob": _RUN_POLICY,
}  # fmt: skip


def _on_the_cron_job(pod: PodProfile) -> Iterator[Hit]:
    """What stands on a CronJob does not reach the Jobs that it makes."""
    for field, values in (("labels", pod.item.labels), ("annotations", pod.item.annotations)):
        for key in values:
            is_queue = key == QUEUE_LABEL and not pod.queue
            if is_queue or (field == "annotations" and str(key).startswith(PROVREQ_PREFIX)):
                yield Hit(
                    ("metadata", field, key),
                    f"the Jobs of a CronJob do not get its {key}: put it into jobTemplate.metadata",
                    ERROR,
                    _move(pod, ("metadata", field), key, "labels" if is_queue else field),
                )


def _has_queue(pod: PodProfile) -> bool:
    every = {**pod.labels, **pod.item.labels, **pod.owner_annotations, **pod.annotations}
    return bool(pod.queue) or QUEUE_LABEL in every


def _move(pod: PodProfile, source: Path, key: str, target: str) -> Fix:
    value = mapping(dig(pod.item.value, *source)).get(key)
    metadata = dig(pod.item.value, *pod.owner_path)
    if not isinstance(metadata, dict):
        add = Edit("set", pod.owner_path[:-1], {target: {key: value}}, key=pod.owner_path[-1])
    elif isinstance(metadata.get(target), dict):
        add = Edit("set", (*pod.owner_path, target), value, key=key)
    else:
        add = Edit("set", pod.owner_path, {key: value}, key=target)
    return Fix((Edit("remove", (*source, key)), add), safe=False)


@rule("SF305", "kueue-chain-unresolved", BUNDLE)
def kueue_chain_unresolved(bundle: Bundle, _same: Bundle) -> Iterator[Hit]:
    """A link of LocalQueue, ClusterQueue, ResourceFlavor, AdmissionCheck, ProvisioningRequestConfig leads nowhere."""
    for pod_item in {id(pod.item): pod for pod in bundle.pods if pod.queue}.values():
        if bundle.named("LocalQueue", pod_item.queue, pod_item.item.namespace):
            continue
        queues = [
            item for item in bundle.of_kind("LocalQueue") if same_namespace(item.namespace, pod_item.item.namespace)
        ]
        namesake = bundle.named("LocalQueue", pod_item.queue)
        where: Path = (*pod_item.owner_path, "labels", QUEUE_LABEL)
        if namesake is not None and namesake not in queues:
            yield Hit(
                where,
                f"LocalQueue {pod_item.queue} is in namespace {namesake.namespace}, the workload is not: "
                "queues serve their own namespace",
                ERROR,
                item=pod_item.item,
            )
        elif queues and not any(item.name == pod_item.queue for item in queues):
            yield Hit(
                where,
                f"there is no LocalQueue {pod_item.queue} in this bundle (there is: "
                f"{', '.join(i.name for i in queues[:5])})",
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


def _link(bundle: Bundle, item: ManifestObject, path: Path, kind: str, name: Any) -> Iterator[Hit]:
    if not isinstance(name, str) or bundle.named(kind, name):
        return
    known = [found.name for found in bundle.of_kind(kind)]
    if known:
        yield Hit(
            path, f"there is no {kind} {name} in this bundle (there is: {', '.join(known[:5])})", ERROR, item=item
        )
    elif kind != "ClusterQueue" and bundle.of_kind("LocalQueue") and bundle.of_kind("ClusterQueue"):
        # Both ends of the chain are here, so the rest was meant to be.
        yield Hit(path, f"there is no {kind} {name} in this bundle, and none at all", WARNING, item=item)


def _groups(queue: ManifestObject) -> Iterator[tuple[Path, dict[str, Any]]]:
    for index, group in enumerate(items(queue.spec.get("resourceGroups"))):
        yield ("spec", "resourceGroups", index), mapping(group)


def _flavors(queue: ManifestObject) -> Iterator[tuple[Path, Any]]:
    for path, group in _groups(queue):
        for index, flavor in enumerate(items(group.get("flavors"))):
            yield (*path, "flavors", index, "name"), mapping(flavor).get("name")


def _checks(queue: ManifestObject) -> Iterator[tuple[Path, Any]]:
    for index, name in enumerate(items(queue.spec.get("admissionChecks"))):
        yield ("spec", "admissionChecks", index), name
    for index, entry in enumerate(items(dig(queue.spec, "admissionChecksStrategy", "admissionChecks"))):
        yield ("spec", "admissionChecksStrategy", "admissionChecks", index, "name"), mapping(entry).get("name")


def _requested(pod: PodProfile) -> dict[str, float]:
    names: dict[str, None] = {}
    for container in (*pod.containers, *pod.init_containers):
        names |= dict.fromkeys((*container.requests, *container.limits))
    return {name: pod.request(name) for name in names if isinstance(name, str)}


@rule("SF306", "kueue-uncovered-resource", POD)
def kueue_uncovered_resource(pod: PodProfile, bundle: Bundle) -> Iterator[Hit]:
    """A requested resource that the ClusterQueue does not cover."""
    queue = bundle.cluster_queue(pod)
    if queue is None:
        return
    covered = {name for _, group in _groups(queue) for name in items(group.get("coveredResources"))}
    if not covered:
        return
    left_out = tuple(text(prefix) for prefix in items(queue.spec.get("excludeResourcePrefixes")))
    for name in _requested(pod):
        if name not in covered and not (left_out and name.startswith(left_out)):
            container = next(entry for entry in (*pod.containers, *pod.init_containers) if entry.mentions(name))
            field = "requests" if name in container.requests else "limits"
            yield Hit(
                (*container.path, "resources", field, name),
                f"ClusterQueue {queue.name} does not cover {name}: the workload is never admitted (unless Kueue is "
                "configured to leave it out)",
                ERROR if name in ("cpu", "memory", GPU, TPU) else WARNING,
            )


@rule("SF603", "over-quota", POD)
def over_quota(pod: PodProfile, bundle: Bundle) -> Iterator[Hit]:
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
    if "kueue.x-k8s.io/job-min-parallelism" in pod.owner_annotations or pod.kind == "Deployment":
        return  # admitted in part, or pod by pod
    for name, amount in _requested(pod).items():
        quotas = _quotas(queue, name)
        together = sum(
            (other.template.pods or 0) * other.request(name) for other in bundle.pods_of(pod.item)
        )  # all parts of a workload are admitted at once
        if not quotas:
            continue
        if amount * count > max(quotas):
            yield Hit(
                path,
                f"{count} x {amount:g} {name} is more than the {max(quotas):g} that ClusterQueue {queue.name} has in "
                "any flavor, and it is in no cohort: never admitted",
                ERROR,
            )
        elif together > sum(quotas):
            yield Hit(
                path,
                f"the parts of {pod.item.title} ask for {together:g} {name} together, more than the {sum(quotas):g} of "
                f"ClusterQueue {queue.name}, and it is in no cohort: never admitted",
                ERROR,
            )


def _quotas(queue: ManifestObject, name: str) -> list[float]:
    """The quota of a resource in each flavor; empty where one of them cannot be read."""
    quotas = []
    for _, group in _groups(queue):
        for flavor in items(group.get("flavors")):
            for resource in items(mapping(flavor).get("resources")):
                found = mapping(resource)
                quotas += [quantity(found.get("nominalQuota"))] if found.get("name") == name else []
    known = [quota for quota in quotas if quota is not None]
    return known if len(known) == len(quotas) else []


def _parallelism_path(pod: PodProfile) -> Path:
    job = pod.template.job
    if job is not None and "parallelism" in job.spec:
        return (*job.path, "parallelism")
    if pod.kind in GANG_KINDS or "replicas" not in pod.item.spec:
        return pod.path
    return ("spec", "replicas")
