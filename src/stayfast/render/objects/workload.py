"""Jobs: one training pod, independent workers, one trial per index, or the ranks of a gang."""

from __future__ import annotations

from typing import Any

from stayfast.capacity.spec.workload import WorkloadKind
from stayfast.model.exit_codes import INTERRUPTED, KILLED, TERMINATED
from stayfast.render.context import RenderContext
from stayfast.render.objects.pod import pod_template

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
