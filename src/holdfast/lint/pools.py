"""Node pools that somebody declared, from wherever they did."""

from __future__ import annotations

from typing import NamedTuple

from holdfast.documents.tree import Path


class Taint(NamedTuple):
    """A taint of a pool's nodes."""

    key: str
    value: str
    effect: str


class Pool(NamedTuple):
    """A node pool: what its nodes are and which labels and taints they carry."""

    name: str
    machine_type: str = ""
    accelerator: str = ""
    accelerator_count: int = 0
    spot: bool = False
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

    @property
    def grace_seconds(self) -> int | None:
        """What a normal pod gets when the node is taken away, where the pool says so."""
        if self.shutdown_grace_seconds is None:
            return None
        if self.critical_grace_seconds is not None:
            return self.shutdown_grace_seconds - self.critical_grace_seconds
        return self.shutdown_grace_seconds - min(15, self.shutdown_grace_seconds)

    @property
    def node_labels(self) -> dict[str, str]:
        """Labels of the nodes, those that GKE adds included."""
        labels = {"cloud.google.com/gke-nodepool": self.name, **dict(self.labels)}
        if self.spot:
            labels |= {"cloud.google.com/gke-spot": "true", "cloud.google.com/gke-provisioning": "spot"}
        elif self.flex_start:
            labels |= {"cloud.google.com/gke-flex-start": "true", "cloud.google.com/gke-provisioning": "flex-start"}
        else:
            labels.setdefault("cloud.google.com/gke-provisioning", "standard")
        if self.accelerator.startswith("nvidia-"):
            labels["cloud.google.com/gke-accelerator"] = self.accelerator
        if self.machine_type:
            labels["node.kubernetes.io/instance-type"] = self.machine_type
            labels["cloud.google.com/machine-family"] = self.machine_type.partition("-")[0]
        return labels
