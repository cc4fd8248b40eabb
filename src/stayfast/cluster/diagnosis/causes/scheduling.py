"""A pod that no node takes: what the scheduler and the autoscaler say, and which single change would help."""

from __future__ import annotations

import re

from stayfast.capacity.machines.gke_keys import FLEX_START, QUEUED, SPOT
from stayfast.cluster.diagnosis.diagnosis import SCALE_UP_WAIT, Diagnosis, Verdict
from stayfast.cluster.kubernetes.client import Object
from stayfast.cluster.observed.objects import condition, meta, spec_of, status_of, title
from stayfast.cluster.observed.snapshot import Snapshot
from stayfast.text.safe import line

_TAINT = re.compile(r"untolerated taint(?:\(s\))? \{([^}:]+)(?:: ?([^}]*))?\}")
_SHORT_OF = re.compile(r"Insufficient ([\w./-]+)")
_TAINT_FIXES = {
    SPOT: "the pod does not tolerate Spot nodes: render it for spot, or add the toleration cloud.google.com/gke-spot",
    QUEUED: "queued nodes are only for admitted workloads: submit through the queue (kueue.x-k8s.io/queue-name)",
    FLEX_START: "the pod does not ask for flex-start nodes: render it for flex-start",
    "nvidia.com/gpu": "the pod asks for no GPU, and GPU nodes are closed to such pods: request nvidia.com/gpu",
    "node.kubernetes.io/not-ready": "the node is not ready yet: wait, or look at it with kubectl describe node",
    "node.kubernetes.io/unreachable": "the node cannot be reached: it is going away or broken",
}
_OUT_OF_CAPACITY = re.compile(
    r"STOCKOUT|RESOURCE_POOL_EXHAUSTED|out\.of\.resources|does not have enough resources|UNAVAILABLE_CAPACITY", re.I
)
_NO_QUOTA = re.compile(r"QUOTA_EXCEEDED|quota\.exceeded|exceeds? quota|Quota '", re.I)


def explain_gate(pod: Object) -> Diagnosis | None:
    """Held back before the scheduler looks at it."""
    gates = [str(gate.get("name")) for gate in spec_of(pod).get("schedulingGates") or [] if isinstance(gate, dict)]
    if not gates:
        return None
    fix = "its controller removes the gate when it is admitted" if any("kueue" in gate for gate in gates) else ""
    return Diagnosis(
        "scheduling-gate", Verdict.WAIT, f"the pod is held back by {', '.join(gates)}",
        (line(title(pod), "schedulingGates:", ", ".join(gates)),), fix or "find out who set the gate and why",
    )  # fmt: skip


def explain_scheduling(observed: Snapshot, pod: Object) -> Diagnosis | None:
    """No node takes it."""
    found = condition(pod, "PodScheduled", "False")
    if found is None or found.get("reason") == "SchedulingGated":
        return None
    message = str(found.get("message", ""))
    evidence = [line(title(pod), "PodScheduled=False", found.get("reason"), "·", message)]
    scaling = _explain_scaling(observed, pod, evidence)
    if scaling is not None and scaling.code != "no-scale-up":
        return scaling
    plain = _explain_message(pod, message, evidence)
    if scaling is not None and plain.code in ("unschedulable", "not-enough-resources"):
        return scaling
    return plain._replace(evidence=scaling.evidence) if scaling is not None else plain


def _explain_scaling(observed: Snapshot, pod: Object, evidence: list[str]) -> Diagnosis | None:
    """What the autoscaler says about this pod, newest first."""
    for event in observed.events_of(pod):
        reason, message = str(event.get("reason", "")), str(event.get("message", ""))
        lines = (*evidence, line("event", reason, "·", message))
        if _NO_QUOTA.search(message) and reason in ("FailedScaleUp", "NotTriggerScaleUp", "ScaleUpFailed"):
            return Diagnosis(
                "cloud-quota", Verdict.ACT, "the project's quota does not allow another such machine", lines,
                "ask for more quota (GPUs and, for flex-start and Spot, preemptible GPUs): "
                "gcloud compute regions describe REGION",
            )  # fmt: skip
        if _OUT_OF_CAPACITY.search(message):
            return Diagnosis(
                "out-of-capacity", Verdict.WAIT, "Google has no such machine in this zone now", lines,
                "allow more zones (--location-policy=ANY), another class of the plan, or a smaller gang: stayfast plan",
                "minutes to days; the autoscaler tries again by itself",
            )  # fmt: skip
        if reason == "TriggeredScaleUp":
            return Diagnosis(
                "waiting-for-node", Verdict.WAIT, "a node is being made for it", lines, "wait", SCALE_UP_WAIT
            )  # fmt: skip
        if reason == "NotTriggerScaleUp":
            return _no_scale_up(message, lines)
    return None


def _no_scale_up(message: str, lines: tuple[str, ...]) -> Diagnosis:
    if "max node group size reached" in message or "max cluster" in message:
        return Diagnosis(
            "pool-at-maximum", Verdict.ACT, "every pool that fits is at its largest size", lines,
            "raise it: gcloud container clusters update CLUSTER --node-pool POOL --enable-autoscaling --max-nodes N",
        )  # fmt: skip
    if "in backoff after failed scale-up" in message:
        return Diagnosis(
            "scale-up-backoff", Verdict.WAIT, "making a node failed a moment ago and is tried again later", lines,
            "look for the reason with: kubectl get events -A --field-selector reason=FailedScaleUp",
            "the autoscaler backs off for 5 to 30 minutes",
        )  # fmt: skip
    return Diagnosis(
        "no-scale-up", Verdict.ACT, "no pool would fit the pod even with one more node", lines,
        "compare selector, tolerations and requests with the pools: stayfast lint --explain SF508",
    )  # fmt: skip


def _explain_message(pod: Object, message: str, evidence: list[str]) -> Diagnosis:
    lines = tuple(evidence)
    if re.match(r"0/0 nodes|no nodes available", message):
        return Diagnosis(
            "no-nodes", Verdict.ACT, "the cluster has no node at all", lines,
            "make a pool, or let GKE make nodes: stayfast render writes the commands into pools.sh",
        )  # fmt: skip
    if "unbound immediate PersistentVolumeClaims" in message or "persistentvolumeclaim" in message.lower():
        return Diagnosis(
            "volume-not-bound", Verdict.ACT, "its volume claim is missing or not bound", lines,
            f"run: kubectl get pvc -n {meta(pod).get('namespace', 'default')}",
        )  # fmt: skip
    if "volume node affinity conflict" in message:
        return Diagnosis(
            "volume-in-another-zone", Verdict.ACT, "its disk is in another zone than the nodes", lines,
            "use a regional disk or a bucket, or choose the disk's zone (SF406)",
        )  # fmt: skip
    taints = [key.strip() for key, _ in _TAINT.findall(message)]
    known = next((key for key in taints if key in _TAINT_FIXES), taints[0] if taints else None)
    short = [name.rstrip(".") for name in _SHORT_OF.findall(message) if name.rstrip(".") != "pods"]
    if known is not None:
        return Diagnosis(
            "untolerated-taint", Verdict.ACT, f"nodes are there, and the pod does not tolerate their taint {known}",
            lines, _TAINT_FIXES.get(known, f"tolerate {known}, or use other nodes"),
        )  # fmt: skip
    if short:
        what = ", ".join(dict.fromkeys(short))
        return Diagnosis(
            "not-enough-resources", Verdict.WAIT, f"no node has enough {what} free", lines,
            "wait for others to end, let a pool grow, or ask for less", SCALE_UP_WAIT,
        )  # fmt: skip
    if "untolerated taint" in message:
        return Diagnosis(
            "untolerated-taint", Verdict.ACT, "nodes are there, and the pod does not tolerate their taints", lines,
            "compare: kubectl get nodes -o custom-columns=N:.metadata.name,T:.spec.taints[*].key",
        )  # fmt: skip
    if "node affinity/selector" in message or "node selector" in message:
        wanted = spec_of(pod).get("nodeSelector") or {}
        shown = ", ".join(f"{key}={value}" for key, value in sorted(wanted.items())) or "its affinity"
        return Diagnosis(
            "no-matching-node", Verdict.ACT, f"no node has the labels it asks for ({shown})", lines,
            "make a pool with them (pools.sh of stayfast render), or correct the selector",
        )  # fmt: skip
    return Diagnosis(
        "unschedulable", Verdict.WAIT, "the scheduler finds no node for it", lines,
        f"run: kubectl describe pod {meta(pod).get('name', '')}",
    )  # fmt: skip


def nominated(pod: Object) -> str:
    """The node whose pods are being removed for this one."""
    return str(status_of(pod).get("nominatedNodeName") or "")
