"""Pitfall 2, control-plane starvation: pieces that must stay on machines that go away."""

from __future__ import annotations

import re
from collections.abc import Iterator

from stayfast.documents.editor import Edit
from stayfast.documents.lookup import dig, number
from stayfast.lint.finding import ERROR, WARNING, Fix, Hit
from stayfast.lint.objects.bundle import Bundle
from stayfast.lint.objects.objects import ManifestObject
from stayfast.lint.objects.pod import PodCapacity, PodProfile
from stayfast.lint.rule import OBJECT, POD, rule

_SYSTEM_NAMESPACE = re.compile(
    r"kube-.*|gke-.*|.*-system|.*-operator|cert-manager|monitoring|observability|ingress-nginx|argocd|argo|keda|kubeflow"
)
_INFRASTRUCTURE = re.compile(
    r"(?:^|[-_])(?:controller-manager|operator|coredns|kube-dns|ingress(?:-nginx)?(?:-controller)?|prometheus|grafana|"
    r"alertmanager|cert-manager|webhook|argocd|etcd|kueue|jobset-controller|scheduler|autoscaler|metrics-server|controller|"
    r"kube-state-metrics|external-dns|istiod|gatekeeper|airflow|mongodb|elasticsearch|cassandra|nats|temporal|keycloak|"
    r"postgres(?:ql)?|mysql|redis|rabbitmq|kafka|zookeeper|vault|consul|minio|mlflow)(?:[-_]|$)"
)
_NAMED_COORDINATOR = re.compile(r"(?:^|-)(?:ray-?head|coordinator|job-?manager)(?:-|$)")
_COORDINATORS = {"head": "a Ray head", "launcher": "an MPI launcher", "leader": "an LWS leader"}


@rule("SF201", "infra-or-coordinator-on-spot", POD)
def infra_or_coordinator_on_spot(pod: PodProfile, _bundle: Bundle) -> Iterator[Hit]:
    """Infrastructure, or the one pod that everything else hangs on, sits on machines that go away."""
    if pod.capacity is PodCapacity.UNKNOWN:
        return
    role = "leader" if pod.kind == "LeaderWorkerSet" and not _has_leader_template(pod) else pod.template.role
    path = _capacity_path(pod)
    if pod.kind in ("Deployment", "StatefulSet"):
        in_system = _SYSTEM_NAMESPACE.fullmatch(pod.item.namespace) is not None
        if in_system or _INFRASTRUCTURE.search(pod.item.name):
            what = f"namespace {pod.item.namespace}" if in_system else f"{pod.item.name} is infrastructure"
            yield Hit(
                path, f"{what}: pin it to on-demand nodes (nodeAffinity: cloud.google.com/gke-spot DoesNotExist)", ERROR
            )
        elif pod.is_spot and _NAMED_COORDINATOR.search(pod.item.name):
            yield Hit(path, f"{pod.item.name} on Spot takes everything with it: pin it to on-demand nodes", WARNING)
    elif role in _COORDINATORS and pod.is_spot:
        yield Hit(
            path,
            f"{_COORDINATORS[role]} on Spot takes the whole cluster with it: pin it to on-demand nodes",
            WARNING,
        )


def _has_leader_template(pod: PodProfile) -> bool:
    return isinstance(dig(pod.item.spec, "leaderWorkerTemplate", "leaderTemplate"), dict)


def _capacity_path(pod: PodProfile) -> tuple[str | int, ...]:
    for demand in pod.demands:
        if (
            "spot" in demand.key
            or "flex-start" in demand.key
            or "preempt" in demand.key
            or "provisioning" in demand.key
        ):
            return demand.path
    return pod.spec_path


@rule("SF202", "tolerate-everything", POD)
def tolerate_everything(pod: PodProfile, _bundle: Bundle) -> Iterator[Hit]:
    """A toleration without a key lands on every tainted pool."""
    if pod.kind == "DaemonSet":
        return
    for toleration in pod.tolerations:
        if toleration.is_for_everything:
            yield Hit(
                toleration.path,
                "tolerates every taint, so the pod may land on Spot, queued and system pools alike: name the taints",
                WARNING,
            )


@rule("SF203", "critical-priority-for-batch", POD)
def critical_priority_for_batch(pod: PodProfile, _bundle: Bundle) -> Iterator[Hit]:
    """Batch work with a system priority class."""
    name = pod.spec.get("priorityClassName")
    if name not in ("system-cluster-critical", "system-node-critical"):
        return
    runs_once = pod.kind == "Pod" and pod.spec.get("restartPolicy") in ("Never", "OnFailure")
    if pod.is_job_like or pod.kind == "RayCluster" or pod.template.job is not None or runs_once:
        yield Hit(
            (*pod.spec_path, "priorityClassName"),
            f"{name} preempts system pods and is shut down in the second slot, with them: give batch work a "
            "class of its own",
            ERROR,
        )


@rule("SF204", "priority-class-hazard", OBJECT, "PriorityClass")
def priority_class_hazard(item: ManifestObject, bundle: Bundle) -> Iterator[Hit]:
    """A priority so low that nothing scales up for it, or a negative default for everybody."""
    value = number(item.value.get("value"))
    if value is None:
        return
    if value < -10 and bundle.settings.cluster_mode != "autopilot":
        yield Hit(
            ("value",),
            f"below -10 a pod never triggers a scale-up and is killed freely (Standard clusters): {value} should be "
            "between -10 and -1",
            WARNING,
            Fix((Edit("set", (), -10, key="value"),), safe=False),
        )
    if value < 0 and item.value.get("globalDefault") is True:
        yield Hit(
            ("globalDefault",),
            f"globalDefault gives every pod without a class the priority {value}: any pod of another class "
            "preempts them",
            WARNING,
            Fix((Edit("set", (), False, key="globalDefault"),), safe=False),
        )


@rule("SF204", "priority-class-hazard", POD)
def negative_priority_in_a_job_set(pod: PodProfile, bundle: Bundle) -> Iterator[Hit]:
    """A JobSet below 0: its pods are refused, for their priority becomes the value of a label."""
    if pod.kind != "JobSet":
        return
    name = pod.spec.get("priorityClassName")
    for item in bundle.of_kind("PriorityClass"):
        value = number(item.value.get("value"))
        is_used = item.name == name if name else item.value.get("globalDefault") is True
        if is_used and value is not None and value < 0:
            yield Hit(
                (*pod.spec_path, "priorityClassName") if name else pod.spec_path,
                f"PriorityClass {item.name} is {value}, and JobSet (0.11 and later) makes no pod below 0: it copies "
                "the priority into a label, where a minus sign is not allowed. Use another class of 0 or more; the "
                "value of a class cannot be changed",
                ERROR,
            )
