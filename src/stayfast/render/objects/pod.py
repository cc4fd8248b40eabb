"""The pod template that Job, JobSet and Deployment share, and what a pod asks for: the whole machine, less what the
node keeps for itself.
"""

from __future__ import annotations

import math
from typing import Any

from stayfast.capacity.machines.machine import Machine
from stayfast.capacity.spec.workload import WorkloadKind
from stayfast.model.labels import COUPLED, LEASE_ENDS_AT
from stayfast.render.context import Controller, RenderContext
from stayfast.render.objects.environment import (
    LEASE_DIRECTORY,
    LEASE_FILE,
    container_command,
    container_variables,
    credentials_name,
    needs_credentials,
    shared_variables,
)
from stayfast.render.objects.monitoring import METRICS_PORT, PORT_NAME, is_watched
from stayfast.render.objects.placement import affinity, node_selector, tolerations
from stayfast.render.objects.storage import claim_name

USER = 1000


def pod_template(outline: RenderContext) -> dict[str, Any]:
    """Metadata and spec of the pods."""
    labels = dict(outline.labels)
    if outline.spec.kind in (WorkloadKind.BATCH, WorkloadKind.SWEEP):
        labels[COUPLED] = "false"  # several pods, but none waits for another
    metadata: dict[str, Any] = {"labels": labels}
    if outline.spec.volume_kind == "gcsfuse":
        metadata["annotations"] = {"gke-gcsfuse/volumes": "true"}
    return {"metadata": metadata, "spec": pod_spec(outline)}


def pod_spec(outline: RenderContext) -> dict[str, Any]:
    """Only what is wanted: no key without a value."""
    is_endpoint = outline.spec.kind == WorkloadKind.SERVE
    spec: dict[str, Any] = {
        "restartPolicy": "Always" if is_endpoint else "Never",
        "terminationGracePeriodSeconds": outline.window.pod_seconds,
        "serviceAccountName": outline.name,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
    }
    if outline.has_priority:
        spec["priorityClassName"] = outline.priority_class_name
    if outline.is_gang and outline.form == Controller.JOB:
        spec["subdomain"] = outline.name
    spec["nodeSelector"] = node_selector(outline)
    where = {"affinity": affinity(outline), "tolerations": tolerations(outline)}
    spec |= {key: value for key, value in where.items() if value}
    spec["securityContext"] = {
        "runAsNonRoot": True,
        "runAsUser": USER,
        "runAsGroup": USER,
        "fsGroup": USER,
        "fsGroupChangePolicy": "OnRootMismatch",
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    spec["containers"] = [container(outline)]
    spec["volumes"] = volumes(outline)
    return spec


def container(outline: RenderContext) -> dict[str, Any]:
    """The one container of the pod."""
    found: dict[str, Any] = {
        "name": "main",
        "image": outline.spec.image,
        "command": container_command(outline.spec.command),
    }
    sources: list[dict[str, Any]] = []
    if shared_variables(outline):
        sources.append({"configMapRef": {"name": outline.name}})
    if needs_credentials(outline):
        sources.append({"secretRef": {"name": credentials_name(outline)}})
    if sources:
        found["envFrom"] = sources
    found["env"] = container_variables(outline)
    if is_watched(outline):
        found["ports"] = [{"name": PORT_NAME, "containerPort": METRICS_PORT}]
    asked = requests(outline)
    found["resources"] = {"requests": asked, "limits": {outline.resource: asked[outline.resource]}}
    found["securityContext"] = {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    found["terminationMessagePolicy"] = "FallbackToLogsOnError"
    found["volumeMounts"] = mounts(outline)
    return found


def mounts(outline: RenderContext) -> list[dict[str, Any]]:
    """Where the volumes appear."""
    found: list[dict[str, Any]] = [
        {"name": "tmp", "mountPath": "/tmp"},
        {"name": "shared-memory", "mountPath": "/dev/shm"},
    ]
    if outline.has_lease:
        found.append({"name": "lease", "mountPath": LEASE_DIRECTORY, "readOnly": True})
    if outline.spec.volume_kind:
        found.append({"name": "checkpoints", "mountPath": outline.spec.volume_path})
    return found


def volumes(outline: RenderContext) -> list[dict[str, Any]]:
    """Scratch space, the lease's end, and checkpoints where they are kept on a volume."""
    found: list[dict[str, Any]] = [
        {"name": "tmp", "emptyDir": {}},
        {"name": "shared-memory", "emptyDir": {"medium": "Memory", "sizeLimit": f"{shared_memory_gib(outline)}Gi"}},
    ]
    if outline.has_lease:
        field = f"metadata.annotations['{LEASE_ENDS_AT}']"
        item = {"path": LEASE_FILE, "fieldRef": {"fieldPath": field}}
        found.append({"name": "lease", "downwardAPI": {"items": [item]}})
    if outline.spec.volume_kind:
        claim = {"claimName": claim_name(outline)}
        found.append({"name": "checkpoints", "persistentVolumeClaim": claim})
    return found


EPHEMERAL_GIB = 10
"""For /tmp and logs; without a request Autopilot allows 1 GiB."""

_DAEMONS_CPU, _DAEMONS_GIB = 0.8, 1.5
"""GKE's own agents on a GPU node; careful, since a request that is too large is Pending for ever."""

_CPU_RESERVED = ((1, 0.06), (1, 0.01), (2, 0.005), (math.inf, 0.0025))
_MEMORY_RESERVED = ((4, 0.25), (4, 0.20), (8, 0.10), (112, 0.06), (math.inf, 0.02))
"""What a GKE node reserves, by slices of the machine: the formula that is commonly given for Standard nodes ("Plan GKE
Standard node sizes" in GKE's documentation). Not checked on a node by us; the margins below are for that."""


def cpu_request(machine: Machine) -> int:
    """Whole CPUs that surely fit."""
    return max(1, math.floor(_left(machine.vcpus, _CPU_RESERVED) * 0.95 - _DAEMONS_CPU))


def memory_request_gib(machine: Machine) -> int:
    """GiB that surely fit; the pod has the machine to itself, so snapshots are in it."""
    return max(1, math.floor((_left(machine.memory_gib, _MEMORY_RESERVED) - 0.1 - _DAEMONS_GIB) * 0.95))


def _left(total: float, slices: tuple[tuple[float, float], ...]) -> float:
    rest, reserved = float(total), 0.0
    for size, share in slices:
        part = min(rest, size)
        reserved += part * share
        rest -= part
    return total - reserved


def snapshot_gib(outline: RenderContext) -> float:
    """Host memory of one snapshot: this node's share of the state."""
    return (outline.spec.state_bytes or 0) / outline.spec.nodes / 2**30


def shared_memory_gib(outline: RenderContext) -> int:
    """/dev/shm for data loaders and collectives; Kubernetes gives 64 MiB otherwise."""
    return max(1, min(64, memory_request_gib(outline.machine) // 4))


def requests(outline: RenderContext) -> dict[str, str]:
    """``resources.requests`` of the container, GPUs included."""
    return {
        "cpu": str(cpu_request(outline.machine)),
        "memory": f"{memory_request_gib(outline.machine)}Gi",
        "ephemeral-storage": f"{EPHEMERAL_GIB}Gi",
        outline.resource: str(outline.machine.count),
    }
