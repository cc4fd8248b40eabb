"""Where the pod may run: selectors, tolerations and affinity for each kind of capacity, and GKE's ComputeClass."""

from __future__ import annotations

from typing import Any

from stayfast.capacity.machines.gke_keys import COMPUTE_CLASS, FLEX_START, NODE_POOL, QUEUED, RUN_LIMIT, SPOT, ZONE
from stayfast.model.capacity import CapacityClass
from stayfast.render.context import RenderContext
from stayfast.render.objects.environment import lease_lead_seconds


def node_selector(outline: RenderContext) -> dict[str, str]:
    """Labels that the node must have."""
    if outline.class_rows:
        return {COMPUTE_CLASS: outline.cluster_name}  # the class says the rest; a second selector would fight it
    selector = dict(outline.accelerator_labels)
    if outline.capacity == CapacityClass.SPOT:
        selector[SPOT] = "true"
    if outline.capacity == CapacityClass.FLEX_START:
        selector[FLEX_START] = "true"
        if outline.is_autopilot and not outline.is_queued:
            selector[RUN_LIMIT] = str(outline.lease_seconds)  # on Standard the pool says it
    return selector


def tolerations(outline: RenderContext) -> list[dict[str, str]]:
    """Taints of exactly the nodes that were selected.

    GKE adds the one for accelerators to pods, but not to the template that a ProvisioningRequest is made from.
    """
    found = [{"key": outline.resource, "operator": "Exists", "effect": "NoSchedule"}]
    key = QUEUED if outline.is_queued else SPOT if outline.capacity == CapacityClass.SPOT else None
    if key is not None and not outline.class_rows:
        found.append({"key": key, "operator": "Equal", "value": "true", "effect": "NoSchedule"})
    return found


def affinity(outline: RenderContext) -> dict[str, Any]:
    """Zones, named pools, and for on-demand work: away from machines that go away."""
    rules: list[dict[str, Any]] = []
    if outline.capacity == CapacityClass.ON_DEMAND:
        rules.append({"key": SPOT, "operator": "DoesNotExist"})
        if not outline.is_autopilot:
            rules.append({"key": FLEX_START, "operator": "DoesNotExist"})
    if outline.spec.pools and not outline.class_rows:
        rules.append({"key": NODE_POOL, "operator": "In", "values": list(outline.spec.pools)})
    if outline.spec.zones and not outline.class_rows:
        rules.append({"key": ZONE, "operator": "In", "values": list(outline.spec.zones)})
    if not rules:
        return {}
    terms = {"nodeSelectorTerms": [{"matchExpressions": rules}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}


def compute_class(outline: RenderContext) -> dict[str, Any]:
    """Spot first, flex-start next, on-demand when nothing else is there."""
    return {
        "apiVersion": "cloud.google.com/v1",
        "kind": "ComputeClass",
        "metadata": outline.metadata(outline.cluster_name, shared=True),
        "spec": {
            "priorities": [_priority(outline, row) for row in outline.class_rows],
            "activeMigration": {"optimizeRulePriority": len(outline.class_rows) > 1},
            "nodePoolAutoCreation": {"enabled": True},
            "whenUnsatisfiable": "DoNotScaleUp",
        },
    }


def _priority(outline: RenderContext, row: str) -> dict[str, Any]:
    kind, count = outline.accelerator, outline.machine.count
    found: dict[str, Any] = {"machineType": outline.machine.name}
    if outline.is_tpu:
        found["tpu"] = {"type": kind, "count": count, "topology": outline.machine.topology}
    else:
        found["gpu"] = {"type": kind, "count": count, "driverVersion": "latest"}
    if outline.spec.zones:
        found["location"] = {"zones": list(outline.spec.zones)}
    if row == "flexStart":
        recycling = {"leadTimeSeconds": max(600, lease_lead_seconds(outline))}
        found["flexStart"] = {"enabled": True, "nodeRecycling": recycling}
        found["maxRunDurationSeconds"] = outline.lease_seconds
        return found
    found["spot"] = row == "spot"
    if row == "spot" and outline.window.is_long:
        found["nodeSystemConfig"] = {
            "kubeletConfig": {
                "shutdownGracePeriodSeconds": outline.window.shutdown_seconds,
                "shutdownGracePeriodCriticalPodsSeconds": outline.window.critical_seconds,
            }
        }
    return found


def pin_to_on_demand() -> dict[str, Any]:
    """A patch for controllers that must not stand on machines that go away: Kueue, JobSet, monitoring."""
    keep_off = [{"key": key, "operator": "DoesNotExist"} for key in (SPOT, FLEX_START)]
    terms = {"nodeSelectorTerms": [{"matchExpressions": keep_off}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    return {"spec": {"template": {"spec": {"affinity": affinity}}}}
