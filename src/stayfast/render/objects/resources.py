"""What a pod asks for: the whole machine, less what the node keeps for itself."""

from __future__ import annotations

import math

from stayfast.capacity.machines.machine import Machine
from stayfast.render.context import RenderContext

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


def memory_advice(outline: RenderContext) -> list[str]:
    """A sentence when the snapshot leaves the program too little."""
    room, snapshot = memory_request_gib(outline.machine), snapshot_gib(outline)
    if snapshot * 2 <= room:
        return []
    where = f"the {room} GiB that a pod gets on {outline.machine.name}"
    cure = "take a machine with more memory, or more nodes"
    return [f"a snapshot of {snapshot:.1f} GiB takes more than half of {where}: {cure}"]
