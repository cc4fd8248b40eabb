"""Node pools that somebody declared, from wherever they did."""

from __future__ import annotations

from typing import NamedTuple

from stayfast.capacity.machines import gke_keys as keys
from stayfast.capacity.machines.machine import load_machines
from stayfast.documents.positions import Path

# The name of a pool that stands for auto-provisioning: whatever is needed is made.
AUTOMATIC = "<auto-provisioning>"

_LABELS_OF = {
    "name": (keys.NODE_POOL,),
    "machine_type": (keys.INSTANCE_TYPE, keys.MACHINE_FAMILY,
                     keys.TPU_ACCELERATOR),
    "accelerator": (keys.ACCELERATOR,),
    "spot": (keys.SPOT, keys.PROVISIONING),
    "preemptible": (keys.PREEMPTIBLE, keys.PROVISIONING),
    "flex_start": (keys.FLEX_START, keys.PROVISIONING),
}  # fmt: skip


class Taint(NamedTuple):
    """A taint of a pool's nodes."""

    key: str
    value: str
    effect: str


class NodePool(NamedTuple):
    """A node pool: what its nodes are and which labels and taints they carry."""

    name: str
    machine_type: str = ""
    accelerator: str = ""
    accelerator_count: int = 0
    spot: bool = False
    preemptible: bool = False
    flex_start: bool = False
    queued: bool = False
    labels: tuple[tuple[str, str], ...] = ()
    taints: tuple[Taint, ...] = ()
    shutdown_grace_seconds: int | None = None
    critical_grace_seconds: int | None = None
    has_config_file: bool = False  # kubelet settings in a file that we do not see
    max_run_seconds: int | None = None
    file: str = ""
    line: int = 1
    path: Path = ()
    unknown: frozenset[str] = frozenset()  # fields whose value is an expression that we cannot work out

    @property
    def grace_seconds(self) -> int | None:
        """What a normal pod gets when the node is taken away, where the pool says so."""
        if self.shutdown_grace_seconds is None:
            return None
        if self.critical_grace_seconds is not None:
            return self.shutdown_grace_seconds - self.critical_grace_seconds
        return self.shutdown_grace_seconds - min(15, self.shutdown_grace_seconds)

    @property
    def unknown_labels(self) -> frozenset[str]:
        """GKE's labels of which nothing can be said."""
        return frozenset(label for field in self.unknown for label in _LABELS_OF.get(field, ()))

    @property
    def node_labels(self) -> dict[str, str]:
        """Labels of the nodes, those that GKE adds included."""
        labels = {keys.NODE_POOL: self.name, **dict(self.labels)}
        if self.spot:
            labels |= {keys.SPOT: "true", keys.PROVISIONING: "spot"}
        elif self.preemptible:
            labels |= {keys.PREEMPTIBLE: "true", keys.PROVISIONING: "preemptible"}
        elif self.flex_start:
            labels |= {keys.FLEX_START: "true", keys.PROVISIONING: "flex-start"}
        else:
            labels.setdefault(keys.PROVISIONING, "standard")
        if self.accelerator.startswith("nvidia-"):
            labels[keys.ACCELERATOR] = self.accelerator
        if self.machine_type:
            labels[keys.INSTANCE_TYPE] = self.machine_type
            labels[keys.MACHINE_FAMILY] = self.machine_type.partition("-")[0]
        found = load_machines().machine(self.machine_type)
        if found and found.gke_accelerator.startswith("tpu"):
            labels[keys.TPU_ACCELERATOR] = found.gke_accelerator
            if found.topology is not None:
                labels[keys.TPU_TOPOLOGY] = found.topology
        return labels
