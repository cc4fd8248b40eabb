"""Which node pools a Standard cluster needs for the run."""

from __future__ import annotations

from dataclasses import dataclass

from stayfast.model.capacity import CapacityClass
from stayfast.render.context import RenderContext
from stayfast.render.naming import pool_name

CONTROL_POOL = "stayfast-control"
CONTROL_MACHINE = "e2-standard-4"


@dataclass(frozen=True, slots=True)
class NodePool:
    """A pool as both gcloud and Terraform want it."""

    name: str
    machine: str
    why: str
    least_nodes: int
    most_nodes: int
    zones: tuple[str, ...]
    has_accelerator: bool = False
    gpu: str | None = None
    gpu_count: int = 0
    spot: bool = False
    flex_start: bool = False
    queued: bool = False
    run_seconds: int | None = None
    shutdown_seconds: int | None = None
    critical_seconds: int | None = None


def node_pools(outline: RenderContext) -> list[NodePool]:
    """None on Autopilot, none for a ComputeClass (it makes its own), none where the spec names existing ones."""
    if outline.is_autopilot:
        return []
    pools = [] if outline.class_rows or outline.spec.pools else [_workers(outline)]
    return [*pools, _control(outline)] if not outline.spec.pools else []


def _workers(outline: RenderContext) -> NodePool:
    spec, machine, capacity = outline.spec, outline.machine, outline.capacity
    suffix, why = {
        CapacityClass.SPOT: ("spot", "Spot machines, tainted so that nothing lands there by accident"),
        CapacityClass.FLEX_START: ("flex", "flex-start machines, handed out one by one, for at most seven days"),
        CapacityClass.ON_DEMAND: ("on-demand", "on-demand machines with the accelerator"),
    }[capacity]
    if outline.is_queued:
        suffix, why = "queued", "flex-start machines, handed out all at once when a ProvisioningRequest asks"
    is_flex = capacity == CapacityClass.FLEX_START
    is_long = capacity == CapacityClass.SPOT and outline.window.is_long
    return NodePool(
        name=pool_name(outline.name, suffix),
        machine=machine.name,
        why=why,
        least_nodes=0,
        most_nodes=spec.nodes,
        zones=spec.zones,
        has_accelerator=True,
        gpu=None if outline.is_tpu else outline.accelerator,  # a TPU machine is what its type says
        gpu_count=0 if outline.is_tpu else machine.count,
        spot=capacity == CapacityClass.SPOT,
        flex_start=is_flex,
        queued=outline.is_queued,
        # Queued: each request says it.
        run_seconds=outline.lease_seconds if is_flex and not outline.is_queued else None,
        shutdown_seconds=outline.window.shutdown_seconds if is_long else None,
        critical_seconds=outline.window.critical_seconds if is_long else None,
    )


def _control(outline: RenderContext) -> NodePool:
    return NodePool(
        name=CONTROL_POOL,
        machine=CONTROL_MACHINE,
        why="on-demand machines for what must stay: Kueue, JobSet, monitoring, DNS",
        least_nodes=1,
        most_nodes=3,
        zones=outline.spec.zones,
    )
