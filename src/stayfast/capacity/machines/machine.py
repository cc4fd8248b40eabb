"""What GKE offers, as small tables: GPU and TPU machines, and the keys and values that its autoscaler knows.

Source: GoogleCloudPlatform/cluster-autoscaler at 7d250507339b (Apache-2.0), read 2026-08-21; keys marked extra come
from the GKE documentation and public manifests of the same month. A machine row is ``name:GPUs:CPUs:memory in GiB``.
"""

from __future__ import annotations

from functools import cache, lru_cache
from typing import NamedTuple


class Machine(NamedTuple):
    """One machine type with accelerators."""

    name: str
    accelerator: str
    number: int
    cpu: int
    memory_gib: int


_GPU_MACHINES = {
    "nvidia-tesla-a100": (
        "a2-highgpu-1g:1:12:85 a2-highgpu-2g:2:24:170 a2-highgpu-4g:4:48:340 a2-highgpu-8g:8:96:680 "
        "a2-megagpu-16g:16:96:1360"
    ),
    "nvidia-a100-80gb": (
        "a2-ultragpu-1g:1:12:170 a2-ultragpu-2g:2:24:340 a2-ultragpu-4g:4:48:680 a2-ultragpu-8g:8:96:1360"
    ),
    "nvidia-h100-80gb": (
        "a3-highgpu-1g:1:26:234 a3-highgpu-2g:2:52:468 a3-highgpu-4g:4:104:936 a3-edgegpu-8g:8:208:1872 "
        "a3-highgpu-8g:8:208:1872"
    ),
    "nvidia-h100-mega-80gb": "a3-megagpu-8g:8:208:1872",
    "nvidia-h200-141gb": "a3-ultragpu-8g:8:224:2952",
    "nvidia-b200": "a4-highgpu-8g:8:224:3968",
    "nvidia-gb200": "a4x-highgpu-4g:4:140:884",
    "nvidia-gb300": "a4x-maxgpu-4g-metal:4:144:960",
    "nvidia-l4": (
        "g2-standard-4:1:4:16 g2-standard-8:1:8:32 g2-standard-12:1:12:48 g2-standard-16:1:16:64 "
        "g2-standard-32:1:32:128 g2-standard-24:2:24:96 g2-standard-48:4:48:192 g2-standard-96:8:96:384"
    ),
    "nvidia-rtx-pro-6000": (
        "g4-standard-6:1:6:22 g4-standard-12:1:12:45 g4-standard-24:1:24:90 g4-standard-48:1:48:180 "
        "g4-standard-96:2:96:360 g4-standard-192:4:192:720 g4-standard-384:8:384:1440"
    ),
}

# GPUs that are attached to n1 machines: most CPUs that a machine with that many GPUs can have.
_ATTACHED_GPUS = {
    "nvidia-tesla-k80": {1: 8, 2: 16, 4: 32, 8: 64},
    "nvidia-tesla-p100": {1: 16, 2: 32, 4: 64},
    "nvidia-tesla-p4": {1: 24, 2: 48, 4: 96},
    "nvidia-tesla-t4": {1: 48, 2: 48, 4: 96},
    "nvidia-tesla-v100": {1: 12, 2: 24, 4: 48, 8: 96},
}

# ``name:chips:CPUs:memory in GiB``.
_TPU_MACHINES = {
    "tpu-v3-device": "ct3-hightpu-4t:4:96:340",
    "tpu-v3-slice": "ct3p-hightpu-4t:4:48:340",
    "tpu-v4-lite-device": "ct4l-hightpu-4t:4:48:340",
    "tpu-v4-podslice": "ct4p-hightpu-4t:4:240:407",
    "tpu-v5-lite-device": "ct5l-hightpu-1t:1:24:48 ct5l-hightpu-4t:4:112:192 ct5l-hightpu-8t:8:224:384",
    "tpu-v5-lite-podslice": "ct5lp-hightpu-1t:1:24:48 ct5lp-hightpu-4t:4:112:192 ct5lp-hightpu-8t:8:224:384",
    "tpu-v5p-slice": "ct5p-hightpu-4t:4:208:448",
    "tpu-v6e-slice": "ct6e-standard-1t:1:44:176 ct6e-standard-4t:4:180:720 ct6e-standard-8t:8:180:1440",
    "tpu7": "tpu7-standard-1t:1:56:240 tpu7-standard-4t:4:224:960",
    "tpu7x": "tpu7x-standard-1t:1:56:248 tpu7x-standard-4t:4:224:992 tpu7x-ultranet-4t:4:224:992",
}

# A host that is a slice by itself: machine type -> topology.
TPU_TOPOLOGIES = {
    "ct3-hightpu-4t": "2x2",
    "ct4l-hightpu-4t": "2x2",
    "ct4p-hightpu-4t": "2x2x1",
    "ct5l-hightpu-1t": "1x1",
    "ct5l-hightpu-4t": "2x2",
    "ct5l-hightpu-8t": "2x4",
    "ct5lp-hightpu-1t": "1x1",
    "ct5lp-hightpu-4t": "2x2",
    "ct5lp-hightpu-8t": "2x4",
    "ct5p-hightpu-4t": "2x2x1",
    "ct6e-standard-1t": "1x1",
    "ct6e-standard-4t": "2x2",
    "ct6e-standard-8t": "2x4",
    "tpu7-standard-1t": "1x1x1",
    "tpu7-standard-4t": "2x2x1",
    "tpu7x-standard-1t": "1x1x1",
    "tpu7x-standard-4t": "2x2x1",
    "tpu7x-ultranet-4t": "2x2x1",
}

GPU_TYPES = frozenset((*_GPU_MACHINES, *_ATTACHED_GPUS))
TPU_TYPES = frozenset(_TPU_MACHINES)
# Spellings that GKE documents for the same hardware, beside the names in the table.
GPU_ALIASES = {"nvidia-h100-80gb-hbm3": "nvidia-h100-80gb", "nvidia-rtx-pro-6000-blackwell": "nvidia-rtx-pro-6000"}
PROVISIONING_VALUES = ("spot", "flex-start", "preemptible", "standard")
MAX_RUN_SECONDS = (600, 604_800)
SPOT_GRACE_SECONDS = 15
LONGEST_SPOT_GRACE_SECONDS = 105

_CLOUD_KEYS = """
autopilot-managed-node cluster-autoscaler-node-generated-from-template compute-class compute-class-priority-idx
extended-duration-pods general-purpose-pod-family gke-accelerator-count gke-boot-disk gke-boot-disk-encryption-key
gke-boot-disk-encryption-key-annotation gke-boot-disk-size gke-capacity-check-wait-time-seconds gke-confidential-nodes
gke-confidential-nodes-instance-type gke-consolidation-delay-seconds gke-cpu-scaling-level gke-ephemeral-storage-
local-ssd gke-flex-start gke-gpu-driver-version gke-gpu-partition-size gke-gpu-sharing-strategy gke-gpudirect gke-
logging-variant gke-max-pods-per-node gke-max-run-duration-seconds gke-max-shared-clients-per-gpu gke-memory-gb-
scaling-level gke-netd-ready gke-networking-dra-driver gke-node-recycle-lead-time-seconds gke-nodepool gke-nodepool-
group-name gke-nvidia-gpu-dra-driver gke-os-distribution gke-placement-group gke-preemptible gke-provisioning gke-spot
gke-tpu-accelerator gke-tpu-dra-driver gke-tpu-topology gke-workload-type machine-family node-group-dynamic-boot-disk-
enabled-label-key node-group-dynamic-max-pods-per-node-enabled-label-key not-target-gke-version placement-policy-name
pod-isolation pod-slots pods-per-node private-node requested-min-cpu-platform reservation-affinity reservation-blocks
reservation-blocks-count reservation-name reservation-project reservation-subblocks reservation-subblocks-count
reservation-zone run-high-perf-daemons
"""
# Extra: real keys that the autoscaler's list does not have.
_CLOUD_KEYS_EXTRA = """
gke-accelerator gke-queued gke-tpu-slice-topology gke-tpu-slice gke-tpu gke-placement gce-topology-block
gce-topology-subblock gce-topology-host gce-topology-superblock gke-local-nvme-ssd gke-memory-gb-scaling-level
gke-container-runtime gke-stack-type gke-secondary-boot-disk gke-nodepool-create-time gke-dpv2-unified-cni
apply-warden-policies default-compute-class default-compute-class-non-daemonset gke-max-sharing-clients-per-gpu
gke-smart-cache gke-metadata-server-enabled reservation-policy gke-windows-version gke-windows-os-version
gke-accelerator-network-profile gke-fast-socket gke-rdma pod-accelerator
"""
_OTHER_KEYS = frozenset(
    (
        "autoscaling.gke.io/node-provisioning-config",
        "autoscaling.gke.io/provisioning-request",
        "autoscaling.gke.io/consume-provisioning-request",
        "autoscaling.gke.io/provisioning-class-name",
    )
)
KEY_PREFIXES = (
    "cloud.google.com/resourcelabel_",
    "cloud.google.com/gke-tpu-partition-",
    "cloud.google.com/gke-placement",
)
KEYS = frozenset(f"cloud.google.com/{name}" for name in (_CLOUD_KEYS + _CLOUD_KEYS_EXTRA).split()) | _OTHER_KEYS
TRUE_ONLY_KEYS = frozenset(
    f"cloud.google.com/{name}"
    for name in ("gke-spot", "gke-preemptible", "gke-flex-start", "gke-queued", "gke-ephemeral-storage-local-ssd")
)


def _machines(rows: dict[str, str]) -> dict[str, Machine]:
    table = {}
    for accelerator, row in rows.items():
        for entry in row.split():
            name, count, cpu, memory = entry.split(":")
            table[name] = Machine(name, accelerator, int(count), int(cpu), int(memory))
    return table


@lru_cache(maxsize=1)
def accelerator_machines() -> dict[str, Machine]:
    """Every machine type that comes with GPUs or TPUs, by name."""
    return _machines(_GPU_MACHINES) | _machines(_TPU_MACHINES)


def machine(name: str) -> Machine | None:
    """The accelerator machine of that name; variants without local SSD count as the machine itself."""
    return accelerator_machines().get(name.removesuffix("-nolssd"))


@cache
def cpus_by_gpu_count(gpu: str) -> dict[int, int]:
    """GPUs on one node -> most CPUs such a node can have; empty for an unknown type."""
    gpu = GPU_ALIASES.get(gpu, gpu)
    if gpu in _ATTACHED_GPUS:
        return _ATTACHED_GPUS[gpu]
    sizes: dict[int, int] = {}
    for entry in accelerator_machines().values():
        if entry.accelerator == gpu:
            sizes[entry.number] = max(entry.cpu, sizes.get(entry.number, 0))
    return sizes


@cache
def most_chips_per_host(tpu: str) -> int | None:
    """TPU chips on the largest host of that type."""
    return max((entry.number for entry in accelerator_machines().values() if entry.accelerator == tpu), default=None)


def is_known_key(key: str) -> bool:
    """Whether GKE is known to use this label, taint or annotation key."""
    return key in KEYS or key.startswith(KEY_PREFIXES)
