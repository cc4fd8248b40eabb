"""What a cluster can do for us: judged from its own words and, if given, from ``gcloud container clusters describe``.

Pure: what was read in, checks out. What nobody could see is said as such; it is never taken for a no.
"""

from __future__ import annotations

import enum
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from stayfast.capacity.machines import gke_keys as keys
from stayfast.capacity.machines.gke_limits import (
    FAILURE_POLICY_VERSION,
    FLEX_START_GPU_VERSION,
    FLEX_START_TPU_VERSION,
    LONG_GRACE_VERSION,
    GkeVersion,
)
from stayfast.cluster.kubernetes.client import Object
from stayfast.cluster.observed.objects import meta
from stayfast.documents.lookup import dig
from stayfast.text.safe import line

_GROUPS = {
    "kueue": ("kueue.x-k8s.io", "Kueue (queued flex-start for gangs)", "https://kueue.sigs.k8s.io/docs/installation/"),
    "jobset": (
        "jobset.x-k8s.io",
        "JobSet (gangs that restart together)",
        "https://jobset.sigs.k8s.io/docs/installation/",
    ),
    "compute-class": ("cloud.google.com", "ComputeClass (hybrid: spot, then flex-start, then on-demand)", ""),
    "provisioning-request": ("autoscaling.x-k8s.io", "ProvisioningRequest (all machines or none)", ""),
}


class CheckState(enum.StrEnum):
    """The answer to one question."""

    YES = "yes"
    NO = "no"
    UNKNOWN = "unknown"


class CapabilityCheck(NamedTuple):
    """One question about the cluster."""

    name: str
    state: CheckState
    what: str
    evidence: str
    fix: str = ""


@dataclass(slots=True)
class ClusterDescription:
    """What was read."""

    version: str = ""
    groups: dict[str, str] = field(default_factory=dict)
    """API group -> preferred version."""
    nodes: list[Object] | None = None
    describe: dict[str, Any] | None = None
    region: dict[str, Any] | None = None
    """``gcloud compute regions describe``."""
    unseen: dict[str, str] = field(default_factory=dict)


def check_capabilities(facts: ClusterDescription) -> list[CapabilityCheck]:
    """All checks, most important first."""
    return [
        _version(facts),
        _gke(facts),
        _mode(facts),
        *(_group(facts, name) for name in _GROUPS),
        _spot(facts),
        _flex_start(facts),
        _grace(facts),
        _accelerators(facts),
        _quota(facts),
    ]


def _version(facts: ClusterDescription) -> CapabilityCheck:
    found = GkeVersion.parse(facts.version)
    if found is None:
        return CapabilityCheck("version", CheckState.UNKNOWN, "Kubernetes version", facts.version or "not told")
    good = found >= FAILURE_POLICY_VERSION
    fix = "" if good else "upgrade to 1.31 or later: interruptions must not count as failures"
    return CapabilityCheck(
        "version",
        CheckState.YES if good else CheckState.NO,
        "Kubernetes with a stable podFailurePolicy",
        facts.version,
        fix,
    )


def _is_gke(facts: ClusterDescription) -> bool:
    return "-gke." in facts.version or facts.describe is not None


def _gke(facts: ClusterDescription) -> CapabilityCheck:
    good = _is_gke(facts)
    evidence = facts.version if good else f"version {facts.version or 'unknown'} does not say GKE"
    fix = "" if good else "Jobs, checkpoints and queues work anywhere; Spot and flex-start rendering is for GKE"
    return CapabilityCheck("gke", CheckState.YES if good else CheckState.NO, "Google Kubernetes Engine", evidence, fix)


def _mode(facts: ClusterDescription) -> CapabilityCheck:
    name, what = "auto-provisioning", "nodes are made for pods that need them (Autopilot or auto-provisioning)"
    description = facts.describe
    if description is not None:
        autopilot = dig(description, "autopilot", "enabled") is True
        automatic = dig(description, "autoscaling", "enableNodeAutoprovisioning") is True
        if autopilot or automatic:
            return CapabilityCheck(
                name, CheckState.YES, what, "Autopilot" if autopilot else "Standard with auto-provisioning"
            )
        pools = ", ".join(dig(pool, "name") or "?" for pool in _pools(facts)) or "none"
        return CapabilityCheck(
            name, CheckState.NO, what, f"Standard, pools: {pools}", "make pools: pools.sh of stayfast render"
        )
    if facts.nodes and all(str(meta(node).get("name", "")).startswith("gk3-") for node in facts.nodes):
        return CapabilityCheck(name, CheckState.YES, what, "node names say Autopilot")
    return CapabilityCheck(name, CheckState.UNKNOWN, what, "needs the cluster's description", _DESCRIBE)


def _group(facts: ClusterDescription, name: str) -> CapabilityCheck:
    group, what, page = _GROUPS[name]
    if "groups" in facts.unseen:
        return CapabilityCheck(name, CheckState.UNKNOWN, what, facts.unseen["groups"])
    version = facts.groups.get(group)
    if version:
        return CapabilityCheck(name, CheckState.YES, what, f"{group}/{version}")
    return CapabilityCheck(
        name, CheckState.NO, what, f"the API server has no group {group}", f"install it: {page}" if page else ""
    )


def _spot(facts: ClusterDescription) -> CapabilityCheck:
    what = "Spot nodes can be had"
    spot = [node for node in facts.nodes or [] if _labels(node).get(keys.SPOT) == "true"]
    pools = [pool for pool in _pools(facts) if dig(pool, "config", "spot") is True]
    if spot or pools:
        evidence = f"{len(spot)} Spot nodes now, {len(pools)} Spot pools described"
        return CapabilityCheck("spot", CheckState.YES, what, evidence)
    if _mode(facts).state is CheckState.YES:
        return CapabilityCheck(
            "spot", CheckState.YES, what, "nodes are made on demand; a pod must tolerate Spot to get one"
        )
    if facts.describe is None:
        return CapabilityCheck(
            "spot", CheckState.UNKNOWN, what, "no Spot node now; pools at size 0 cannot be seen", _DESCRIBE
        )
    return CapabilityCheck(
        "spot", CheckState.NO, what, "no Spot pool and no auto-provisioning", "make one: pools.sh of stayfast render"
    )


def _flex_start(facts: ClusterDescription) -> CapabilityCheck:
    what = "flex-start can be had"
    found = GkeVersion.parse(facts.version)
    if not _is_gke(facts):
        return CapabilityCheck("flex-start", CheckState.NO, what, "not GKE")
    if found is None or found.build == 0:
        return CapabilityCheck(
            "flex-start", CheckState.UNKNOWN, what, f"version {facts.version or 'unknown'} has no GKE build"
        )
    if found < FLEX_START_GPU_VERSION:
        return CapabilityCheck(
            "flex-start",
            CheckState.NO,
            what,
            f"{facts.version} is older than 1.32.2-gke.1652000",
            "upgrade the control plane",
        )
    tpu = "" if found >= FLEX_START_TPU_VERSION else "; TPUs need 1.33.0-gke.1712000"
    pools = [pool for pool in _pools(facts) if dig(pool, "config", "flexStart") is True]
    queued = [pool for pool in pools if dig(pool, "queuedProvisioning", "enabled") is True]
    nodes = [node for node in facts.nodes or [] if _labels(node).get(keys.FLEX_START) == "true"]
    if pools or nodes:
        evidence = f"{len(pools)} flex-start pools ({len(queued)} queued), {len(nodes)} such nodes now{tpu}"
        return CapabilityCheck("flex-start", CheckState.YES, what, evidence)
    if _mode(facts).state is CheckState.YES:
        return CapabilityCheck("flex-start", CheckState.YES, what, f"{facts.version} with nodes made on demand{tpu}")
    if facts.describe is None:
        return CapabilityCheck(
            "flex-start",
            CheckState.UNKNOWN,
            what,
            f"{facts.version} is new enough{tpu}; pools at size 0 cannot be seen",
            _DESCRIBE,
        )
    return CapabilityCheck(
        "flex-start", CheckState.NO, what, f"no pool with --flex-start{tpu}", "make one: pools.sh of stayfast render"
    )


def _grace(facts: ClusterDescription) -> CapabilityCheck:
    what = "120 s of shutdown grace on Spot (105 s for a pod; by default 15 s)"
    found = GkeVersion.parse(facts.version)
    if not _is_gke(facts):
        return CapabilityCheck("long-grace", CheckState.NO, what, "not GKE")
    if found is None or found.build == 0:
        return CapabilityCheck(
            "long-grace", CheckState.UNKNOWN, what, f"version {facts.version or 'unknown'} has no GKE build"
        )
    if found < LONG_GRACE_VERSION:
        return CapabilityCheck(
            "long-grace",
            CheckState.NO,
            what,
            f"{facts.version} is older than 1.35.0-gke.1171000",
            "upgrade the control plane",
        )
    set_pools = [
        f"{dig(pool, 'name')}={dig(pool, 'config', 'kubeletConfig', 'shutdownGracePeriodSeconds')} s"
        for pool in _pools(facts)
        if dig(pool, "config", "kubeletConfig", "shutdownGracePeriodSeconds")
    ]
    return CapabilityCheck(
        "long-grace", CheckState.YES, what, f"{facts.version}; set on: {', '.join(set_pools) or 'no pool seen'}"
    )


def _accelerators(facts: ClusterDescription) -> CapabilityCheck:
    what = "accelerators per zone, as nodes and pools show them"
    seen: Counter[str] = Counter()
    for node in facts.nodes or []:
        labels = _labels(node)
        kind = labels.get(keys.ACCELERATOR) or labels.get(keys.TPU_ACCELERATOR)
        if kind:
            seen[f"{kind} in {labels.get(keys.ZONE, 'an unknown zone')}"] += 1
    parts = [f"{count} × {name}" for name, count in sorted(seen.items())]
    for pool in _pools(facts):
        for row in dig(pool, "config", "accelerators") or []:
            zones = ", ".join(str(zone) for zone in dig(pool, "locations") or [])
            parts.append(f"pool {dig(pool, 'name')}: {dig(row, 'acceleratorType')} in {zones or 'its zones'}")
    if parts:
        return CapabilityCheck("accelerators", CheckState.YES, what, "; ".join(parts))
    if facts.nodes is None:
        return CapabilityCheck(
            "accelerators", CheckState.UNKNOWN, what, facts.unseen.get("nodes", "nodes were not read")
        )
    return CapabilityCheck(
        "accelerators", CheckState.UNKNOWN, what, "no accelerator node now; scaled-down pools do not show"
    )


def _quota(facts: ClusterDescription) -> CapabilityCheck:
    """Spot and flex-start machines draw on the preemptible quota, which is 0 for many accelerators at first."""
    name, what = "preemptible-quota", "quota for Spot and flex-start accelerators"
    if facts.region is None:
        why = facts.unseen.get("region", "neither the API server nor the cluster's description tells it")
        return CapabilityCheck(
            name, CheckState.UNKNOWN, what, why,
            "gcloud compute regions describe REGION --format=json > r.json; add --region-quota r.json, or --gcloud",
        )  # fmt: skip
    rows = dig(facts.region, "quotas")
    found = []
    for row in rows if isinstance(rows, list) else []:
        metric, limit, usage = dig(row, "metric"), dig(row, "limit"), dig(row, "usage")
        kinds = ("GPU", "TPU")
        if isinstance(metric, str) and metric.startswith("PREEMPTIBLE_") and any(kind in metric for kind in kinds):
            found.append((metric, _amount(limit), _amount(usage)))
    some = sorted(row for row in found if row[1] > 0)
    place = dig(facts.region, "name") or "the region"
    if some:
        shown = ", ".join(f"{line(metric)} {usage:g} of {limit:g} used" for metric, limit, usage in some)
        return CapabilityCheck(name, CheckState.YES, what, f"{line(place)}: {shown}")
    shown = "every PREEMPTIBLE_…_GPUS is 0" if found else "no PREEMPTIBLE_…_GPUS is listed"
    fix = "ask for it: https://console.cloud.google.com/iam-admin/quotas"
    return CapabilityCheck(name, CheckState.NO, what, f"{line(place)}: {shown}", fix)


def _amount(value: Any) -> float:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else 0.0


_DESCRIBE = "gcloud container clusters describe NAME --location PLACE --format=json > c.json; add --describe c.json"


def _pools(facts: ClusterDescription) -> list[Any]:
    found = dig(facts.describe or {}, "nodePools")
    return found if isinstance(found, list) else []


def _labels(node: Object) -> dict[str, Any]:
    found = meta(node).get("labels")
    return found if isinstance(found, dict) else {}
