"""Which node pools a Standard cluster needs for the run."""

from __future__ import annotations

from dataclasses import dataclass

from stayfast.render.context import RenderContext, RenderedCapacity
from stayfast.render.naming import pool_name

SPOT_TAINT = "cloud.google.com/gke-spot"
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
    suffix = {
        RenderedCapacity.SPOT: "spot",
        RenderedCapacity.FLEX_START: "flex",
        RenderedCapacity.QUEUED: "queued",
        RenderedCapacity.ON_DEMAND: "on-demand",
    }[capacity]
    why = {
        RenderedCapacity.SPOT: "Spot machines, tainted so that nothing lands there by accident",
        RenderedCapacity.FLEX_START: "flex-start machines, handed out one by one, for at most seven days",
        RenderedCapacity.QUEUED: "flex-start machines, handed out all at once when a ProvisioningRequest asks",
        RenderedCapacity.ON_DEMAND: "on-demand machines with the accelerator",
    }[capacity]
    is_flex = capacity in (RenderedCapacity.FLEX_START, RenderedCapacity.QUEUED)
    is_long = capacity == RenderedCapacity.SPOT and outline.window.is_long
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
        spot=capacity == RenderedCapacity.SPOT,
        flex_start=is_flex,
        queued=capacity == RenderedCapacity.QUEUED,
        run_seconds=outline.lease_seconds
        if capacity == RenderedCapacity.FLEX_START
        else None,  # queued: each request says it
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
