"""Live objects for the linter: as what is linted, or as what the files are judged against."""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any, NamedTuple

from stayfast.cli.arguments import chosen_namespace, connect
from stayfast.clock import SystemClock
from stayfast.cluster.kubernetes.client import Client, Object
from stayfast.cluster.kubernetes.resources import (
    BUDGETS,
    CLAIMS,
    CLUSTER_QUEUES,
    COMPUTE_CLASSES,
    DEPLOYMENTS,
    JOB_SETS,
    JOBS,
    LOCAL_QUEUES,
    PRIORITY_CLASSES,
    STORAGE_CLASSES,
    Resource,
)
from stayfast.cluster.observed.objects import meta
from stayfast.cluster.observed.snapshot import take_snapshot
from stayfast.documents import parse_documents
from stayfast.lint.engine import is_manifest
from stayfast.lint.objects.objects import unpack
from stayfast.lint.sources import Source

KINDS = (
    JOBS, JOB_SETS, DEPLOYMENTS, BUDGETS, CLAIMS, PRIORITY_CLASSES, STORAGE_CLASSES, COMPUTE_CLASSES, LOCAL_QUEUES,
    CLUSTER_QUEUES,
    Resource("kueue.x-k8s.io", "v1beta2", "resourceflavors", "ResourceFlavor", False),
    Resource("kueue.x-k8s.io", "v1beta2", "admissionchecks", "AdmissionCheck", False),
)  # fmt: skip
SOURCE_CHARACTERS = 1_000_000  # the gate before the YAML reader allows three times as much
_NOT_WRITTEN = ("status", "managedFields")
_NOT_WRITTEN_METADATA = (
    "managedFields", "uid", "resourceVersion", "creationTimestamp", "generation", "selfLink", "ownerReferences",
    "finalizers", "deletionTimestamp", "deletionGracePeriodSeconds",
)  # fmt: skip
_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


class Live(NamedTuple):
    """What the cluster holds."""

    objects: list[Object]
    is_complete: bool
    """Whether every kind could be read: only then does absence prove anything."""
    name: str
    """The file name that findings show."""

    def sources(self, *, without: set[tuple[str, str, str]] | None = None) -> list[Source]:
        """As texts, less those that a file is about to replace."""
        kept = [item for item in self.objects if _identity(item) not in (without or set())]
        found: list[Source] = []
        part: list[Object] = []
        size = 0
        for item in [*kept, None]:
            if part and (item is None or size > SOURCE_CHARACTERS):
                suffix = f"-{len(found) + 1}" if found else ""
                body = {"apiVersion": "v1", "kind": "List", "items": part}
                found.append(Source(f"{self.name}{suffix}", json.dumps(body, indent=1)))
                part, size = [], 0
            if item is not None:
                part.append(item)
                size += len(json.dumps(item, indent=1))
        return found


def read_live(args: argparse.Namespace) -> Live:
    """Ask the cluster, in pages, a kind at a time."""
    with connect(args) as client:
        return gather_live(client, chosen_namespace(args, client))


def gather_live(client: Client, namespace: str | None) -> Live:
    """The objects that rules look at, as somebody would have written them."""
    observed = take_snapshot(client, namespace, KINDS, now=SystemClock().wall())
    hidden = {name: why for name, why in observed.unseen.items() if "has no group" not in why}
    for name, why in hidden.items():
        print(f"stayfast: {name} cannot be read, so its absence is not judged: {why}", file=sys.stderr)
    objects = []
    for resource in KINDS:
        for item in observed.of(resource):
            if not any(ref.get("controller") for ref in meta(item).get("ownerReferences") or []):
                objects.append(_as_written(resource, item))
    return Live(objects, not hidden, f"cluster/{client.access.context or 'in-cluster'}")


def _as_written(resource: Resource, item: Object) -> Object:
    metadata = {key: value for key, value in meta(item).items() if key not in _NOT_WRITTEN_METADATA}
    annotations = {key: value for key, value in (metadata.get("annotations") or {}).items() if key != _LAST_APPLIED}
    if annotations:
        metadata["annotations"] = annotations
    else:
        metadata.pop("annotations", None)
    body = {key: value for key, value in item.items() if key not in (*_NOT_WRITTEN, "metadata", "apiVersion", "kind")}
    return {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": metadata, **body}


def written(sources: list[Source]) -> set[tuple[str, str, str]]:
    """Kind, namespace and name of all objects in the files."""
    found = set()
    for source in sources:
        if source.problem or not is_manifest(source.name):
            continue
        for document in parse_documents(source.text).documents:
            found |= {(item.kind, item.namespace, item.name) for item in unpack(source.name, document)}
    return found | {(kind, "default", name) for kind, place, name in found if not place}


def _identity(item: Object) -> tuple[str, str, str]:
    metadata: dict[str, Any] = meta(item)
    return str(item.get("kind")), str(metadata.get("namespace") or ""), str(metadata.get("name"))
