"""An endpoint, which must not be interrupted; the names of a gang's pods; and budgets where they help."""

from __future__ import annotations

from typing import Any

from stayfast.capacity.spec.workload import WorkloadKind
from stayfast.model.labels import RUN_LABEL
from stayfast.render.context import RenderContext
from stayfast.render.objects.environment import MASTER_PORT
from stayfast.render.objects.pod import pod_template


def deployment(outline: RenderContext) -> dict[str, Any]:
    """A replica per node; one at a time is replaced, since there is no spare accelerator to surge onto."""
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": outline.metadata(outline.name),
        "spec": {
            "replicas": outline.spec.nodes,
            "selector": {"matchLabels": {RUN_LABEL: outline.name}},
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}},
            "template": pod_template(outline),
        },
    }


def headless_service(outline: RenderContext) -> dict[str, Any]:
    """Gives each rank a name that survives its pod."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": outline.metadata(outline.name),
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": {RUN_LABEL: outline.name},
            "ports": [{"name": "rendezvous", "port": int(MASTER_PORT)}],
        },
    }


def needs_budget(outline: RenderContext) -> bool:
    """Where a drain should take pods one by one.

    Not on machines that go away: a budget does not stop that. Not for a gang: it restarts as a whole anyway. Not for
    one pod: the budget would block every drain.
    """
    return not outline.is_interruptible and outline.spec.kind != WorkloadKind.TRAIN and outline.spec.nodes > 1


def disruption_budget(outline: RenderContext) -> dict[str, Any]:
    """An integer, since Jobs have no scale that a percentage could be of."""
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": outline.metadata(outline.name),
        "spec": {
            "minAvailable": outline.spec.nodes - 1,
            "selector": {"matchLabels": {RUN_LABEL: outline.name}},
        },
    }
