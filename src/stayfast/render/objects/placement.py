"""Where the pod may run: selectors, tolerations and affinity for each kind of capacity."""

from __future__ import annotations

from typing import Any

from stayfast.capacity.machines.gke_keys import COMPUTE_CLASS, FLEX_START, NODE_POOL, QUEUED, RUN_LIMIT, SPOT, ZONE
from stayfast.model.capacity import CapacityClass
from stayfast.render.context import RenderContext


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
