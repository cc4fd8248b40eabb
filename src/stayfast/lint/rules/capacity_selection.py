"""Pitfall 5, second half: selecting and tolerating what contradicts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from stayfast.capacity.machines import gke_keys as keys
from stayfast.documents.editor import Edit
from stayfast.documents.lookup import items, mapping
from stayfast.documents.positions import Path
from stayfast.lint.finding import ADVICE, ERROR, WARNING, Fix, Hit, Severity
from stayfast.lint.objects.bundle import Bundle
from stayfast.lint.objects.objects import ManifestObject, is_placeholder
from stayfast.lint.objects.pod import GPU, PodCapacity, PodProfile
from stayfast.lint.objects.scheduling import NO_CHOICE, Toleration, prefers
from stayfast.lint.rule import BUNDLE, OBJECT, POD, rule


@rule("SF503", "tolerates-without-selecting", POD)
def tolerates_without_selecting(pod: PodProfile, _bundle: Bundle) -> Iterator[Hit]:
    """A toleration for Spot, and nothing that asks for Spot."""
    if pod.capacity is not PodCapacity.SPOT_INTENT or pod.kind == "DaemonSet":
        return
    if pod.demand(keys.NODE_POOL) or pod.compute_class or pod.queue:
        return
    if prefers(pod.spec, keys.SPOT, keys.PREEMPTIBLE, keys.PROVISIONING):
        return
    toleration = next(entry for entry in pod.tolerations if entry.is_spotlike)
    selector = pod.spec.get("nodeSelector")
    edit = (
        Edit("set", (*pod.spec_path, "nodeSelector"), "true", key=keys.SPOT)
        if isinstance(selector, dict)
        else Edit("set", pod.spec_path, {keys.SPOT: "true"}, key="nodeSelector")
    )
    yield Hit(
        toleration.path,
        "a toleration permits Spot nodes but does not ask for them: the pod may run on on-demand nodes at full "
        "price; add "
        f'the nodeSelector {keys.SPOT}: "true"',
        WARNING,
        Fix((edit,), safe=False),
    )


@rule("SF504", "selects-without-tolerating", POD)
def selects_without_tolerating(pod: PodProfile, bundle: Bundle) -> Iterator[Hit]:
    """Selects Spot nodes but does not tolerate their taint."""
    demand = pod.selects(keys.SPOT)
    if (
        demand is None
        or pod.compute_class
        or pod.selects(keys.FLEX_START)
        or any(_tolerates_spot(entry) for entry in pod.tolerations)
    ):
        return
    value = {"key": keys.SPOT, "operator": "Equal", "value": "true", "effect": "NoSchedule"}
    edit = (
        Edit("append", (*pod.spec_path, "tolerations"), value)
        if isinstance(pod.spec.get("tolerations"), list)
        else Edit("set", pod.spec_path, [value], key="tolerations")
    )
    tainted = any(pool.spot and any(taint.key == keys.SPOT for taint in pool.taints) for pool in bundle.pools)
    certain = tainted or bundle.settings.cluster_mode == "standard"
    yield Hit(
        demand.path,
        "selects Spot nodes without tolerating their taint: Autopilot adds the toleration, auto-provisioned "
        "and tainted "
        "Standard pools need it",
        WARNING if certain else ADVICE,
        Fix((edit,), safe=True),
    )


def _tolerates_spot(toleration: Toleration) -> bool:
    if toleration.effect not in ("", "NoSchedule"):
        return False
    if toleration.is_for_everything:
        return True
    return toleration.key == keys.SPOT and (toleration.operator == "Exists" or str(toleration.value).lower() == "true")


@rule("SF505", "provisioning-model-conflict", POD)
def provisioning_model_conflict(pod: PodProfile, _bundle: Bundle) -> Iterator[Hit]:
    """Two provisioning models at once."""
    spot = pod.selects(keys.SPOT) or pod.selects(keys.PREEMPTIBLE)
    flex = pod.selects(keys.FLEX_START)
    model = pod.demand(keys.PROVISIONING)
    if spot and flex:
        yield Hit(flex.path, "selects Spot and flex-start at once: GKE rejects such a pod; keep one", ERROR)
    if model and len(model.values) == 1 and (spot or flex):
        expected = "flex-start" if flex else "spot"
        accepted = (expected, "preemptible") if spot else (expected,)
        if model.values[0] not in accepted and not is_placeholder(model.values[0]):
            yield Hit(model.path, f"{keys.PROVISIONING}: {model.values[0]} contradicts the {expected} selector", ERROR)
    if spot and pod.selects(keys.QUEUED):
        yield Hit(spot.path, "queued provisioning never hands out Spot nodes: keep one", ERROR)
    affinity = pod.demand(keys.RESERVATION_AFFINITY)
    reserved = pod.demand("cloud.google.com/reservation-name") or (affinity and affinity.values != ("none",))
    wants_flex = flex or (model if model and model.values == ("flex-start",) else None)
    if wants_flex and reserved:
        yield Hit(wants_flex.path, "flex-start does not use reservations: drop one of the two", ERROR)
    tolerated = next((entry for entry in pod.tolerations if entry.key == keys.FLEX_START), None)
    chosen = flex or (model and "flex-start" in model.values) or pod.compute_class or pod.demand(keys.NODE_POOL)
    if tolerated and not chosen and not pod.queue and pod.kind != "DaemonSet":
        yield Hit(
            tolerated.path,
            "tolerates the flex-start taint without selecting flex-start: GKE reports that as an error",
            ERROR,
        )


@rule("SF505", "provisioning-model-conflict", OBJECT, "ComputeClass")
def provisioning_model_conflict_in_class(item: ManifestObject, _bundle: Bundle) -> Iterator[Hit]:
    """A ComputeClass priority that asks for Spot and flex-start, or flex-start and a reservation."""
    for index, row in enumerate(items(item.spec.get("priorities"))):
        row = mapping(row)
        if mapping(row.get("flexStart")).get("enabled") is not True:
            continue
        path: Path = ("spec", "priorities", index)
        if row.get("spot") is True:
            yield Hit((*path, "spot"), "spot and flexStart in one priority: give each a priority of its own", ERROR)
        if mapping(row.get("reservations")).get("affinity") in ("Specific", "AnyBestEffort"):
            yield Hit(
                (*path, "reservations"), "flexStart does not use reservations: give each a priority of its own", ERROR
            )


@rule("SF505", "provisioning-model-conflict", BUNDLE)
def provisioning_model_conflict_in_pools(bundle: Bundle, _same: Bundle) -> Iterator[Hit]:
    """A declared pool of two provisioning models."""
    for pool in bundle.pools:
        if (pool.spot or pool.preemptible) and (pool.flex_start or pool.queued):
            other = "flex-start" if pool.flex_start else "queued provisioning"
            yield Hit((), f"a pool is Spot or {other}, not both: the pool cannot be made", ERROR, item=pool)


@rule("SF506", "irrelevant-toleration", POD)
def irrelevant_toleration(pod: PodProfile, _bundle: Bundle) -> Iterator[Hit]:
    """A flex-start pod that tolerates Spot."""
    if not (pod.capacity is PodCapacity.FLEX_START or pod.selects(keys.FLEX_START)) or pod.selects(keys.SPOT):
        return
    for toleration in pod.tolerations:
        if toleration.is_spotlike:
            yield Hit(
                toleration.path,
                f"a flex-start pod has no use for the Spot taint {toleration.key}; if the selector is ever "
                "dropped, it lands "
                "on Spot",
                ADVICE,
                Fix((Edit("remove", toleration.path),), safe=True),
            )


@rule("SF507", "gpu-request-selector-mismatch", POD)
def gpu_request_selector_mismatch(pod: PodProfile, _bundle: Bundle) -> Iterator[Hit]:
    """GPUs without a type, or a type without GPUs."""
    if pod.kind == "DaemonSet" or pod.is_partial:
        return
    requested = [
        container for container in pod.containers if any("nvidia.com/" in str(key) for key in _resources(container))
    ]
    selected = pod.demand(keys.ACCELERATOR)
    if requested and pod.request(GPU) > 0 and not _has_gpu_choice(pod):
        severity: Severity = WARNING if pod.is_interruptible else ADVICE
        yield Hit(
            (*requested[0].path, "resources"),
            f"asks for GPUs but not for a type: select {keys.ACCELERATOR}, a node pool or a ComputeClass "
            "(auto-provisioning: "
            '"GPU type is not specified")',
            severity,
        )
    every = [*pod.containers, *pod.init_containers]
    claims = pod.spec.get("resourceClaims") or any(mapping(c.value.get("resources")).get("claims") for c in every)
    asked = claims or any("nvidia.com/" in str(key) for container in every for key in _resources(container))
    if selected and not asked and not all(is_placeholder(entry.value.get("resources")) for entry in pod.containers):
        yield Hit(
            selected.path,
            f"selects GPU nodes but requests no {GPU}: without a request no toleration is injected, and the "
            "GPU taint "
            "keeps the pod out",
            ERROR,
        )


def _resources(container: Any) -> list[Any]:
    return [*container.requests, *container.limits]


def _has_gpu_choice(pod: PodProfile) -> bool:
    if pod.queue or pod.compute_class:
        return True
    for demand in pod.demands:
        if demand.excludes:
            continue
        if demand.key in (
            keys.ACCELERATOR,
            keys.NODE_POOL,
            keys.PROVISIONING_REQUEST,
            keys.MACHINE_FAMILY,
        ):
            return True
        if not demand.key.startswith(NO_CHOICE):
            return True  # a custom or instance-type label names the machines
    return False
