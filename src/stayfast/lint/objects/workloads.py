"""Where pod templates hide: every kind that makes pods, and what it says about how many and how they retry."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from stayfast.documents.lookup import dig, items, mapping, number, text
from stayfast.documents.positions import Path
from stayfast.lint.objects.objects import ManifestObject


class JobSpecAt(NamedTuple):
    """A ``JobSpec`` and where it stands."""

    spec: dict[str, Any]
    path: Path


class Template(NamedTuple):
    """A pod template inside an object."""

    item: ManifestObject
    value: dict[str, Any]
    path: Path
    role: str = "worker"  # worker, head, launcher, leader, submitter
    pods: int | None = 1  # pods at the same time; None where nobody can say
    hosts: int | None = None  # pods that make up one slice, where the kind says so
    job: JobSpecAt | None = None

    @property
    def spec(self) -> dict[str, Any]:
        """The pod spec."""
        return mapping(self.value.get("spec"))

    @property
    def spec_path(self) -> Path:
        """Where the pod spec stands."""
        return (*self.path, "spec")


def job_metadata_path(item: ManifestObject) -> Path:
    """Where the metadata stands that Kueue reads: on the object, or on the Jobs that a CronJob makes."""
    return ("spec", "jobTemplate", "metadata") if item.kind == "CronJob" else ("metadata",)


def total_pods(item: ManifestObject) -> int | None:
    """Pods of all templates together; ``None`` where nobody can say."""
    counts = [template.pods for template in templates(item)]
    return None if None in counts else sum(count or 0 for count in counts)


_REPLICATED = ("Deployment", "StatefulSet", "ReplicaSet", "ReplicationController")
_OPERATOR_SPECS = ("mpiReplicaSpecs", "pytorchReplicaSpecs", "tfReplicaSpecs", "jaxReplicaSpecs", "xgbReplicaSpecs")
_ROLES = {"Launcher": "launcher", "Master": "worker", "Chief": "worker"}

JOB_LIKE = frozenset(
    ("Job", "CronJob", "JobSet", "RayJob", "MPIJob", "PyTorchJob", "TFJob", "JAXJob", "XGBoostJob", "TrainJob")
)
GANG_KINDS = frozenset(("JobSet", "LeaderWorkerSet", "MPIJob", "PyTorchJob", "TFJob", "JAXJob", "XGBoostJob"))


def templates(item: ManifestObject) -> Iterator[Template]:
    """Every pod template of an object."""
    kind, group = item.kind, item.group
    if kind == "Pod":
        yield Template(item, item.value, ())
    elif kind == "Job" and group == "batch":
        yield from _job(item, ("spec",), 1)
    elif kind == "CronJob":
        yield from _job(item, ("spec", "jobTemplate", "spec"), 1)
    elif kind in _REPLICATED or kind == "DaemonSet":
        count = None if kind == "DaemonSet" else number(item.spec.get("replicas", 1))
        yield from _template(item, ("spec", "template"), count=count)
    elif kind == "PodTemplate":
        yield from _template(item, ("template",), count=None)
    elif kind == "JobSet":
        yield from _jobset(item, ("spec",))
    elif kind in ("TrainingRuntime", "ClusterTrainingRuntime"):
        yield from _training_runtime(item)
    elif kind == "LeaderWorkerSet":
        yield from _leader_worker_set(item)
    elif kind in ("RayCluster", "RayJob", "RayService"):
        yield from _ray(item)
    elif kind == "Job":
        yield from _volcano(item)
    else:
        yield from _operator(item)


def _template(
    item: ManifestObject,
    path: Path,
    *,
    role: str = "worker",
    count: int | None = 1,
    hosts: int | None = None,
    job: JobSpecAt | None = None,
) -> Iterator[Template]:
    value = dig(item.value, *path)
    if isinstance(value, dict) and isinstance(value.get("spec"), dict):
        yield Template(item, value, path, role, count, hosts, job)


def _job(item: ManifestObject, path: Path, replicas: int | None) -> Iterator[Template]:
    spec = mapping(dig(item.value, *path))
    parallelism = number(spec.get("parallelism", 1))
    completions = number(spec.get("completions"))
    if parallelism is not None and completions is not None:
        parallelism = min(parallelism, completions)  # never more pods than there is left to complete
    count = None if parallelism is None or replicas is None else parallelism * replicas
    yield from _template(item, (*path, "template"), count=count, hosts=parallelism, job=JobSpecAt(spec, path))


def _jobset(item: ManifestObject, path: Path) -> Iterator[Template]:
    for index, inner in enumerate(items(dig(item.value, *path, "replicatedJobs"))):
        replicas = number(mapping(inner).get("replicas", 1))
        yield from _job(item, (*path, "replicatedJobs", index, "template", "spec"), replicas)


def _training_runtime(item: ManifestObject) -> Iterator[Template]:
    nodes = number(dig(item.value, "spec", "mlPolicy", "numNodes"), 1) or 1
    for template in _jobset(item, ("spec", "template", "spec")):
        name = dig(item.value, *template.path[:5], "name")
        yield template._replace(pods=nodes, hosts=nodes) if name == "node" else template


def _leader_worker_set(item: ManifestObject) -> Iterator[Template]:
    base: Path = ("spec", "leaderWorkerTemplate")
    size = number(dig(item.value, *base, "size"), 1)
    replicas = number(item.spec.get("replicas", 1))
    has_leader = isinstance(dig(item.value, *base, "leaderTemplate"), dict)
    yield from _template(item, (*base, "leaderTemplate"), role="leader", count=replicas)
    workers = None if size is None or replicas is None else max(size - has_leader, 0) * replicas
    yield from _template(item, (*base, "workerTemplate"), count=workers, hosts=size)


def _ray(item: ManifestObject) -> Iterator[Template]:
    base: Path = {"RayJob": ("spec", "rayClusterSpec"), "RayService": ("spec", "rayClusterConfig")}.get(
        item.kind, ("spec",)
    )
    yield from _template(item, (*base, "headGroupSpec", "template"), role="head")
    for index, group in enumerate(items(dig(item.value, *base, "workerGroupSpecs"))):
        group = mapping(group)
        hosts = number(group.get("numOfHosts", 1))
        replicas = number(group.get("replicas", group.get("minReplicas", 1)))
        count = None if hosts is None or replicas is None else hosts * replicas
        yield from _template(item, (*base, "workerGroupSpecs", index, "template"), count=count, hosts=hosts)
    yield from _template(item, ("spec", "submitterPodTemplate"), role="submitter")


def _volcano(item: ManifestObject) -> Iterator[Template]:
    for index, task in enumerate(items(item.spec.get("tasks"))):
        count = number(mapping(task).get("replicas", 1))
        yield from _template(item, ("spec", "tasks", index, "template"), count=count, hosts=count)


def _operator(item: ManifestObject) -> Iterator[Template]:
    for field in _OPERATOR_SPECS:
        for role, replica in mapping(item.spec.get(field)).items():
            count = number(mapping(replica).get("replicas", 1))
            yield from _template(
                item, ("spec", field, role, "template"), role=_ROLES.get(text(role), "worker"), count=count, hosts=count
            )
