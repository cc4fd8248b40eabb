"""Pitfall 3, queue blindness: deadlines, run limits and gangs on capacity that has to be waited for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from stayfast.capacity.machines.gke_keys import FLEX_START, NODE_POOL, QUEUED, RUN_DURATION, RUN_LIMIT
from stayfast.capacity.machines.gke_limits import LONGEST_RUN_SECONDS, SHORTEST_RUN_SECONDS
from stayfast.documents.editor import Edit
from stayfast.documents.lookup import dig, items, mapping, number, text
from stayfast.documents.positions import Path
from stayfast.lint.finding import ADVICE, ERROR, WARNING, Fix, Hit
from stayfast.lint.objects.bundle import Bundle
from stayfast.lint.objects.fitting import mismatches
from stayfast.lint.objects.objects import ManifestObject, is_placeholder
from stayfast.lint.objects.pod import CONSUME, CONSUME_OLD, PodCapacity, PodProfile
from stayfast.lint.rule import OBJECT, POD, rule

_WAITED_FOR = (PodCapacity.FLEX_START, PodCapacity.QUEUED)
_OLD_PREFIX = "cluster-autoscaler.kubernetes.io/"
_NEW_PREFIX = "autoscaling.x-k8s.io/"
_WARDEN = "cloud.google.com/apply-warden-policies"


@rule("SF301", "deadline-counts-queue-time", POD)
def deadline_counts_queue_time(pod: PodProfile, _bundle: Bundle) -> Iterator[Hit]:
    """The Job's deadline runs while it waits for a machine."""
    job = pod.template.job
    if job is None or pod.capacity not in _WAITED_FOR or "activeDeadlineSeconds" not in job.spec:
        return
    # A CronJob's own suspend pauses the schedule; the Jobs that it makes are not suspended.
    suspended = job.spec.get("suspend") is True or (pod.kind != "CronJob" and pod.item.spec.get("suspend") is True)
    if pod.queue or suspended:
        return
    yield Hit(
        (*job.path, "activeDeadlineSeconds"),
        "the clock of a Job's activeDeadlineSeconds runs while it is Pending: it can end before the first node exists; "
        "drop it, put it on the pod, or let Kueue hold the Job",
        ERROR,
    )


@rule("SF302", "max-run-duration", POD)
def max_run_duration(pod: PodProfile, bundle: Bundle) -> Iterator[Hit]:
    """A run limit that GKE refuses, or none at all."""
    given = False
    for path, value in _limits_of_pod(pod):
        given = True
        yield from _judge(path, value)
    job = pod.template.job
    for spec, path in ((pod.spec, pod.spec_path), (job.spec, job.path) if job else ({}, ())):
        deadline = number(spec.get("activeDeadlineSeconds"))
        if deadline is None or deadline <= LONGEST_RUN_SECONDS or pod.capacity not in _WAITED_FOR:
            continue
        given = True
        yield Hit(
            (*path, "activeDeadlineSeconds"),
            f"{deadline} s is longer than the 7 days (604800 s) that flex-start capacity lasts",
            ERROR,
        )
    if pod.capacity in _WAITED_FOR and not given and pod.kind != "PodTemplate" and pod.template.role == "worker":
        if any(key in pod.annotations for key in (*CONSUME, *CONSUME_OLD)) or bundle.compute_class(pod):
            return  # the ProvisioningRequest or the class says how long
        config = bundle.provisioning_config(pod)
        if config is not None and "maxRunDurationSeconds" in mapping(config.spec.get("parameters")):
            return
        if pod.demand(NODE_POOL) or _pools_say(pod, bundle):
            return  # the pool does
        yield Hit(
            pod.spec_path,
            "no maximum run duration: the nodes are booked for 7 days; a shorter need is easier to place",
            ADVICE,
        )


def _pools_say(pod: PodProfile, bundle: Bundle) -> bool:
    """Whether every declared pool that the pod fits limits its nodes' runtime."""
    fitting = [pool for pool in bundle.pools if pool.flex_start and not mismatches(pod, pool)]
    return bool(fitting) and all(pool.max_run_seconds for pool in fitting)


def _limits_of_pod(pod: PodProfile) -> Iterator[tuple[Path, Any]]:
    if RUN_DURATION in pod.owner_annotations:
        yield (*pod.owner_path, "annotations", RUN_DURATION), pod.owner_annotations[RUN_DURATION]
    if RUN_DURATION in pod.annotations:
        yield (*pod.path, "metadata", "annotations", RUN_DURATION), pod.annotations[RUN_DURATION]
    demand = pod.demand(RUN_LIMIT)
    if demand and demand.values:
        yield demand.path, demand.values[0]


def _judge(path: Path, value: Any, *, as_text: bool = True) -> Iterator[Hit]:
    low, high = SHORTEST_RUN_SECONDS, LONGEST_RUN_SECONDS
    if is_placeholder(value):
        return
    written = value if not as_text or isinstance(value, str) else None
    if written is None:
        fix = Fix((Edit("set", path[:-1], str(value), key=path[-1]),), safe=True)
        yield Hit(path, f'the run duration must be text: "{value}" in quotes', ERROR, fix)
        return
    digits = str(written)
    if not digits.isascii() or not digits.isdigit():
        yield Hit(path, f"the run duration must be a whole number of seconds, not {digits!r}", ERROR)
    elif not low <= int(digits[:12]) <= high:
        yield Hit(path, f"{digits} s is outside the {low} to {high} s that GKE accepts", ERROR)


@rule("SF302", "max-run-duration", OBJECT, "ProvisioningRequest", "ProvisioningRequestConfig", "ComputeClass")
def max_run_duration_of_objects(item: ManifestObject, _bundle: Bundle) -> Iterator[Hit]:
    """The same limit in a ProvisioningRequest, in Kueue's configuration of them, or a ComputeClass."""
    if item.kind != "ComputeClass":
        parameters = mapping(item.spec.get("parameters"))
        if "maxRunDurationSeconds" in parameters:
            yield from _judge(("spec", "parameters", "maxRunDurationSeconds"), parameters["maxRunDurationSeconds"])
        elif item.kind == "ProvisioningRequest" and "queued" in text(item.spec.get("provisioningClassName")):
            yield Hit(("spec",), "no maxRunDurationSeconds: the nodes are booked for 7 days", ADVICE)
        return
    for index, row in enumerate(items(item.spec.get("priorities"))):
        row = mapping(row)
        path = ("spec", "priorities", index, "maxRunDurationSeconds")
        if mapping(row.get("flexStart")).get("enabled") is not True:
            continue  # other machines have other limits
        if "maxRunDurationSeconds" in row:
            yield from _judge(path, row["maxRunDurationSeconds"], as_text=False)
        else:
            yield Hit(path[:-1], "flexStart without maxRunDurationSeconds: the nodes are booked for 7 days", ADVICE)


@rule("SF303", "gang-without-atomic-capacity", POD)
def gang_without_atomic_capacity(pod: PodProfile, bundle: Bundle) -> Iterator[Hit]:
    """Pods that must run together on capacity that comes one node at a time."""
    if pod.capacity is not PodCapacity.FLEX_START or pod.template.role != "worker" or bundle.waits_for_all_nodes(pod):
        return
    coupling = pod.coupling
    if coupling:
        demand = pod.demand(FLEX_START)
        yield Hit(
            demand.path if demand else pod.spec_path,
            f"{coupling}, but plain flex-start hands out nodes one by one: use queued provisioning (Kueue and a "
            "ProvisioningRequest), all nodes or none",
            WARNING,
        )


@rule("SF303", "gang-without-atomic-capacity", OBJECT, "ProvisioningRequest")
def more_than_one_pod_set(item: ManifestObject, _bundle: Bundle) -> Iterator[Hit]:
    """GKE takes one PodSet per ProvisioningRequest."""
    if len(items(item.spec.get("podSets"))) > 1:
        yield Hit(("spec", "podSets", 1), "GKE's queued provisioning takes one PodSet per request", WARNING)


@rule("SF307", "queued-pool-without-request", POD)
def queued_pool_without_request(pod: PodProfile, _bundle: Bundle) -> Iterator[Hit]:
    """A pod for queued nodes that no request will ever bring up; or the old spelling of the request."""
    base: Path = (*pod.path, "metadata", "annotations")
    for key in pod.annotations:
        if isinstance(key, str) and key.startswith(_OLD_PREFIX) and key != _OLD_PREFIX + "safe-to-evict":
            name = key.removeprefix(_OLD_PREFIX)
            if name in ("consume-provisioning-request", "provisioning-class-name"):
                fix = Fix((Edit("rename", (*base, key), _NEW_PREFIX + name),), safe=True)
                yield Hit(
                    (*base, key), f"the prefix {_OLD_PREFIX} is deprecated: write {_NEW_PREFIX}{name}", ADVICE, fix
                )
    if pod.kind == "PodTemplate" or pod.template.role != "worker":
        return
    place = pod.selects(QUEUED)
    path = place.path if place else next((item.path for item in pod.tolerations if item.key == QUEUED), None)
    has_request = any(key in pod.annotations for key in (*CONSUME, *CONSUME_OLD)) or pod.queue
    if path is not None and not has_request:
        yield Hit(
            path,
            "queued nodes exist only for a request: give the workload a Kueue queue, or the pod the annotations "
            "consume-provisioning-request and provisioning-class-name",
            ERROR,
        )


@rule("SF307", "queued-pool-without-request", OBJECT, "ProvisioningRequest")
def old_provisioning_request(item: ManifestObject, bundle: Bundle) -> Iterator[Hit]:
    """An old API version, or a pod template without the annotation that GKE wants."""
    if item.api_version == "autoscaling.x-k8s.io/v1beta1":
        fix = Fix((Edit("set", (), "autoscaling.x-k8s.io/v1", key="apiVersion"),), safe=False)
        yield Hit(("apiVersion",), "ProvisioningRequest v1beta1 is deprecated: v1 is the same object", ADVICE, fix)
    for pod_set in items(item.spec.get("podSets")):
        name = text(dig(pod_set, "podTemplateRef", "name"))
        template = bundle.named("PodTemplate", name, item.namespace) if name else None
        if template is not None and _WARDEN not in template.labels and _WARDEN not in template.annotations:
            yield Hit(
                ("metadata",),
                f'the PodTemplate of a ProvisioningRequest needs the label {_WARDEN}: "true", else its defaults '
                "differ from those of the real pods",
                ADVICE,
                item=template,
            )
