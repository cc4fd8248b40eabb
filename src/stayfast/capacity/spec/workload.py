"""What the user wrote in ``stayfast.yaml``, as plain values."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from stayfast.model.capacity import CapacityClass


class WorkloadKind(enum.StrEnum):
    """What sort of work it is."""

    TRAIN = "train"
    BATCH = "batch"
    SWEEP = "sweep"  # one item per trial, each a run inside a task
    SERVE = "serve"  # an endpoint: planned for on-demand


class Monitoring(enum.StrEnum):
    """Who collects the metrics of the pods."""

    MANAGED = "managed"  # Google's managed Prometheus
    NONE = "none"


@dataclass(frozen=True, slots=True)
class WorkloadSpec:
    """One workload; times in seconds, sizes in bytes, money in US dollars."""

    name: str
    kind: WorkloadKind
    image: str
    command: tuple[str, ...]
    accelerator: str
    accelerator_count: int
    """Per node."""
    nodes: int = 1
    work_seconds: float | None = None
    """Machine time of the whole gang without interruptions; None for an endpoint."""
    units: int | None = None
    """Steps or items, if the work was given so."""
    unit_seconds: float | None = None
    deadline_seconds: float | None = None
    interruptible: bool = True
    longest_wait_seconds: float | None = None
    latency_critical: bool = False
    state_bytes: int | None = None
    checkpoint_url: str | None = None
    bucket_region: str | None = None
    volume_kind: str | None = None
    """filestore, gcsfuse or regional-disk; None where a bucket URL is enough."""
    volume_path: str = "/checkpoints"
    volume_bytes: int | None = None
    volume_bucket: str | None = None
    service_account: str | None = None
    """A Google service account to act as, through Workload Identity."""
    queue_url: str | None = None
    sink_url: str | None = None
    region: str | None = None
    zones: tuple[str, ...] = ()
    cluster_mode: str = "standard"
    cluster_version: str | None = None
    pools: tuple[str, ...] = ()
    namespace: str = "default"
    budget_usd: float | None = None
    capacity: CapacityClass | None = None
    """None: choose for me."""
    monitoring: Monitoring = Monitoring.MANAGED
    where: str = "stayfast.yaml"
    """The file it came from."""
