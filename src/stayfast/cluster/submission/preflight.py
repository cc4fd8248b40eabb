"""Before anything is applied: would the server take every object, and is there what the pods will need?

The server's own dry run is asked about each object; what it does not look at (quota of a Job's future pods, priority
class, account, volumes, nodes that fit) is looked up. All problems are gathered, errors and warnings apart.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from stayfast.cluster.kubernetes.client import Client, Object
from stayfast.cluster.kubernetes.discovery import Discovery
from stayfast.cluster.kubernetes.resources import (
    ACCOUNTS,
    CLAIMS,
    NAMESPACES,
    NODES,
    PRIORITY_CLASSES,
    QUOTAS,
    STORAGE_CLASSES,
    Resource,
)
from stayfast.cluster.observed.objects import meta, spec_of, status_of
from stayfast.cluster.observed.problem import Problem, ProblemSeverity
from stayfast.errors import ClusterAccessError, ObjectConflictError, ObjectMissingError, ObjectRefusedError
from stayfast.model.kubernetes_objects import identity
from stayfast.text.units import quantity


class TargetedObject(NamedTuple):
    """An object and where it belongs."""

    resource: Resource
    namespace: str | None
    value: Object


def resolve_resources(
    client: Client, objects: list[Object], namespace: str
) -> tuple[list[TargetedObject], list[Problem]]:
    """Find the resource of every object; kinds that the cluster lacks are problems."""
    discovery = Discovery(client)
    placed, problems = [], []
    for value in objects:
        resource = discovery.find(value)
        if resource is None:
            problems.append(
                Problem(
                    ProblemSeverity.ERROR,
                    identity(value),
                    f"this cluster has no {value.get('kind')} of {value.get('apiVersion')}",
                    "run: stayfast check-cluster",
                )
            )
            continue
        where = str(meta(value).get("namespace") or namespace) if resource.namespaced else None
        placed.append(TargetedObject(resource, where, value))
    return placed, problems


def missing_namespaces(client: Client, placed: list[TargetedObject]) -> set[str]:
    """Namespaces that the objects need and the cluster does not have yet."""
    wanted = {item.namespace for item in placed if item.namespace is not None}
    found = set()
    for name in wanted:
        try:
            client.get(NAMESPACES, None, name)
        except ObjectMissingError:
            found.add(name)
        except ClusterAccessError:
            pass  # not allowed to look: the dry run will tell
    return found


def dry_run_objects(client: Client, placed: list[TargetedObject], *, force: bool, absent: set[str]) -> list[Problem]:
    """The server's own opinion of every object."""
    problems = []
    made_here = {str(meta(item.value).get("name")) for item in placed if item.resource == NAMESPACES}
    for name in sorted(absent - made_here):
        problems.append(
            Problem(
                ProblemSeverity.ERROR,
                f"Namespace/{name}",
                f"there is no namespace {name}",
                f"run: kubectl create namespace {name}",
            )
        )
    for item in placed:
        if item.namespace in absent:
            continue  # it cannot be tried before its namespace exists; submit makes that first and tries then
        try:
            client.apply(item.resource, item.namespace, item.value, dry_run=True, force=force)
        except (ObjectRefusedError, ObjectConflictError, ObjectMissingError, ClusterAccessError) as error:
            problems.append(Problem(ProblemSeverity.ERROR, identity(item.value), error.message, error.help or ""))
    return problems


def check_dependencies(client: Client, placed: list[TargetedObject], workload: Object, namespace: str) -> list[Problem]:
    """What the workload's pods will ask for when nobody looks any more."""
    pod, pods = pod_spec(workload)
    problems: list[Problem] = []
    for check in (_check_priority, _check_account, _check_claims, _check_quota, _check_nodes):
        try:
            problems += check(client, placed, pod, pods, namespace)
        except ClusterAccessError as error:
            what = check.__name__.removeprefix("_check_")
            problems.append(
                Problem(ProblemSeverity.WARNING, identity(workload), f"{what} could not be checked: {error.message}")
            )
    return problems


def pod_spec(workload: Object) -> tuple[dict[str, Any], int]:
    """The pod that it makes, and how many at once."""
    spec = spec_of(workload)
    if workload.get("kind") == "JobSet":
        pods = 0
        template: dict[str, Any] = {}
        for row in spec.get("replicatedJobs") or []:
            job = ((row.get("template") or {}).get("spec")) or {}
            pods += int(row.get("replicas") or 1) * int(job.get("parallelism") or 1)
            template = template or ((job.get("template") or {}).get("spec") or {})
        return template, pods
    template = ((spec.get("template") or {}).get("spec")) or {}
    return template, int(spec.get("parallelism") or spec.get("replicas") or 1)


def _has(client: Client, placed: list[TargetedObject], resource: Resource, namespace: str | None, name: str) -> bool:
    written = any(item.resource == resource and meta(item.value).get("name") == name for item in placed)
    return written or client.find(resource, namespace, name) is not None


def _check_priority(
    client: Client, placed: list[TargetedObject], pod: dict[str, Any], _pods: int, _namespace: str
) -> Iterator[Problem]:
    name = pod.get("priorityClassName")
    if name and not _has(client, placed, PRIORITY_CLASSES, None, str(name)):
        yield Problem(
            ProblemSeverity.ERROR,
            f"PriorityClass/{name}",
            "does not exist: the Job would be accepted and make no pod (SF803)",
            "apply it, or remove priorityClassName",
        )


def _check_account(
    client: Client, placed: list[TargetedObject], pod: dict[str, Any], _pods: int, namespace: str
) -> Iterator[Problem]:
    name = str(pod.get("serviceAccountName") or "default")
    if name != "default" and not _has(client, placed, ACCOUNTS, namespace, name):
        yield Problem(
            ProblemSeverity.ERROR, f"ServiceAccount/{name}", "does not exist: no pod can be made", "apply it first"
        )


def _check_claims(
    client: Client, placed: list[TargetedObject], pod: dict[str, Any], _pods: int, namespace: str
) -> Iterator[Problem]:
    for volume in pod.get("volumes") or []:
        name = ((volume or {}).get("persistentVolumeClaim") or {}).get("claimName")
        if not name:
            continue
        claim = client.find(CLAIMS, namespace, str(name))
        written = next(
            (item.value for item in placed if item.resource == CLAIMS and meta(item.value).get("name") == name), None
        )
        if claim is None and written is None:
            yield Problem(
                ProblemSeverity.ERROR,
                f"PersistentVolumeClaim/{name}",
                "does not exist: the pods would wait for ever",
                "make it",
            )
        elif claim is not None and status_of(claim).get("phase") == "Lost":
            yield Problem(ProblemSeverity.ERROR, f"PersistentVolumeClaim/{name}", "has lost its volume", "make it anew")
        elif claim is None or status_of(claim).get("phase") != "Bound":
            yield from _check_class(client, placed, claim or written or {}, str(name))


def _check_class(client: Client, placed: list[TargetedObject], claim: Object, name: str) -> Iterator[Problem]:
    """An unbound claim is fine when its class can still make the volume."""
    kind = spec_of(claim).get("storageClassName")
    if kind == "":
        if not spec_of(claim).get("volumeName"):
            yield Problem(
                ProblemSeverity.WARNING,
                f"PersistentVolumeClaim/{name}",
                "is unbound and waits for a volume made by hand",
            )
    elif kind and not _has(client, placed, STORAGE_CLASSES, None, str(kind)):
        yield Problem(
            ProblemSeverity.ERROR,
            f"PersistentVolumeClaim/{name}",
            f"asks for the StorageClass {kind}, which does not exist",
            "run: kubectl get storageclasses",
        )


def _check_quota(
    client: Client, _placed: list[TargetedObject], pod: dict[str, Any], pods: int, namespace: str
) -> Iterator[Problem]:
    needs: dict[str, float] = {"pods": float(pods), "count/pods": float(pods)}
    for container in pod.get("containers") or []:
        resources = (container or {}).get("resources") or {}
        for name, value in {**(resources.get("limits") or {}), **(resources.get("requests") or {})}.items():
            amount = (quantity(value) or 0.0) * pods
            needs[f"requests.{name}"] = needs.get(f"requests.{name}", 0.0) + amount
            if name in ("cpu", "memory"):
                needs[name] = needs.get(name, 0.0) + amount
    for quota in client.list(QUOTAS, namespace):
        status = status_of(quota)
        hard, used = status.get("hard") or spec_of(quota).get("hard") or {}, status.get("used") or {}
        for name, limit in hard.items():
            most, taken, wanted = quantity(limit), quantity(used.get(name, 0)) or 0.0, needs.get(name, 0.0)
            if most is not None and wanted and taken + wanted > most:
                weight = ProblemSeverity.ERROR if wanted > most else ProblemSeverity.WARNING
                yield Problem(
                    weight, f"ResourceQuota/{meta(quota).get('name')}",
                    f"allows {limit} {name}, {used.get(name, 0)} are used, and this asks for {wanted:g}",
                    "ask for less, wait for others, or raise the quota",
                )  # fmt: skip


def _check_nodes(
    client: Client, _placed: list[TargetedObject], pod: dict[str, Any], _pods: int, _namespace: str
) -> Iterator[Problem]:
    """Only a warning: pools at size 0 and automatic ones cannot be seen from here."""
    wanted = pod.get("nodeSelector") or {}
    if not wanted:
        return
    for page in client.pages(NODES):
        for node in page.items:
            labels = meta(node).get("labels") or {}
            if all(labels.get(key) == value for key, value in wanted.items()):
                return
    shown = ", ".join(f"{key}={value}" for key, value in sorted(wanted.items()))
    yield Problem(
        ProblemSeverity.WARNING,
        "Node",
        f"no node has {shown} now; fine if a pool can grow from 0 or nodes are made on demand",
        "run: stayfast check-cluster --describe FILE",
    )
