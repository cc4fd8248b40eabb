"""JobSet: a gang, or a single pod whose restarts shall not back off."""

from __future__ import annotations

from typing import Any

from stayfast.render.context import RenderContext
from stayfast.render.naming import REPLICATED_JOB
from stayfast.render.objects.kueue import queue_annotations, queue_labels
from stayfast.render.objects.pod import pod_template
from stayfast.render.objects.workload import FAILURES_PER_POD, gang_policy


def job_set(outline: RenderContext) -> dict[str, Any]:
    """One replicated Job with a pod per node."""
    spec: dict[str, Any] = {}
    if outline.is_queued:
        spec["suspend"] = True  # Kueue starts it when every node is there
    spec["network"] = {"enableDNSHostnames": True, "subdomain": outline.name, "publishNotReadyAddresses": True}
    spec["failurePolicy"] = {
        "maxRestarts": FAILURES_PER_POD,
        "rules": [
            {
                "name": "interrupted",
                "action": "RestartJobSetAndIgnoreMaxRestarts",
                "onJobFailureReasons": ["PodFailurePolicy"],
            }
        ],
    }
    spec["replicatedJobs"] = [
        {
            "name": REPLICATED_JOB,
            "replicas": 1,
            "template": {"metadata": {"labels": outline.labels}, "spec": _ranks(outline)},
        }
    ]
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": outline.metadata(
            outline.name, labels=queue_labels(outline), annotations=queue_annotations(outline)
        ),
        "spec": spec,
    }


def _ranks(outline: RenderContext) -> dict[str, Any]:
    nodes = outline.spec.nodes
    return {
        "completionMode": "Indexed",
        "completions": nodes,
        "parallelism": nodes,
        **gang_policy(),
        "template": pod_template(outline),
    }
