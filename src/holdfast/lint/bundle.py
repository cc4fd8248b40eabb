"""All objects that are linted together, with the questions rules ask across them."""

from __future__ import annotations

from typing import Any, NamedTuple

from holdfast.lint.objects import Item, items, mapping, text
from holdfast.lint.pools import Pool
from holdfast.lint.profile import Capacity, Pod
from holdfast.lint.scheduling import SPOT
from holdfast.lint.workloads import templates


class Settings(NamedTuple):
    """What the user told us about the cluster and the run."""

    kubernetes: str = "1.36"
    cluster_mode: str = "unknown"  # autopilot, standard, unknown
    pools_are_complete: bool = False
    max_accelerators: int | None = None
    is_cluster_snapshot: bool = False


class Bundle:
    """Objects, pods and pools of one folder or one command line."""

    def __init__(self, objects: list[Item], pools: list[Pool], settings: Settings) -> None:
        self.objects = objects
        self.settings = settings
        self.pods: list[Pod] = [Pod(template) for item in objects for template in templates(item)]
        self.pools: list[Pool] = pools
        self._pods_of: dict[int, list[Pod]] = {}
        for pod in self.pods:
            self._pods_of.setdefault(id(pod.item), []).append(pod)
        self.memo: dict[str, Any] = {}  # what a rule works out once per bundle
        self._by_kind: dict[str, list[Item]] = {}
        self._by_name: dict[tuple[str, str], list[Item]] = {}
        for item in objects:
            self._by_kind.setdefault(item.kind, []).append(item)
            self._by_name.setdefault((item.kind, item.name), []).append(item)
        self._apply_compute_classes()
        self._apply_queues()

    def of_kind(self, *kinds: str) -> list[Item]:
        """All objects of these kinds."""
        return [item for kind in kinds for item in self._by_kind.get(kind, [])]

    def named(self, kind: str, name: str, namespace: str | None = None) -> Item | None:
        """The object of that kind and name; a namespace narrows it down (an absent one matches any)."""
        for item in self._by_name.get((kind, name), []):
            if namespace is None or same_namespace(item.namespace, namespace):
                return item
        return None

    def compute_class(self, pod: Pod) -> Item | None:
        """The ComputeClass of a pod, where the bundle has it."""
        return self.named("ComputeClass", pod.compute_class) if pod.compute_class else None

    def pods_of(self, item: Item) -> list[Pod]:
        """The pods that an object makes."""
        return self._pods_of.get(id(item), [])

    def _apply_compute_classes(self) -> None:
        for pod in self.pods:
            found = self.compute_class(pod)
            if found is None or pod.capacity is not Capacity.UNKNOWN:
                continue
            rows = [mapping(row) for row in items(found.spec.get("priorities"))]
            if any(row.get("spot") is True for row in rows):
                pod.capacity = Capacity.SPOT
            elif any(mapping(row.get("flexStart")).get("enabled") is True for row in rows):
                pod.capacity = Capacity.FLEX_START

    def cluster_queue(self, pod: Pod) -> Item | None:
        """The ClusterQueue of a pod, where the bundle has the chain to it."""
        local = self.named("LocalQueue", pod.queue, pod.item.namespace) if pod.queue else None
        return self.named("ClusterQueue", text(local.spec.get("clusterQueue"))) if local else None

    def _apply_queues(self) -> None:
        """Flavors that are all Spot nodes, or an admission check that provisions nodes, decide the capacity."""
        for pod in self.pods:
            queue = self.cluster_queue(pod) if pod.queue and pod.capacity is Capacity.UNKNOWN else None
            if queue is None:
                continue
            groups = [mapping(group) for group in items(queue.spec.get("resourceGroups"))]
            names = [mapping(flavor).get("name") for group in groups for flavor in items(group.get("flavors"))]
            flavors = [self.named("ResourceFlavor", text(name)) for name in names]
            labels = [mapping(flavor.spec.get("nodeLabels")) for flavor in flavors if flavor]
            if labels and all(entry.get(SPOT) == "true" for entry in labels):
                pod.capacity = Capacity.SPOT
            elif labels and len(labels) == len(names) and self._is_provisioned(queue):
                pod.capacity = Capacity.QUEUED

    def _is_provisioned(self, queue: Item) -> bool:
        strategy = mapping(queue.spec.get("admissionChecksStrategy"))  # since v1beta2 the only place
        names = [mapping(entry).get("name") for entry in items(strategy.get("admissionChecks"))]
        names += items(queue.spec.get("admissionChecks"))
        checks = [self.named("AdmissionCheck", text(name)) for name in names]
        return any(check and "provisioning-request" in text(check.spec.get("controllerName")) for check in checks)


def same_namespace(left: str, right: str) -> bool:
    """Namespaces match; one that is not written down may be any (it comes from the kubectl context)."""
    return left == right or not left or not right or {left, right} == {"", "default"}


def matches(selector: Any, labels: dict[str, Any]) -> bool:
    """Whether a label selector picks these labels; an empty selector picks everything."""
    selector = mapping(selector)
    for key, value in mapping(selector.get("matchLabels")).items():
        if labels.get(key) != value:
            return False
    return all(_expression(mapping(entry), labels) for entry in items(selector.get("matchExpressions")))


def _expression(entry: dict[str, Any], labels: dict[str, Any]) -> bool:
    key, operator, values = text(entry.get("key")), entry.get("operator"), items(entry.get("values"))
    if operator == "In":
        return key in labels and labels[key] in values
    if operator == "NotIn":
        return labels.get(key) not in values
    if operator == "Exists":
        return key in labels
    if operator == "DoesNotExist":
        return key not in labels
    return False
