"""Pods that live: the one that is furthest from running answers for all, and when all run, so does the workload."""

from __future__ import annotations

from stayfast.clock import seconds_at
from stayfast.cluster.diagnosis.causes.containers import explain_containers
from stayfast.cluster.diagnosis.causes.scheduling import explain_gate, explain_scheduling
from stayfast.cluster.diagnosis.diagnosis import REPLACEMENT_WAIT, Diagnosis, Verdict
from stayfast.cluster.diagnosis.workload_view import WorkloadView
from stayfast.cluster.kubernetes.client import Object
from stayfast.cluster.observed.objects import age_seconds, condition, spec_of, status_of, title
from stayfast.cluster.observed.snapshot import Snapshot
from stayfast.text.safe import line
from stayfast.text.units import duration


def explain_waiting(observed: Snapshot, view: WorkloadView) -> Diagnosis | None:
    """A pod does not run: no node takes it, or its containers do not start."""
    pods = view.live_pods
    waiting = [pod for pod in pods if not _runs(pod)]
    for pod in waiting:
        answer = explain_gate(pod) or explain_scheduling(observed, pod) or explain_containers(observed, pod)
        if answer is not None:
            return _with_pod_counts(answer, waiting, pods)
    if not waiting:
        return None
    pod = waiting[0]
    return Diagnosis(
        "not-seen-yet", Verdict.WAIT, "the scheduler has not looked at the pod yet",
        (line(title(pod), "Pending for", duration(age_seconds(pod, observed.now))),), "wait", "seconds",
    )  # fmt: skip


def _with_pod_counts(answer: Diagnosis, waiting: list[Object], pods: list[Object]) -> Diagnosis:
    if len(pods) < 2:
        return answer
    return answer._replace(evidence=(*answer.evidence, f"{len(waiting)} of {len(pods)} pods do not run"))


def _runs(pod: Object) -> bool:
    return status_of(pod).get("phase") == "Running" and not any(
        isinstance(row, dict) and isinstance(row.get("state"), dict) and "waiting" in row["state"]
        for row in status_of(pod).get("containerStatuses") or []
    )


def explain_running(observed: Snapshot, view: WorkloadView) -> Diagnosis | None:
    """All its pods run."""
    pods = view.live_pods
    if not pods:
        return None
    starts = [seconds_at(status_of(pod).get("startTime")) for pod in pods]
    oldest = min((start for start in starts if start is not None), default=observed.now)
    lines = [line(title(pod), "Running on", spec_of(pod).get("nodeName")) for pod in pods[:3]]
    targeted = [pod for pod in pods if condition(pod, "DisruptionTarget")]
    for pod in targeted[:3]:
        found = condition(pod, "DisruptionTarget") or {}
        lines.append(line(title(pod), "DisruptionTarget", found.get("reason"), "·", found.get("message")))
    if targeted:
        return Diagnosis(
            "being-interrupted", Verdict.WAIT, "it is being interrupted at this moment", tuple(lines), "wait",
            REPLACEMENT_WAIT,
        )  # fmt: skip
    words = f"it runs: {len(pods)} pod{'s' * (len(pods) > 1)}, for {duration(observed.now - oldest)}"
    return Diagnosis("running", Verdict.FINE, words, tuple(lines), "nothing to do")
