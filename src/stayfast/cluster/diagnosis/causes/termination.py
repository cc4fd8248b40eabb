"""Pods that should be gone and are still there, and the budgets that keep a node from being emptied."""

from __future__ import annotations

from stayfast.clock import seconds_at
from stayfast.cluster.diagnosis.diagnosis import NODE_LOST_WAIT, Diagnosis, Verdict
from stayfast.cluster.diagnosis.workload_view import WorkloadView
from stayfast.cluster.kubernetes.client import Object
from stayfast.cluster.kubernetes.resources import BUDGETS, NODES
from stayfast.cluster.observed.objects import condition, meta, spec_of, title
from stayfast.cluster.observed.snapshot import Snapshot
from stayfast.model.kubernetes_objects import matches
from stayfast.text.safe import line
from stayfast.text.units import duration


def explain_terminating(observed: Snapshot, view: WorkloadView) -> Diagnosis | None:
    """A pod that was told to leave and is still there, while the Job waits for its end."""
    for pod in view.live_pods:
        deadline = seconds_at(meta(pod).get("deletionTimestamp"))  # the API server adds the grace to it
        if deadline is None:
            continue
        late = observed.now - deadline
        when = f"its time ended {duration(late)} ago" if late > 0 else f"it has {duration(-late)} left"
        lines = [line(title(pod), "is being deleted;", when)]
        finalizers = [str(item) for item in meta(pod).get("finalizers") or []]
        if finalizers:
            lines.append(line(title(pod), "finalizers:", ", ".join(finalizers)))
        if late < 60:
            return Diagnosis(
                "draining",
                Verdict.WAIT,
                "the pod was told to leave and is saving",
                tuple(lines),
                "wait",
                "at most its grace period",
            )
        return _explain_late(observed, pod, late, lines)
    return None


def _explain_late(observed: Snapshot, pod: Object, late: float, lines: list[str]) -> Diagnosis:
    """Its time is over, and something holds it."""
    finalizers = [str(item) for item in meta(pod).get("finalizers") or []]
    foreign = [name for name in finalizers if name != "batch.kubernetes.io/job-tracking"]
    node = str(spec_of(pod).get("nodeName") or "")
    gone = node and NODES.title in observed.tables and observed.named(NODES, None, node) is None
    if gone:
        lines.append(f"node/{node} does not exist any more")
        return Diagnosis(
            "node-lost",
            Verdict.WAIT,
            "its machine is gone, and the cluster is about to notice",
            tuple(lines),
            "wait",
            NODE_LOST_WAIT,
        )
    if foreign:
        return Diagnosis(
            "finalizer",
            Verdict.ACT,
            f"the pod cannot go: {', '.join(foreign)} holds it",
            tuple(lines),
            "find out whose finalizer it is and why its controller does not remove it",
        )
    return Diagnosis(
        "stuck-terminating",
        Verdict.ACT,
        f"the pod should have ended {duration(late)} ago",
        tuple(lines),
        "the node does not answer: look at it, and as a last resort kubectl delete pod --force (two pods may then "
        "run at once; stayfast's checkpoints bear that)",
    )


def draining_nodes(observed: Snapshot, pods: list[Object]) -> list[str]:
    """Nodes under the pods that are being emptied."""
    names = {str(spec_of(pod).get("nodeName") or "") for pod in pods} - {""}
    cordoned = [node for node in observed.of(NODES) if spec_of(node).get("unschedulable") is True]
    return sorted(str(meta(node).get("name")) for node in cordoned if meta(node).get("name") in names)


def budget_notes(observed: Snapshot, pods: list[Object]) -> tuple[str, ...]:
    """Budgets that will block a drain, or already do."""
    notes = []
    for budget in observed.of(BUDGETS):
        selector = spec_of(budget).get("selector")
        if not selector or not any(matches(selector, meta(pod).get("labels") or {}) for pod in pods):
            continue
        failed = condition(budget, "DisruptionAllowed", "False")
        if failed is not None and failed.get("reason") == "SyncFailed":
            notes.append(
                line(title(budget), "SyncFailed: every eviction is refused ·", failed.get("message"), "(SF701)")
            )
        elif failed is not None and draining_nodes(observed, pods):
            nodes = ", ".join(draining_nodes(observed, pods))
            notes.append(line(title(budget), f"allows no eviction: the drain of {nodes} waits for it (SF702)"))
    return tuple(notes)
