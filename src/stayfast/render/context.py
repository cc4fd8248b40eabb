"""What every object of a bundle needs to know, worked out once from the spec and the plan."""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass
from typing import Any

from stayfast.capacity.machines import gke_keys as keys
from stayfast.capacity.machines.gke_limits import (
    CRITICAL_SECONDS,
    LONG_SPOT_GRACE_SECONDS,
    LONGEST_RUN_SECONDS,
    SHORTEST_LEASE_SECONDS,
    SPOT_GRACE_SECONDS,
    allows_long_grace,
)
from stayfast.capacity.machines.machine import Machine
from stayfast.capacity.plan.planner import Plan
from stayfast.capacity.spec.workload import WorkloadKind, WorkloadSpec
from stayfast.model.capacity import CapacityClass, Provisioning
from stayfast.model.labels import RUN_LABEL, SPEC_DIGEST
from stayfast.render.naming import digest, scoped

_ROWS = {
    CapacityClass.SPOT: "spot",
    CapacityClass.FLEX_START: "flexStart",
    CapacityClass.ON_DEMAND: "onDemand",
}
"""What a ComputeClass calls them."""


class Controller(enum.StrEnum):
    """Which controller restarts a single training pod."""

    JOB = "job"
    JOBSET = "jobset"


@dataclass(frozen=True, slots=True)
class GraceWindow:
    """Seconds between SIGTERM and SIGKILL, and the two kubelet settings that they come from."""

    pod_seconds: int
    shutdown_seconds: int
    critical_seconds: int

    def __str__(self) -> str:
        """As the digest of a run has it: that must stay the same, whatever the class is called."""
        return (
            f"Window(pod_seconds={self.pod_seconds}, shutdown_seconds={self.shutdown_seconds}, "
            f"critical_seconds={self.critical_seconds})"
        )

    @property
    def is_long(self) -> bool:
        """Whether the Spot pool must be set to it; only Spot knows the setting."""
        return self.critical_seconds > 0 and self.shutdown_seconds > 30


@dataclass(frozen=True, slots=True)
class RenderContext:
    """The decisions behind a bundle."""

    spec: WorkloadSpec
    plan: Plan
    form: Controller
    capacity: CapacityClass
    provisioning: Provisioning
    window: GraceWindow

    @property
    def name(self) -> str:
        """Of the run and of its namespaced objects."""
        return self.spec.name

    @property
    def namespace(self) -> str:
        return self.spec.namespace

    @property
    def cluster_name(self) -> str:
        """Of objects that the whole cluster shares: two runs must never fight over one."""
        return scoped(self.spec.namespace, self.spec.name)

    @property
    def machine(self) -> Machine:
        return self.plan.machine

    @property
    def accelerator(self) -> str:
        """GKE's name for it, as node labels and classes have it."""
        return self.machine.gke_accelerator

    @property
    def is_tpu(self) -> bool:
        return self.machine.topology is not None

    @property
    def resource(self) -> str:
        """What a container requests to get accelerators; also the taint of their nodes."""
        return "google.com/tpu" if self.is_tpu else "nvidia.com/gpu"

    @property
    def accelerator_labels(self) -> dict[str, str]:
        """Labels of the nodes that have them; a TPU host is a slice with a topology."""
        if self.machine.topology is not None:
            return {
                keys.TPU_ACCELERATOR: self.accelerator,
                keys.TPU_TOPOLOGY: self.machine.topology,
            }
        return {keys.ACCELERATOR: self.accelerator}

    @property
    def is_gang(self) -> bool:
        """Several pods that must run together."""
        return self.spec.kind == WorkloadKind.TRAIN and self.spec.nodes > 1

    @property
    def is_queued(self) -> bool:
        """On flex-start machines that come all at once or not at all."""
        return self.provisioning == Provisioning.ALL_OR_NONE

    @property
    def capacity_text(self) -> str:
        """The capacity in files and JSON, where a queued gang has a word of its own."""
        return "queued" if self.is_queued else self.capacity.value

    @property
    def is_interruptible(self) -> bool:
        """On machines that go away."""
        return self.capacity != CapacityClass.ON_DEMAND

    @property
    def is_queue_worker(self) -> bool:
        """Pods that lease items from a queue, as opposed to one trial per index."""
        return self.spec.kind in (WorkloadKind.BATCH, WorkloadKind.SWEEP) and self.spec.queue_url is not None

    @property
    def has_lease(self) -> bool:
        """Whether the machine may be one whose end is known from the start."""
        return self.capacity == CapacityClass.FLEX_START or "flexStart" in self.class_rows

    @property
    def has_priority(self) -> bool:
        """Interruptible work gives way to everything else; work that may not be interrupted must not."""
        return self.is_interruptible and self.spec.interruptible

    @property
    def priority_class_name(self) -> str:
        """The value of a PriorityClass cannot be changed, so a JobSet's class has a name of its own."""
        return f"{self.cluster_name}-jobset" if self.form == Controller.JOBSET else self.cluster_name

    @property
    def class_rows(self) -> tuple[str, ...]:
        """The priorities of the ComputeClass, first choice first; empty when there is none."""
        if self.capacity == CapacityClass.HYBRID and self.plan.promise is not None:
            return tuple(_ROWS[kind] for kind in self.plan.promise.classes)
        if self.capacity == CapacityClass.SPOT and self.window.is_long and self.is_autopilot:
            return ("spot",)  # Autopilot has no pools to set the grace period on: a class is the only way
        return ()

    @property
    def is_autopilot(self) -> bool:
        return self.spec.cluster_mode == "autopilot"

    @property
    def lease_seconds(self) -> int:
        """How long a flex-start machine is booked: the work and a quarter more, in whole hours, at most seven days."""
        work = self.spec.work_seconds or LONGEST_RUN_SECONDS
        hours = math.ceil(work * 1.25 / 3600) * 3600
        return max(SHORTEST_LEASE_SECONDS, min(LONGEST_RUN_SECONDS, hours))

    @property
    def labels(self) -> dict[str, str]:
        """On every object and every pod."""
        return {
            "app.kubernetes.io/name": self.name,
            "app.kubernetes.io/component": self.spec.kind.value,
            "app.kubernetes.io/managed-by": "stayfast",
            RUN_LABEL: self.name,
        }

    def metadata(
        self,
        name: str,
        *,
        shared: bool = False,
        labels: dict[str, str] | None = None,
        annotations: dict[str, str] | None = None,
    ) -> dict[str, Any]:
        """``metadata`` of an object; ``shared`` objects belong to the cluster and have no namespace."""
        found: dict[str, Any] = {"name": name}
        if not shared:
            found["namespace"] = self.namespace
        found["labels"] = {**self.labels, **(labels or {})}
        found["annotations"] = {SPEC_DIGEST: self.digest, **(annotations or {})}
        return found

    @property
    def digest(self) -> str:
        """Changes whenever the spec or a decision does: a second submit can tell."""
        window = self.window
        grace = (  # spelled out: what the class is called must not make every running Job look changed
            f"Window(pod_seconds={window.pod_seconds}, shutdown_seconds={window.shutdown_seconds}, "
            f"critical_seconds={window.critical_seconds})"
        )
        decisions: list[object] = [self.plan.machine.name, self.capacity_text, self.form, grace]
        if self.form == Controller.JOBSET and self.has_priority:  # not the same as one with a class below 0
            decisions.append(self.priority_class_name)
        return digest(self.spec, *decisions)


def build_context(spec: WorkloadSpec, plan: Plan, form: Controller) -> RenderContext:
    """Decide what the objects share; ``plan.choice`` must be there."""
    assert plan.choice is not None
    capacity, provisioning = plan.choice, Provisioning.SINGLE
    if capacity == CapacityClass.FLEX_START and spec.kind == WorkloadKind.TRAIN and spec.nodes > 1:
        provisioning = Provisioning.ALL_OR_NONE
    return RenderContext(spec, plan, form, capacity, provisioning, _window(spec, plan, capacity))


def _window(spec: WorkloadSpec, plan: Plan, capacity: CapacityClass) -> GraceWindow:
    needed = plan.grace.needed_seconds
    if capacity in (CapacityClass.SPOT, CapacityClass.HYBRID):
        if SPOT_GRACE_SECONDS < needed <= LONG_SPOT_GRACE_SECONDS and allows_long_grace(spec.cluster_version):
            return GraceWindow(LONG_SPOT_GRACE_SECONDS, 120, CRITICAL_SECONDS)
        return GraceWindow(SPOT_GRACE_SECONDS, 30, CRITICAL_SECONDS)
    # No reclaim here: drains and upgrades honour what the pod asks for.
    seconds = min(600, max(30, math.ceil(needed * 1.5) + 5))
    return GraceWindow(seconds, seconds, 0)
