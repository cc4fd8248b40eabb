"""Whether a pod fits a declared pool, and if not, why not."""

from __future__ import annotations

from stayfast.capacity.machines import gke_keys as keys
from stayfast.capacity.machines.machine import load_machines
from stayfast.lint.objects.pod import GPU, TPU, PodProfile
from stayfast.lint.objects.pools import NodePool, Taint
from stayfast.lint.objects.scheduling import NO_CHOICE, NodeRequirement, Toleration

_DECIDED = frozenset(
    (
        keys.SPOT,
        keys.PREEMPTIBLE,
        keys.PROVISIONING,
        keys.FLEX_START,
        keys.ACCELERATOR,
        keys.NODE_POOL,
        keys.MACHINE_FAMILY,
        keys.TPU_ACCELERATOR,
    )
)


def is_decided_by_pool(key: str) -> bool:
    """Whether the declaration of a pool tells if its nodes carry this label; zones and GKE's own extras it does not."""
    return key in _DECIDED or key == keys.INSTANCE_TYPE or not key.startswith((*NO_CHOICE, "node."))


def mismatches(pod: PodProfile, pool: NodePool) -> list[str]:
    """The reasons why this pod cannot run on that pool; empty when it can."""
    reasons = _labels(pod, pool)
    for taint in _taints(pod, pool):
        if taint.effect in ("NoSchedule", "NoExecute") and not any(
            _tolerates(entry, taint) for entry in pod.tolerations
        ):
            reasons.append(f"the taint {taint.key}={taint.value}:{taint.effect} is not tolerated")
    gpus = pod.request(GPU)
    if gpus > pool.accelerator_count and not pod.request(TPU) and "accelerator_count" not in pool.unknown:
        reasons.append(f"{gpus:g} GPUs are requested, its nodes have {pool.accelerator_count}")
    known = load_machines().machine(pool.machine_type)
    if known is not None and pod.request("cpu") > known.vcpus:
        reasons.append(f"{pod.request('cpu'):g} CPUs are requested, {known.name} has {known.vcpus}")
    return reasons


def _labels(pod: PodProfile, pool: NodePool) -> list[str]:
    labels = pool.node_labels
    reasons = []
    for demand in pod.demands:
        value = labels.get(demand.key)
        if not is_decided_by_pool(demand.key) or demand.key in pool.unknown_labels:
            continue
        if value is None and "labels" in pool.unknown and demand.key not in _DECIDED:
            continue
        if not _meets(demand, value):
            wanted = " or ".join(str(item) for item in demand.values) or "present"
            found = f"is {value}" if value is not None else "is not there"
            verb = "must not be" if demand.excludes else "must be"
            reasons.append(f"{demand.key} {verb} {wanted}, it {found}")
    return reasons


def _meets(demand: NodeRequirement, value: str | None) -> bool:
    if demand.excludes:
        return value is None if not demand.values else value not in demand.values
    if value is None:
        return False
    return not demand.values or any(str(item).lower() == value.lower() for item in demand.values)


def _taints(pod: PodProfile, pool: NodePool) -> list[Taint]:
    taints = [] if "taints" in pool.unknown else list(pool.taints)
    if pool.accelerator_count and not pod.request(GPU) and pool.accelerator.startswith("nvidia-"):
        taints.append(Taint("nvidia.com/gpu", "present", "NoSchedule"))  # requests bring their toleration along
    if pool.queued:
        taints.append(Taint(keys.QUEUED, "true", "NoSchedule"))
    return taints


def _tolerates(toleration: Toleration, taint: Taint) -> bool:
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.is_for_everything:
        return True
    if toleration.key != taint.key:
        return False
    return toleration.operator == "Exists" or str(toleration.value or "").lower() == taint.value.lower()
