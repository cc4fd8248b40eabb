"""The one table of machines and accelerators: what Google sells, and what GKE and the price list call it.

An accelerator is one row of ``machines.json``, and so is a machine; plan, render and lint read them here.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

TABLE = Path(__file__).with_name("machines.json")


@dataclass(frozen=True, slots=True)
class Machine:
    """A machine type and what is in it."""

    name: str
    accelerator: str
    """By our name, as ``stayfast.yaml`` has it: h100."""
    count: int
    vcpus: int
    memory_gib: int
    gke_accelerator: str = ""
    """The value of the node label ``cloud.google.com/gke-accelerator``, for TPUs of ``gke-tpu-accelerator``."""
    topology: str | None = None
    """Of a TPU host, which is a slice by itself. Slices over several hosts are not in the table."""


class BillingText(NamedTuple):
    """What the descriptions of the Cloud Billing Catalog call an accelerator and its machines."""

    accelerator: str
    host: str | None = None
    """None where the accelerator's price holds the whole machine: B200 and TPUs have no vCPU or RAM of their own."""
    flex_start: str | None = None
    """What follows ``DWS Defined Duration`` where that is not the accelerator's own text."""


@dataclass(frozen=True, slots=True)
class Accelerator:
    """A GPU or TPU, and the machines that have it."""

    gke_name: str
    name: str
    """Our name; GKE's where we plan nothing on it."""
    machines: dict[str, Machine]
    aliases: tuple[str, ...] = ()
    """Other spellings of the label that GKE documents."""
    billing: BillingText | None = None
    most_vcpus: Mapping[int, int] = field(default_factory=dict)
    """Of an accelerator that is attached to ordinary machines: by count, the most vCPUs of such a machine."""

    @property
    def is_tpu(self) -> bool:
        return self.gke_name.startswith("tpu")

    @property
    def vcpus_by_count(self) -> Mapping[int, int]:
        """How many a machine can have -> the most vCPUs of such a machine."""
        if self.most_vcpus:
            return self.most_vcpus
        counts = dict.fromkeys(machine.count for machine in self.machines.values())
        return {count: max(row.vcpus for row in self.machines.values() if row.count == count) for count in counts}

    @property
    def families(self) -> list[str]:
        """Machine families that always come with it."""
        return [] if self.most_vcpus else sorted({name.partition("-")[0] for name in self.machines})


class MachineTable:
    """All rows, by every name that they go by."""

    def __init__(self, rows: Mapping[str, Any]) -> None:
        self.accelerators = {name: _accelerator(name, row) for name, row in rows.items()}
        """By GKE's name."""
        self.machines = {name: item for entry in self.accelerators.values() for name, item in entry.machines.items()}
        self._aliases = {alias: entry for entry in self.accelerators.values() for alias in entry.aliases}
        self._ours = {entry.name: entry for entry in self.accelerators.values()}

    @property
    def gpu_names(self) -> frozenset[str]:
        """Values of the GPU label, other spellings included."""
        return frozenset(self._aliases) | {name for name, entry in self.accelerators.items() if not entry.is_tpu}

    @property
    def tpu_names(self) -> frozenset[str]:
        """Values of the TPU label."""
        return frozenset(name for name, entry in self.accelerators.items() if entry.is_tpu)

    def machine(self, name: str) -> Machine | None:
        """The machine that always comes with accelerators; one without local SSD counts as the machine itself."""
        found = self.machines.get(name.removesuffix("-nolssd"))
        return None if found is None or self.accelerators[found.gke_accelerator].most_vcpus else found

    def accelerator(self, gke_name: str) -> Accelerator | None:
        """By GKE's name or another spelling of it."""
        return self._aliases.get(gke_name) or self.accelerators.get(gke_name)

    def gke_name(self, accelerator: str) -> str:
        """GKE's name for ours; a name that the table does not have is taken for GKE's own."""
        found = self._ours.get(accelerator)
        return accelerator if found is None else found.gke_name

    def of_price_list(self, name: str, accelerator: str, count: int, vcpus: int, memory_gib: int) -> Machine:
        """A machine as a price list describes it, with the names that GKE has for it."""
        known = self.machines.get(name)
        topology = None if known is None else known.topology
        return Machine(name, accelerator, count, vcpus, memory_gib, self.gke_name(str(accelerator)), topology)


def _accelerator(gke_name: str, row: Mapping[str, Any]) -> Accelerator:
    ours = row.get("name", gke_name)
    machines = {}
    for name, (count, vcpus, memory_gib, *topology) in row.get("machines", {}).items():
        machines[name] = Machine(name, ours, count, vcpus, memory_gib, gke_name, *topology)
    billing = BillingText(**row["billing"]) if "billing" in row else None
    most_vcpus = {int(count): vcpus for count, vcpus in row.get("most_vcpus", {}).items()}
    return Accelerator(gke_name, ours, machines, tuple(row.get("aliases", ())), billing, most_vcpus)


@cache
def load_machines() -> MachineTable:
    """The table that ships with the package."""
    return MachineTable(json.loads(TABLE.read_text(encoding="utf-8"))["accelerators"])
