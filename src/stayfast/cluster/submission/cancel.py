"""The end of a run: its workload is deleted, and what a watch would make it anew from; its checkpoints stay."""

from __future__ import annotations

from stayfast.cluster.kubernetes.client import Client, Object
from stayfast.cluster.kubernetes.discovery import resolve_served
from stayfast.cluster.kubernetes.resources import CONFIG_MAPS, DEPLOYMENTS, JOB_SETS, JOBS, Resource
from stayfast.cluster.observed.objects import meta
from stayfast.errors import ClusterAccessError, UsageError
from stayfast.model.labels import CLASSES, PART_LABEL, run_selector


def cancel_run(client: Client, namespace: str, run: str, *, dry_run: bool = False) -> list[str]:
    """``KIND/NAME`` of each object that was deleted, or would be."""
    found = find_workloads(client, namespace, run)
    if not found:
        raise UsageError(f"there is no run {run} in namespace {namespace}", help="run: stayfast status -A")
    deleted = []
    for resource, item in [*_classes(client, namespace, run), *found]:
        name, uid = str(meta(item)["name"]), str(meta(item).get("uid", ""))
        # The uid guards against a namesake that was made between looking and deleting.
        if dry_run or client.delete(resource, namespace, name, uid=uid):
            deleted.append(f"{resource.kind}/{name}")
    return deleted


def find_workloads(client: Client, namespace: str, run: str) -> list[tuple[Resource, Object]]:
    """The JobSets, Deployments and free-standing Jobs of a run."""
    labels = run_selector(run)
    kinds, _ = resolve_served(client, [JOB_SETS])
    sets = [(kind, item) for kind in kinds for item in client.list(kind, namespace, labels=labels)]
    sets += [(DEPLOYMENTS, item) for item in client.list(DEPLOYMENTS, namespace, labels=labels)]
    jobs = client.list(JOBS, namespace, labels=labels)
    alone = [job for job in jobs if not any(ref.get("kind") == "JobSet" for ref in _owners(job))]
    return sets + [(JOBS, item) for item in alone]


def _classes(client: Client, namespace: str, run: str) -> list[tuple[Resource, Object]]:
    """What a watch would make the run anew from; it goes first."""
    labels = f"{run_selector(run)},{PART_LABEL}={CLASSES}"
    try:
        return [(CONFIG_MAPS, item) for item in client.list(CONFIG_MAPS, namespace, labels=labels)]
    except ClusterAccessError:
        return []  # whoever may not look at ConfigMaps has not made one with submit --fall-back either


def _owners(item: Object) -> list[Object]:
    return [ref for ref in meta(item).get("ownerReferences") or [] if isinstance(ref, dict)]
