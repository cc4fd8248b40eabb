"""All objects that are linted together, with the questions rules ask across them."""

from __future__ import annotations

from typing import Any, NamedTuple

from stayfast.capacity.machines.gke_keys import SPOT
from stayfast.documents.lookup import dig, items, mapping, text
from stayfast.lint.objects.objects import ManifestObject
from stayfast.lint.objects.pod import PodCapacity, PodProfile
from stayfast.lint.objects.pools import NodePool
from stayfast.lint.objects.workloads import templates


class LintSettings(NamedTuple):
    """What the user told us about the cluster and the run."""

    kubernetes: str = "1.36"
    cluster_mode: str = "unknown"  # autopilot, standard, unknown
    pools_are_complete: bool = False
    max_accelerators: int | None = None
    is_cluster_snapshot: bool = False


class Bundle:
    """Objects, pods and pools of one folder or one command line."""

    def __init__(self, objects: list[ManifestObject], pools: list[NodePool], settings: LintSettings) -> None:
        self.objects = objects
        self.settings = settings
        self.pods: list[PodProfile] = [PodProfile(template) for item in objects for template in templates(item)]
        self.pools: list[NodePool] = pools
        self._pods_of: dict[int, list[PodProfile]] = {}
        for pod in self.pods:
            self._pods_of.setdefault(id(pod.item), []).append(pod)
        self.memo: dict[str, Any] = {}  # what a rule works out once per bundle
        self._by_kind: dict[str, list[ManifestObject]] = {}
        self._by_name: dict[tuple[str, str], list[ManifestObject]] = {}
        for item in objects:
            self._by_kind.setdefault(item.kind, []).append(item)
            self._by_name.setdefault((item.kind, item.name), []).append(item)
        self._apply_compute_classes()
        self._apply_queues()

    def of_kind(self, *kinds: str) -> list[ManifestObject]:
        """All objects of these kinds."""
        return [item for kind in kinds for item in self._by_kind.get(kind, [])]

    def named(self, kind: str, name: str, namespace: str | None = None) -> ManifestObject | None:
        """The object of that kind and name; a namespace narrows it down (an absent one matches any)."""
        for item in self._by_name.get((kind, name), []):
            if namespace is None or same_namespace(item.namespace, namespace):
                return item
        return None

    def compute_class(self, pod: PodProfile) -> ManifestObject | None:
        """The ComputeClass of a pod, where the bundle has it."""
        return self.named("ComputeClass", pod.compute_class) if pod.compute_class else None

    def spot_rows(self, pod: PodProfile) -> list[dict[str, Any]]:
        """The Spot priorities of a pod's ComputeClass."""
        found = self.compute_class(pod)
        rows = [mapping(row) for row in items(found.spec.get("priorities"))] if found else []
        return [row for row in rows if row.get("spot") is True]

    def pods_of(self, item: ManifestObject) -> list[PodProfile]:
        """The pods that an object makes."""
        return self._pods_of.get(id(item), [])

    def _apply_compute_classes(self) -> None:
        for pod in self.pods:
            found = self.compute_class(pod)
            if found is None or pod.capacity is not PodCapacity.UNKNOWN:
                continue
            if self.spot_rows(pod):
                pod.capacity = PodCapacity.SPOT
            elif any(dig(row, "flexStart", "enabled") is True for row in items(found.spec.get("priorities"))):
                pod.capacity = PodCapacity.FLEX_START

    def cluster_queue(self, pod: PodProfile) -> ManifestObject | None:
        """The ClusterQueue of a pod, where the bundle has the chain to it."""
        local = self.named("LocalQueue", pod.queue, pod.item.namespace) if pod.queue else None
        return self.named("ClusterQueue", text(local.spec.get("clusterQueue"))) if local else None

    def _apply_queues(self) -> None:
        """Flavors that are all Spot nodes, or an admission check that provisions nodes, decide the capacity."""
        for pod in self.pods:
            queue = self.cluster_queue(pod) if pod.queue and pod.capacity is PodCapacity.UNKNOWN else None
            if queue is None:
                continue
            groups = [mapping(group) for group in items(queue.spec.get("resourceGroups"))]
            names = [mapping(flavor).get("name") for group in groups for flavor in items(group.get("flavors"))]
            flavors = [self.named("ResourceFlavor", text(name)) for name in names]
            labels = [mapping(flavor.spec.get("nodeLabels")) for flavor in flavors if flavor]
            if labels and all(entry.get(SPOT) == "true" for entry in labels):
                pod.capacity = PodCapacity.SPOT
            elif labels and len(labels) == len(names) and self._provisioning_checks(queue, every_flavor=True):
                pod.capacity = PodCapacity.QUEUED

    def _provisioning_checks(self, queue: ManifestObject, *, every_flavor: bool) -> list[ManifestObject]:
        """Admission checks of a queue that ask for nodes: those for all its flavors, or also those for some."""
        names = items(queue.spec.get("admissionChecks"))
        groups = [mapping(group) for group in items(queue.spec.get("resourceGroups"))]
        every = {text(mapping(flavor).get("name")) for group in groups for flavor in items(group.get("flavors"))}
        for entry in items(dig(queue.spec, "admissionChecksStrategy", "admissionChecks")):
            covered = {text(name) for name in items(mapping(entry).get("onFlavors"))} or every
            if covered >= every or not every_flavor:
                names = [*names, mapping(entry).get("name")]
        checks = [self.named("AdmissionCheck", text(name)) for name in names]
        return [check for check in checks if check and "provisioning-request" in text(check.spec.get("controllerName"))]

    def waits_for_all_nodes(self, pod: PodProfile) -> bool:
        """Whether Kueue asks for all nodes at once; where the bundle does not have the chain, the queue is trusted."""
        queue = self.cluster_queue(pod)
        return bool(pod.queue) and (queue is None or bool(self._provisioning_checks(queue, every_flavor=False)))

    def provisioning_config(self, pod: PodProfile) -> ManifestObject | None:
        """Kueue's ProvisioningRequestConfig that a pod's queue leads to, where the bundle has the whole chain."""
        queue = self.cluster_queue(pod)
        for check in self._provisioning_checks(queue, every_flavor=False) if queue else []:
            found = self.named("ProvisioningRequestConfig", text(dig(check.spec, "parameters", "name")))
            if found:
                return found
        return None


def same_namespace(left: str, right: str) -> bool:
    """Namespaces match; one that is not written down may be any (it comes from the kubectl context)."""
    return left == right or not left or not right or {left, right} == {"", "default"}
