"""Metrics of a run's pods in Cloud Monitoring, through Google's managed Prometheus, and alert rules.

Managed collection is on in new GKE clusters, and can be switched off; its kind is then missing. So the object stands
beside the bundle, where nothing waits for it, and the port is open either way: any Prometheus can scrape it.

The alert rules read kube-state-metrics: Pending for too long, restarting too often, failed.
"""

from __future__ import annotations

from typing import Any

from stayfast.capacity.spec.workload import Monitoring, WorkloadKind
from stayfast.model.capacity import CapacityClass
from stayfast.model.labels import RUN_LABEL, run_selector
from stayfast.render.context import RenderContext
from stayfast.render.rendered_file import RenderedFile

METRICS_PORT = 9464
PORT_NAME = "metrics"
MONITORING_FILE = "monitoring/pod-monitoring.yaml"
_INDEX = "batch.kubernetes.io/job-completion-index"


def is_watched(outline: RenderContext) -> bool:
    """Whether its pods serve metrics; an endpoint serves its own, if any."""
    return outline.spec.monitoring == Monitoring.MANAGED and outline.spec.kind != WorkloadKind.SERVE


def pod_monitoring(outline: RenderContext) -> dict[str, Any]:
    """What to scrape and how often; of a gang only the pod of rank 0, which tells for all."""
    labels = {RUN_LABEL: outline.name}
    if outline.is_gang:
        labels[_INDEX] = "0"
    return {
        "apiVersion": "monitoring.googleapis.com/v1",
        "kind": "PodMonitoring",
        "metadata": outline.metadata(outline.name),
        "spec": {
            "selector": {"matchLabels": labels},
            "endpoints": [{"port": PORT_NAME, "path": "/metrics", "interval": "30s"}],
            "targetLabels": {"fromPod": [{"from": RUN_LABEL, "to": "stayfast_run"}]},
        },
    }


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


POD_MONITORING = RenderedFile(
    "monitoring/pod-monitoring.yaml",
    "interruptions, goodput and queue depth in Cloud Monitoring",
    lambda outline: [pod_monitoring(outline)] if is_watched(outline) else [],
)
PROMETHEUS_RULE = RenderedFile(
    "alerts/prometheus-rule.yaml", "alerts, for the Prometheus operator", lambda outline: [prometheus_rule(outline)]
)
MANAGED_RULES = RenderedFile(
    "alerts/managed-rules.yaml",
    "the same alerts, for Google's managed Prometheus",
    lambda outline: [managed_rules(outline)],
)
