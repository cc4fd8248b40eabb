"""Node pools that somebody declared, from wherever they did."""

from __future__ import annotations

from typing import NamedTuple

from stayfast.capacity.machines.machine import load_machines
from stayfast.documents.positions import Path

# The name of a pool that stands for auto-provisioning: whatever is needed is made.
AUTOMATIC = "<auto-provisioning>"

_LABELS_OF = {
    "name": ("cloud.google.com/gke-nodepool",),
    "machine_type": ("node.kubernetes.io/instance-type", "cloud.google.com/machine-family",
                     "cloud.google.com/gke-tpu-accelerator"),
    "accelerator": ("cloud.google.com/gke-accelerator",),
    "spot": ("cloud.google.com/gke-spot", "cloud.google.com/gke-provisioning"),
    "preemptible": ("cloud.google.com/gke-preemptible", "cloud.google.com/gke-provisioning"),
    "flex_start": ("cloud.google.com/gke-flex-start", "cloud.google.com/gke-provisioning"),
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
        labels = {"cloud.google.com/gke-nodepool": self.name, **dict(self.labels)}
        if self.spot:
            labels |= {"cloud.google.com/gke-spot": "true", "cloud.google.com/gke-provisioning": "spot"}
        elif self.preemptible:
            labels |= {"cloud.google.com/gke-preemptible": "true", "cloud.google.com/gke-provisioning": "preemptible"}
        elif self.flex_start:
            labels |= {"cloud.google.com/gke-flex-start": "true", "cloud.google.com/gke-provisioning": "flex-start"}
        else:
            labels.setdefault("cloud.google.com/gke-provisioning", "standard")
        if self.accelerator.startswith("nvidia-"):
            labels["cloud.google.com/gke-accelerator"] = self.accelerator
        if self.machine_type:
            labels["node.kubernetes.io/instance-type"] = self.machine_type
            labels["cloud.google.com/machine-family"] = self.machine_type.partition("-")[0]
        found = load_machines().machine(self.machine_type)
        if found and found.gke_accelerator.startswith("tpu"):
            labels["cloud.google.com/gke-tpu-accelerator"] = found.gke_accelerator
            if found.topology is not None:
                labels["cloud.google.com/gke-tpu-topology"] = found.topology
        return labels
