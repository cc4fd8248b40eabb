"""GKE's ComputeClass: the order in which kinds of machines are tried, and the way back to the better one."""

from __future__ import annotations

from typing import Any

from stayfast.render.context import RenderContext
from stayfast.render.objects.environment import lease_lead_seconds


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
