"""The metrics of a run's pods in Cloud Monitoring, through Google's managed Prometheus.

Managed collection is on in new GKE clusters, and can be switched off; its kind is then missing. So the object stands
beside the bundle, where nothing waits for it, and the port is open either way: any Prometheus can scrape it.
"""

from __future__ import annotations

from typing import Any

from stayfast.capacity.spec.workload import Monitoring, WorkloadKind
from stayfast.model.labels import RUN_LABEL
from stayfast.render.context import RenderContext

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
