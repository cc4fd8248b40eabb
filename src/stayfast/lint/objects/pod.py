"""Profile first: which capacity, which accelerator, how many, coupled or not, queued or not."""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Any

from stayfast.capacity.machines import gke_keys as keys
from stayfast.documents.lookup import dig, mapping, text
from stayfast.documents.positions import Path
from stayfast.lint.objects.containers import Container, containers
from stayfast.lint.objects.scheduling import NodeRequirement, Toleration, demands, every_term_is_spot, tolerations
from stayfast.lint.objects.workloads import GANG_KINDS, JOB_LIKE, Template, job_metadata_path, total_pods
from stayfast.model.labels import COUPLED

CONSUME = ("autoscaling.x-k8s.io/consume-provisioning-request",)
CONSUME_OLD = ("cluster-autoscaler.kubernetes.io/consume-provisioning-request",)
GPU = "nvidia.com/gpu"
TPU = "google.com/tpu"

_LAUNCHERS = re.compile(
    r"\b(torchrun|mpirun|mpiexec|torch\.distributed\.(run|launch)|deepspeed|horovodrun)\b|accelerate launch"
)
_RANKS = frozenset(("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "NODE_RANK", "COORDINATOR_ADDRESS", "NNODES",
                    "GLOBAL_RANK", "LOCAL_RANK", "JAX_COORDINATOR_ADDRESS", "PET_NNODES"))  # fmt: skip
_TRAINS = re.compile(r"(?<!s)train|fine-?tun", re.IGNORECASE)  # a constraint is no training
_SPOT_CLASSES = frozenset(("autopilot-spot",))  # ComputeClasses that GKE brings along


class PodCapacity(StrEnum):
    """What kind of machine time a pod asks for."""

    SPOT = "spot"
    SPOT_INTENT = "spot-intent"  # tolerates a Spot taint, selects nothing
    FLEX_START = "flex-start"
    QUEUED = "queued"
    UNKNOWN = "none"


class PodProfile:
    """A pod template with everything the rules ask about it, worked out once."""

    __slots__ = (
        "annotations", "capacity", "compute_class", "containers", "demands", "init_containers", "item", "labels",
        "owner_annotations", "owner_labels", "owner_path", "path", "queue", "spec", "spec_path", "template",
        "tolerations",
    )  # fmt: skip

    def __init__(self, template: Template) -> None:
        self.template = template
        self.item = template.item
        self.path: Path = template.path
        self.spec_path: Path = template.spec_path
        self.spec: dict[str, Any] = template.spec
        metadata = mapping(template.value.get("metadata"))
        self.labels = mapping(metadata.get("labels"))
        self.annotations = mapping(metadata.get("annotations"))
        self.demands: list[NodeRequirement] = demands(self.spec, self.spec_path)
        self.tolerations: list[Toleration] = tolerations(self.spec, self.spec_path)
        self.containers: list[Container] = containers(self.spec, self.spec_path)
        self.init_containers: list[Container] = containers(self.spec, self.spec_path, "initContainers")
        self.owner_path: Path = job_metadata_path(self.item)
        owner = mapping(dig(self.item.value, *self.owner_path))
        self.owner_labels = mapping(owner.get("labels"))
        self.owner_annotations = mapping(owner.get("annotations"))
        self.queue = text(self.owner_labels.get(keys.QUEUE_LABEL))
        classes = self.wanted(keys.COMPUTE_CLASS)
        self.compute_class = text(classes[0]) if classes else ""
        self.capacity = _capacity(self)

    @property
    def kind(self) -> str:
        """Kind of the object that makes this pod."""
        return self.item.kind

    @property
    def is_partial(self) -> bool:
        """A patch for another manifest (kustomize): what it does not say, the other one does."""
        return not any(container.image for container in self.containers)

    @property
    def is_job_like(self) -> bool:
        """Runs to completion, as opposed to serving."""
        return self.kind in JOB_LIKE

    @property
    def is_interruptible(self) -> bool:
        """Will be taken away sooner or later."""
        return self.capacity is not PodCapacity.UNKNOWN

    @property
    def is_spot(self) -> bool:
        """Spot, chosen or merely hoped for."""
        return self.capacity in (PodCapacity.SPOT, PodCapacity.SPOT_INTENT)

    def demand(self, key: str) -> NodeRequirement | None:
        """The first requirement on a node label."""
        return next((found for found in self.demands if found.key == key and not found.excludes), None)

    def wanted(self, key: str) -> tuple[Any, ...]:
        """The values a node label may have; empty when the pod does not care."""
        found = self.demand(key)
        if found is None or "affinity" not in found.path:
            return found.values if found else ()
        same = [other.values for other in self.demands if other.key == key and not other.excludes]
        return tuple(dict.fromkeys(value for values in same for value in values)) if all(same) else ()

    def selects(self, key: str, value: str = "true") -> NodeRequirement | None:
        """The requirement that this label has this value."""
        found = self.demand(key)
        if found is None:
            return None
        values = self.wanted(key)
        return found if not values or any(_spelled(item) == value for item in values) else None

    def request(self, resource: str) -> float:
        """What all containers together request of a resource (limits count where no request is given)."""
        return sum(container.request(resource) or 0.0 for container in self.containers)

    @property
    def accelerators(self) -> float:
        """GPUs and TPU chips of one pod."""
        return self.request(GPU) + self.request(TPU)

    @property
    def rank_hint(self) -> str:
        """Why this pod looks like one rank of many: a launcher, or the environment of one; empty if it does not."""
        for container in self.containers:
            match = _LAUNCHERS.search(container.command_text)
            if match:
                return match.group(0)
            for name in container.environment:
                if name in _RANKS:
                    return name
        return ""

    @property
    def coupling(self) -> str:
        """Why the pods of this workload must run together; empty when they need not."""
        job = self.template.job
        if self.declared_independent:
            return ""
        if self.kind in GANG_KINDS or (self.kind == "Job" and job is None):  # without a JobSpec it is Volcano's Job
            total = self.template.hosts if self.kind == "LeaderWorkerSet" else total_pods(self.item)
            return f"{self.kind} pods run together" if total is None or total > 1 else ""
        count = self.template.pods
        if self.kind in ("TrainingRuntime", "ClusterTrainingRuntime"):
            return f"{count} nodes of one training" if count is not None and count > 1 else ""
        if self.kind in ("Job", "CronJob") and job is not None and count is not None and count > 1:
            if self.rank_hint:
                return f"{count} pods with {self.rank_hint}"
            if job.spec.get("completionMode") == "Indexed":
                return f"{count} Indexed pods"
            if self.trains:
                return f"{count} pods that train"
        return ""

    @property
    def declared_independent(self) -> bool:
        """Says itself that none of its pods waits for another, whatever it looks like."""
        return self.labels.get(COUPLED) == "false"

    @property
    def trains(self) -> bool:
        """Says "train" in its name, image or command."""
        words = [self.item.name]
        for container in self.containers:
            words += [container.name, container.image, container.command_text]
        return any(_TRAINS.search(word) for word in words)


def _spelled(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def _capacity(pod: PodProfile) -> PodCapacity:
    if _is_queued(pod):
        return PodCapacity.QUEUED
    if pod.selects(keys.FLEX_START) or pod.selects(keys.PROVISIONING, "flex-start"):
        return PodCapacity.FLEX_START
    if pod.selects(keys.SPOT) or pod.selects(keys.PREEMPTIBLE):
        return PodCapacity.SPOT
    if pod.selects(keys.PROVISIONING, "spot") or pod.selects(keys.PROVISIONING, "preemptible"):
        return PodCapacity.SPOT
    if every_term_is_spot(pod.spec):
        return PodCapacity.SPOT
    if pod.compute_class in _SPOT_CLASSES or any(_is_custom_spot(found) for found in pod.demands):
        return PodCapacity.SPOT
    spotlike = any(toleration.is_spotlike for toleration in pod.tolerations)
    if spotlike and pod.kind != "DaemonSet" and not _picks_elsewhere(pod):  # a DaemonSet is for every node
        return PodCapacity.SPOT_INTENT
    return PodCapacity.UNKNOWN


def _is_custom_spot(found: NodeRequirement) -> bool:
    """A label of the user's own (or a pool's name) that says Spot; other clouds have other rules."""
    if found.excludes or any(cloud in found.key for cloud in ("amazonaws", "karpenter", "azure", "oci.", "ray.io")):
        return False
    if found.key.startswith(keys.DOMAIN) and found.key != keys.NODE_POOL:
        return False
    said = (found.key if found.values in (("true",), ()) else "", *(text(value) for value in found.values))
    return any(re.search(r"(?:^|[-_.])(?:spot|preemptible)(?:[-_.]|$)", word) for word in said)


def _is_queued(pod: PodProfile) -> bool:
    if pod.selects(keys.QUEUED) or pod.demand(keys.PROVISIONING_REQUEST):
        return True
    if any(toleration.key == keys.QUEUED for toleration in pod.tolerations):
        return True
    if any(key in pod.annotations for key in (*CONSUME, *CONSUME_OLD)):
        return True
    every = (*pod.owner_annotations, *pod.item.annotations, *pod.annotations)
    return any(isinstance(key, str) and key.startswith(keys.PROVREQ_PREFIX) for key in every)


def _picks_elsewhere(pod: PodProfile) -> bool:
    """The pod says itself that it does not want Spot."""
    if any(found.excludes and found.key in (keys.SPOT, keys.PREEMPTIBLE, keys.PROVISIONING) for found in pod.demands):
        return True
    return pod.selects(keys.PROVISIONING, "standard") is not None or pod.selects(keys.SPOT, "false") is not None
