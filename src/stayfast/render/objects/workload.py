"""What makes the pods: Job, JobSet or Deployment, with the Service and the budget that belong to it."""

from __future__ import annotations

from typing import Any

from stayfast.capacity.spec.workload import WorkloadKind
from stayfast.model.exit_codes import INTERRUPTED, KILLED, TERMINATED
from stayfast.model.labels import RUN_LABEL
from stayfast.render.context import Controller, RenderContext
from stayfast.render.naming import REPLICATED_JOB
from stayfast.render.objects.environment import MASTER_PORT
from stayfast.render.objects.kueue import queue_annotations, queue_labels
from stayfast.render.objects.pod import pod_template
from stayfast.render.rendered_file import RenderedFile

FAILURES_PER_POD = 6
"""Real failures: one more than the attempts without progress after which the runtime itself gives up."""

MOST_INDEXES = 100_000


def job(outline: RenderContext) -> dict[str, Any]:
    """A Job by itself."""
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": outline.metadata(outline.name),
        "spec": {**job_size(outline), **independent_policy(outline), "template": pod_template(outline)},
    }


def job_size(outline: RenderContext) -> dict[str, Any]:
    """How many pods, and what they are counted by."""
    spec = outline.spec
    if spec.kind == WorkloadKind.SWEEP and not outline.is_queue_worker:
        trials = spec.units or spec.nodes
        return {"completionMode": "Indexed", "completions": trials, "parallelism": min(spec.nodes, trials)}
    if spec.kind in (WorkloadKind.BATCH, WorkloadKind.SWEEP):
        # Without completions, the first worker that finds the queue empty would end the replacement of all others.
        return {"completions": spec.nodes, "parallelism": spec.nodes}
    if spec.nodes > 1:
        return {"completionMode": "Indexed", "completions": spec.nodes, "parallelism": spec.nodes}
    return {"completions": 1, "parallelism": 1}


def independent_policy(outline: RenderContext) -> dict[str, Any]:
    """Interruptions are free; everything else counts. Never FailJob on 1: launchers turn much into 1."""
    spec = outline.spec
    limit: dict[str, Any] = {"backoffLimit": FAILURES_PER_POD * spec.nodes}
    if spec.kind == WorkloadKind.SWEEP and not outline.is_queue_worker:
        limit = {"backoffLimitPerIndex": FAILURES_PER_POD}
    return {
        **limit,
        "podReplacementPolicy": "Failed",
        "podFailurePolicy": {
            "rules": [
                {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
                {"action": "Ignore", "onExitCodes": _codes(INTERRUPTED, TERMINATED)},
            ]
        },
    }


def gang_policy() -> dict[str, Any]:
    """One rank lost is the gang lost: the Job fails at once, by policy, and the JobSet starts it again for free."""
    return {
        "backoffLimit": 0,
        "podReplacementPolicy": "Failed",
        "podFailurePolicy": {
            "rules": [
                {"action": "FailJob", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
                {"action": "FailJob", "onExitCodes": _codes(INTERRUPTED, KILLED, TERMINATED)},
            ]
        },
    }


def _codes(*values: int) -> dict[str, Any]:
    return {"containerName": "main", "operator": "In", "values": list(values)}


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


def workload_objects(outline: RenderContext) -> list[dict[str, Any]]:
    """The object that makes the pods, behind what it needs."""
    found = [headless_service(outline)] if outline.is_gang else []
    if needs_budget(outline):
        found.append(disruption_budget(outline))
    if outline.spec.kind == WorkloadKind.SERVE:
        return [*found, deployment(outline)]
    return [*found, job_set(outline) if outline.form == Controller.JOBSET else job(outline)]


WORKLOAD = RenderedFile("50-workload.yaml", "the workload", workload_objects)
