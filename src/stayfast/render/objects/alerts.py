"""Alert rules: Pending for too long, restarting too often, failed. For Prometheus and for Google's managed one.

The metrics are those of kube-state-metrics, which both scrape.
"""

from __future__ import annotations

from typing import Any

from stayfast.capacity.machines.gke_keys import FLEX_START, SPOT
from stayfast.capacity.spec.workload import WorkloadKind
from stayfast.model.capacity import CapacityClass
from stayfast.model.labels import run_selector
from stayfast.render.context import RenderContext

_PATIENCE_SECONDS = {
    CapacityClass.SPOT: 1800,
    CapacityClass.HYBRID: 1800,
    CapacityClass.ON_DEMAND: 900,
    CapacityClass.FLEX_START: 21_600,
}
"""How long Pending is normal where the spec does not say; flex-start waits by design."""


def pending_seconds(outline: RenderContext) -> int:
    """When waiting becomes news."""
    longest = outline.spec.longest_wait_seconds
    return max(300, round(longest)) if longest else _PATIENCE_SECONDS[outline.capacity]


def alert_rules(outline: RenderContext) -> list[dict[str, Any]]:
    """The rules, without the object around them."""
    pods = f'namespace="{outline.namespace}",pod=~"{outline.name}-.+"'
    minutes = -(-pending_seconds(outline) // 60)
    found = [
        _rule(
            "StayfastPending",
            f'max by (namespace) (kube_pod_status_phase{{{pods},phase="Pending"}}) > 0',
            f"{minutes}m",
            f"run {outline.name} has waited {minutes} minutes for a machine",
            f"stayfast explain {outline.name}; kubectl describe pod -n {outline.namespace} "
            f"-l {run_selector(outline.name)}",
            outline,
        )
    ]
    if outline.is_queued:
        queue = f'cluster_queue="{outline.cluster_name}"'
        waiting = f"max(kueue_pending_workloads{{{queue}}}) + max(kueue_reserving_active_workloads{{{queue}}})"
        found.append(
            _rule(
                "StayfastQueued",
                f"{waiting} - max(kueue_admitted_active_workloads{{{queue}}}) > 0",
                f"{minutes}m",
                f"run {outline.name} has been queued for {minutes} minutes; it has no pods before it is admitted",
                f"kubectl get workloads,provisioningrequests -n {outline.namespace}",
                outline,
            )
        )
    if outline.spec.kind != WorkloadKind.SERVE:
        jobs = f'namespace="{outline.namespace}",job_name=~"{outline.name}(-.+)?"'
        found.append(
            _rule(
                "StayfastFailed",
                f"max by (namespace) (kube_job_failed{{{jobs}}}) > 0",
                "10m",  # a gang's Job fails at each interruption, and is made again within minutes
                f"run {outline.name} has failed by itself, or is not started again",
                f"kubectl logs -n {outline.namespace} -l {run_selector(outline.name)} --tail=50",
                outline,
            )
        )
    return found


def _rule(name: str, expression: str, wait: str, summary: str, action: str, outline: RenderContext) -> dict[str, Any]:
    return {
        "alert": name,
        "expr": expression,
        "for": wait,
        "labels": {"severity": "warning", "run": outline.name},
        "annotations": {"summary": summary, "action": action},
    }


def prometheus_rule(outline: RenderContext) -> dict[str, Any]:
    """For the Prometheus operator."""
    metadata = outline.metadata(f"{outline.name}-alerts")
    return _object(outline, "monitoring.coreos.com/v1", "PrometheusRule", metadata)


def managed_rules(outline: RenderContext) -> dict[str, Any]:
    """For Google's managed Prometheus; cluster-wide, since Kueue's metrics are not in our namespace."""
    metadata = outline.metadata(outline.cluster_name, shared=True)
    return _object(outline, "monitoring.googleapis.com/v1", "ClusterRules", metadata)


def _object(outline: RenderContext, api_version: str, kind: str, metadata: dict[str, Any]) -> dict[str, Any]:
    group = {"name": f"stayfast-{outline.name}", "interval": "60s", "rules": alert_rules(outline)}
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": {"groups": [group]}}


def pin_to_on_demand() -> dict[str, Any]:
    """A patch for controllers that must not stand on machines that go away: Kueue, JobSet, monitoring."""
    keep_off = [{"key": SPOT, "operator": "DoesNotExist"}]
    keep_off.append({"key": FLEX_START, "operator": "DoesNotExist"})
    terms = {"nodeSelectorTerms": [{"matchExpressions": keep_off}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    return {"spec": {"template": {"spec": {"affinity": affinity}}}}
