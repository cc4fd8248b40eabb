"""Pitfall 7, disruption budgets: the ones that block every drain, and what they do not do."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from stayfast.documents.editor import Edit
from stayfast.documents.lookup import dig, mapping, number, text
from stayfast.lint.finding import ADVICE, ERROR, WARNING, Fix, Hit
from stayfast.lint.objects.bundle import Bundle, same_namespace
from stayfast.lint.objects.objects import ManifestObject
from stayfast.lint.objects.pod import PodProfile
from stayfast.lint.objects.workloads import JOB_LIKE
from stayfast.lint.rule import OBJECT, rule
from stayfast.model.kubernetes_objects import matches

_NO_SCALE = (JOB_LIKE - {"PyTorchJob"}) | {"Pod", "RayCluster"}  # PyTorchJob has a scale subresource


def _pod_labels(pod: PodProfile) -> dict[str, Any]:
    """Labels of the pods, those that controllers add included."""
    labels = dict(pod.labels)
    name = pod.item.name
    if pod.kind in ("Job", "CronJob"):
        labels |= {"job-name": name, "batch.kubernetes.io/job-name": name}
    elif pod.kind == "JobSet":
        labels["jobset.sigs.k8s.io/jobset-name"] = name
        labels["jobset.sigs.k8s.io/replicatedjob-name"] = dig(pod.item.value, *pod.path[:3], "name")
    elif pod.kind == "LeaderWorkerSet":
        labels["leaderworkerset.sigs.k8s.io/name"] = name
    elif pod.kind in ("RayCluster", "RayJob", "RayService") and pod.template.role != "submitter":
        labels |= {"ray.io/is-ray-node": "yes", "ray.io/node-type": "head" if pod.template.role == "head" else "worker"}
        labels["ray.io/cluster"] = name
        head = pod.template.role == "head"
        labels["ray.io/group"] = "headgroup" if head else dig(pod.item.value, *pod.path[:-1], "groupName")
    elif pod.kind in ("MPIJob", "PyTorchJob", "TFJob"):
        labels["training.kubeflow.org/job-name"] = name
        labels["training.kubeflow.org/replica-type"] = str(pod.path[2]).lower()
    return labels


# Labels that only the controllers know the values of.
_CONTROLLERS = (
    "jobset.sigs.k8s.io/", "leaderworkerset.sigs.k8s.io/", "ray.io/", "training.kubeflow.org/", "batch.kubernetes.io/",
    "statefulset.kubernetes.io/", "apps.kubernetes.io/", "controller-uid", "pod-template-hash",
    "controller-revision-hash",
)  # fmt: skip


def _is_set_later(budget: ManifestObject, bundle: Bundle) -> bool:
    """Whether the selector asks for a label that a controller will set to something that is not known here."""
    wanted = mapping(dig(budget.spec, "selector", "matchLabels"))
    known = {key for pod in bundle.pods for key in _pod_labels(pod)}
    return any(str(key).startswith(_CONTROLLERS) and key not in known for key in wanted)


def _covered(budget: ManifestObject, bundle: Bundle) -> list[PodProfile]:
    selector = budget.spec.get("selector")
    if not isinstance(selector, dict):
        return []
    first = next(iter(mapping(selector.get("matchLabels")).items()), None)
    candidates = _labelled(bundle).get(_pair(*first), []) if first else [(pod, _pod_labels(pod)) for pod in bundle.pods]
    return [pod for pod, labels in candidates if _is_neighbour(pod, budget) and matches(selector, labels)]


def _labelled(bundle: Bundle) -> dict[str, list[tuple[PodProfile, dict[str, Any]]]]:
    """Pods by each label they carry, so that many budgets over many pods stay quick."""
    if "pods by label" not in bundle.memo:
        index: dict[str, list[tuple[PodProfile, dict[str, Any]]]] = {}
        for pod in bundle.pods:
            labels = _pod_labels(pod)
            for key, value in labels.items():
                index.setdefault(_pair(key, value), []).append((pod, labels))
        bundle.memo["pods by label"] = index
    found: dict[str, list[tuple[PodProfile, dict[str, Any]]]] = bundle.memo["pods by label"]
    return found


def _pair(key: str, value: Any) -> str:
    return f"{key}={value}"


def _is_neighbour(pod: PodProfile, budget: ManifestObject) -> bool:
    return pod.kind != "PodTemplate" and same_namespace(pod.item.namespace, budget.namespace)


def _percentage(value: Any) -> bool:
    return isinstance(value, str) and value.endswith("%")


@rule("SF701", "pdb-needs-scale", OBJECT, "PodDisruptionBudget")
def pdb_needs_scale(item: ManifestObject, bundle: Bundle) -> Iterator[Hit]:
    """maxUnavailable or a percentage over pods whose owner has no scale."""
    relative = next((field for field in ("maxUnavailable", "minAvailable") if _is_relative(field, item)), None)
    if relative is None:
        return
    pods = [pod for pod in _covered(item, bundle) if pod.kind in _NO_SCALE]
    if pods:
        count = sum(pod.template.pods or 1 for pod in pods)
        edits = [Edit("remove", ("spec", relative)), Edit("set", ("spec",), max(count - 1, 0), key="minAvailable")]
        yield Hit(
            ("spec", relative),
            f"{pods[0].item.title} has no scale subresource, so {relative}: {item.spec[relative]} allows no "
            "disruption at all: "
            "every eviction answers 429; use an integer minAvailable below the pod count",
            ERROR,
            Fix(tuple(edits), safe=False),
        )


def _is_relative(field: str, item: ManifestObject) -> bool:
    value = item.spec.get(field)
    return value is not None and (field == "maxUnavailable" or _percentage(value))


@rule("SF702", "pdb-blocks-drain", OBJECT, "PodDisruptionBudget")
def pdb_blocks_drain(item: ManifestObject, bundle: Bundle) -> Iterator[Hit]:
    """A budget under which no voluntary eviction ever succeeds."""
    most, least = item.spec.get("maxUnavailable"), item.spec.get("minAvailable")
    if most in (0, "0", "0%") and most is not False:
        yield Hit(
            ("spec", "maxUnavailable"),
            f"maxUnavailable: {most} blocks every drain and upgrade: leave room for one",
            WARNING,
        )
        return
    if least == "100%":
        yield Hit(
            ("spec", "minAvailable"), "minAvailable: 100% blocks every drain and upgrade: leave room for one", WARNING
        )
        return
    pods = _covered(item, bundle)
    if not pods or (_percentage(least) and any(pod.kind in _NO_SCALE for pod in pods)):
        return  # a percentage over pods without a scale is another fault
    counts = [_replicas(pod, bundle) for pod in pods]
    if None in counts:
        return
    total = sum(count for count in counts if count is not None)
    needed = _needed(least, total)
    if needed is not None and needed >= max(total, 1):
        yield Hit(
            ("spec", "minAvailable"),
            f"minAvailable {least} over {total} pod{'s' * (total != 1)} ({pods[0].item.title}): no voluntary "
            "eviction ever "
            "succeeds, so drains and upgrades hang",
            WARNING,
        )


def _needed(least: Any, total: int) -> int | None:
    """Pods that must stay; percentages are rounded up, as the controller does."""
    if _percentage(least) and least[:-1].isascii() and least[:-1].isdigit():
        return -(-int(least[:-1][:3]) * total // 100)
    return number(least)


def _replicas(pod: PodProfile, bundle: Bundle) -> int | None:
    if pod.kind in ("Deployment", "StatefulSet", "ReplicaSet"):
        for scaler in bundle.of_kind("HorizontalPodAutoscaler"):
            target = mapping(scaler.spec.get("scaleTargetRef"))
            if target.get("kind") == pod.kind and target.get("name") == pod.item.name:
                return number(scaler.spec.get("minReplicas", 1))
        if any(
            text(dig(scaler.spec, "scaleTargetRef", "name")) == pod.item.name
            for scaler in bundle.of_kind("ScaledObject")
        ):
            return None
    return pod.template.pods


@rule("SF703", "pdb-selects-nothing", OBJECT, "PodDisruptionBudget")
def pdb_selects_nothing(item: ManifestObject, bundle: Bundle) -> Iterator[Hit]:
    """A budget whose selector matches none of the workloads beside it."""
    if any(_is_neighbour(pod, item) for pod in bundle.pods) and not _covered(item, bundle):
        if _is_set_later(item, bundle):
            return
        labels = mapping(dig(item.spec, "selector", "matchLabels"))
        names = ", ".join(f"{key}={value}" for key, value in labels.items()) or "this selector"
        yield Hit(("spec", "selector"), f"no pod template here carries {names}: the budget protects nothing", WARNING)


@rule("SF704", "pdb-is-not-protection", OBJECT, "PodDisruptionBudget")
def pdb_is_not_protection(item: ManifestObject, bundle: Bundle) -> Iterator[Hit]:
    """A budget over pods on interruptible capacity."""
    pods = [pod for pod in _covered(item, bundle) if pod.is_interruptible]
    if pods:
        yield Hit(
            ("spec",),
            f"a budget does not stop the loss of a {pods[0].capacity} node ({pods[0].item.title}): it governs "
            "drains and "
            "upgrades only; rely on checkpoints and the failure policy",
            ADVICE,
        )
