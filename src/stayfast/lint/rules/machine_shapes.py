"""Pitfall 6, over-provisioning: shapes that no machine has, and pools that no pod fits."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Any

from stayfast.capacity.machines import gke_keys as keys
from stayfast.capacity.machines.machine import load_machines
from stayfast.documents.lookup import items, mapping, number, text
from stayfast.lint.finding import ERROR, Hit
from stayfast.lint.objects.bundle import Bundle
from stayfast.lint.objects.fitting import is_decided_by_pool, mismatches
from stayfast.lint.objects.objects import ManifestObject, is_placeholder
from stayfast.lint.objects.pod import GPU, TPU, PodProfile
from stayfast.lint.objects.pools import AUTOMATIC
from stayfast.lint.objects.scheduling import NO_CHOICE
from stayfast.lint.rule import BUNDLE, OBJECT, POD, rule

_SHARING = ("cloud.google.com/gke-gpu-partition-size", "cloud.google.com/gke-max-shared-clients-per-gpu")


@rule("SF508", "no-pool-fits", POD)
def no_pool_fits(pod: PodProfile, bundle: Bundle) -> Iterator[Hit]:
    """None of the declared pools can take the pod."""
    if not bundle.pools or pod.kind in ("DaemonSet", "PodTemplate") or pod.compute_class:
        return
    particular = pod.accelerators > 0 or any(is_decided_by_pool(demand.key) for demand in pod.demands)
    if not particular and not bundle.settings.pools_are_complete:
        return
    made_on_demand = any(pool.name == AUTOMATIC for pool in bundle.pools)
    declared = [pool for pool in bundle.pools if pool.name != AUTOMATIC]
    reasons = [(pool.name, mismatches(pod, pool)) for pool in declared]
    if any(not reason for _, reason in reasons):
        return
    if made_on_demand:
        yield from _no_pool_is_made(pod)
        return
    nearest, differences = min(reasons, key=lambda entry: len(entry[1]))
    yield Hit(
        pod.spec_path,
        f"no declared pool fits ({len(reasons)} looked at); the nearest, {nearest}: {'; '.join(differences)}",
        ERROR,
    )


def _no_pool_is_made(pod: PodProfile) -> Iterator[Hit]:
    """Auto-provisioning makes pools for what GKE knows; a label of one's own it only knows with its toleration."""
    tolerated = {toleration.key for toleration in pod.tolerations}
    for demand in pod.demands:
        if demand.excludes or demand.key in tolerated or "/instance-type" in demand.key:
            continue
        if not demand.key.startswith((*NO_CHOICE, "node.kubernetes.io/", "autoscaling.gke.io/")):
            yield Hit(
                demand.path,
                f"no declared pool carries {demand.key}, and auto-provisioning makes one only for a pod that also "
                "tolerates it",
                ERROR,
            )


@rule("SF602", "impossible-shape", POD)
def impossible_shape(pod: PodProfile, _bundle: Bundle) -> Iterator[Hit]:
    """More GPUs, or more CPUs per GPU, than any machine of that type has."""
    wanted = pod.wanted(keys.ACCELERATOR)
    count = pod.request(GPU)
    if count <= 0 or any(pod.demand(key) for key in _SHARING):
        return
    named = pod.wanted(keys.INSTANCE_TYPE)
    found = load_machines().machine(text(named[0])) if len(named) == 1 else None
    if found and (count > found.count or pod.request("cpu") > found.vcpus):
        asked = f"{count:g} GPUs and {pod.request('cpu'):g} CPUs"
        has = f"{found.name} has {found.count} {found.gke_accelerator} and {found.vcpus} CPUs"
        path = (*next(entry for entry in pod.containers if entry.request(GPU)).path, "resources")
        yield Hit(path, f"{asked} in one pod: {has}", ERROR)
        return
    if len(wanted) != 1:
        return
    known = load_machines().accelerator(text(wanted[0]))
    if known is None:
        return
    sizes = known.vcpus_by_count
    container = next(entry for entry in pod.containers if entry.request(GPU))
    field = "requests" if GPU in container.requests else "limits"
    if count > max(sizes):
        yield Hit(
            (*container.path, "resources", field, GPU),
            f"{count:g} {wanted[0]} in one pod: the largest machine has {max(sizes)}",
            ERROR,
        )
        return
    size = min(number_of for number_of in sizes if number_of >= count)
    most = max(sizes[number_of] for number_of in sizes if number_of == size)
    cpu = pod.request("cpu")
    if cpu > most:
        cpu_container = next(entry for entry in pod.containers if entry.request("cpu"))
        field = "requests" if "cpu" in cpu_container.requests else "limits"
        yield Hit(
            (*cpu_container.path, "resources", field, "cpu"),
            f"{cpu:g} CPUs with {count:g} {wanted[0]}: a machine with {size} of them has at most {most} CPUs",
            ERROR,
        )


@rule("SF602", "impossible-shape", OBJECT, "ComputeClass")
def impossible_shape_in_class(item: ManifestObject, _bundle: Bundle) -> Iterator[Hit]:
    """A ComputeClass priority whose machine and accelerators do not go together."""
    for index, row in enumerate(items(item.spec.get("priorities"))):
        row = mapping(row)
        gpu = mapping(row.get("gpu"))
        found = load_machines().machine(text(row.get("machineType")))
        kind, count = text(gpu.get("type")), number(gpu.get("count"))
        known = load_machines().accelerator(kind)
        path = ("spec", "priorities", index, "gpu")
        if found and gpu and kind and not is_placeholder(kind) and found.gke_accelerator != kind:
            yield Hit(path, f"{found.name} comes with {found.gke_accelerator}, not {kind}", ERROR)
        elif found and gpu and count is not None and found.count != count:
            yield Hit(path, f"{found.name} has {found.count} {found.gke_accelerator}, not {count}", ERROR)
        elif known and known.families and text(row.get("machineFamily")) not in ("", *known.families):
            family, families = row["machineFamily"], " and ".join(known.families)
            yield Hit(path, f"no machine of the family {family} has {kind}: {families} do", ERROR)
        elif known and count is not None and count not in known.vcpus_by_count:
            counts = ", ".join(map(str, sorted(known.vcpus_by_count)))
            yield Hit(path, f"no machine has {count} {kind}: there are {counts}", ERROR)


@rule("SF602", "impossible-shape", BUNDLE)
def impossible_pool(bundle: Bundle, _same: Bundle) -> Iterator[Hit]:
    """A declared pool whose machine type does not have that many GPUs."""
    for pool in bundle.pools:
        found = load_machines().machine(pool.machine_type)
        if found is None or not pool.accelerator or pool.unknown & {"accelerator", "accelerator_count"}:
            continue
        if pool.accelerator.startswith("nvidia-") and found.gke_accelerator != pool.accelerator:
            message = (
                f"{found.name} comes with {found.gke_accelerator}, not {pool.accelerator}: the pool cannot be made"
            )
            yield Hit((), message, ERROR, item=pool)
        elif found.count != pool.accelerator_count:
            has = f"{found.name} has {found.count} {found.gke_accelerator}"
            yield Hit((), f"{has}, not {pool.accelerator_count}: the pool cannot be made", ERROR, item=pool)


def _topology(pod: PodProfile) -> tuple[str, int] | None:
    values = pod.wanted(keys.TPU_TOPOLOGY)
    if len(values) != 1:
        return None
    parts = text(values[0]).lower().split("x")
    if not all(part.isascii() and part.isdigit() and len(part) < 5 for part in parts):
        return None
    return text(values[0]), prod(int(part) for part in parts)


@rule("SF604", "tpu-topology", POD)
def tpu_topology(pod: PodProfile, _bundle: Bundle) -> Iterator[Hit]:
    """Chips, pods and topology that do not add up to a slice."""
    chips = pod.request(TPU)
    if chips <= 0:
        return
    container = next(entry for entry in pod.containers if entry.request(TPU))
    field = "requests" if TPU in container.requests else "limits"
    path = (*container.path, "resources", field, TPU)
    accelerator = pod.wanted(keys.TPU_ACCELERATOR)
    known = load_machines().accelerator(text(accelerator[0])) if accelerator else None
    most = max(known.vcpus_by_count) if known is not None else None
    if most is not None and chips > most:
        yield Hit(path, f"{chips:g} chips in one pod: a {accelerator[0]} host has at most {most}", ERROR)
        return
    elsewhere = pod.demand(keys.NODE_POOL) or pod.compute_class or pod.queue
    missing = [key for key in (keys.TPU_ACCELERATOR, keys.TPU_TOPOLOGY) if not pod.demand(key)]
    if any("tpu-slice-topology" in str(key) or "tpu-topology" in str(key) for key in pod.annotations):
        missing = [key for key in missing if key != keys.TPU_TOPOLOGY]  # dynamic slicing says it in an annotation
    if missing and not elsewhere and pod.kind != "DaemonSet" and not _custom_choice(pod):
        yield Hit(path, f"asks for TPU chips without selecting {' and '.join(missing)}", ERROR)
    topology = _topology(pod)
    if topology:
        yield from _slice(pod, path, chips, topology, most)


def _slice(
    pod: PodProfile, path: tuple[Any, ...], chips: float, topology: tuple[str, int], most: int | None
) -> Iterator[Hit]:
    name, total = topology
    if chips > total:
        yield Hit(path, f"{chips:g} chips in one pod, but the topology {name} has {total}", ERROR)
        return
    hosts = pod.template.hosts
    if total <= (most or chips) or hosts is None or pod.kind in ("Deployment", "StatefulSet", "Pod", "PodTemplate"):
        return
    pods = {hosts, pod.template.pods or hosts}
    if pod.kind == "LeaderWorkerSet":
        pods.add(hosts - 1)
    if not any(count * chips == total or (count * chips) % total == 0 for count in pods if count > 0):
        yield Hit(
            path,
            f"{hosts} pods x {chips:g} chips = {hosts * chips:g}, but a {name} slice has {total}: slices are "
            "all or nothing",
            ERROR,
        )


def _custom_choice(pod: PodProfile) -> bool:
    return any(not demand.key.startswith(NO_CHOICE) for demand in pod.demands)
