"""Keys of labels, taints and annotations: those of GKE that we write or judge, and all that GKE is known to use.

Source of the long list: GoogleCloudPlatform/cluster-autoscaler at 7d250507339b (Apache-2.0), read 2026-08-21; keys
marked extra come from the GKE documentation and public manifests of the same month.
"""

from __future__ import annotations

DOMAIN = "cloud.google.com/"
SPOT = "cloud.google.com/gke-spot"
PREEMPTIBLE = "cloud.google.com/gke-preemptible"
PROVISIONING = "cloud.google.com/gke-provisioning"
FLEX_START = "cloud.google.com/gke-flex-start"
QUEUED = "cloud.google.com/gke-queued"
ACCELERATOR = "cloud.google.com/gke-accelerator"
TPU_ACCELERATOR = "cloud.google.com/gke-tpu-accelerator"
TPU_TOPOLOGY = "cloud.google.com/gke-tpu-topology"
NODE_POOL = "cloud.google.com/gke-nodepool"
MACHINE_FAMILY = "cloud.google.com/machine-family"
COMPUTE_CLASS = "cloud.google.com/compute-class"
RUN_LIMIT = "cloud.google.com/gke-max-run-duration-seconds"
INSTANCE_TYPE = "node.kubernetes.io/instance-type"
ZONE = "topology.kubernetes.io/zone"

PROVISIONING_REQUEST = "autoscaling.gke.io/provisioning-request"
RESERVATION_AFFINITY = "cloud.google.com/reservation-affinity"
QUEUE_LABEL = "kueue.x-k8s.io/queue-name"
PROVREQ_PREFIX = "provreq.kueue.x-k8s.io/"
RUN_DURATION = "provreq.kueue.x-k8s.io/maxRunDurationSeconds"

PROVISIONING_VALUES = ("spot", "flex-start", "preemptible", "standard")
"""Of the label :data:`PROVISIONING`."""

_CLOUD_KEYS = """
autopilot-managed-node cluster-autoscaler-node-generated-from-template compute-class compute-class-priority-idx
extended-duration-pods general-purpose-pod-family gke-accelerator-count gke-boot-disk gke-boot-disk-encryption-key
gke-boot-disk-encryption-key-annotation gke-boot-disk-size gke-capacity-check-wait-time-seconds gke-confidential-nodes
gke-confidential-nodes-instance-type gke-consolidation-delay-seconds gke-cpu-scaling-level
gke-ephemeral-storage-local-ssd gke-flex-start gke-gpu-driver-version gke-gpu-partition-size gke-gpu-sharing-strategy
gke-gpudirect gke-logging-variant gke-max-pods-per-node gke-max-run-duration-seconds gke-max-shared-clients-per-gpu
gke-memory-gb-scaling-level gke-netd-ready gke-networking-dra-driver gke-node-recycle-lead-time-seconds gke-nodepool
gke-nodepool-group-name gke-nvidia-gpu-dra-driver gke-os-distribution gke-placement-group gke-preemptible
gke-provisioning gke-spot gke-tpu-accelerator gke-tpu-dra-driver gke-tpu-topology gke-workload-type machine-family
node-group-dynamic-boot-disk-enabled-label-key node-group-dynamic-max-pods-per-node-enabled-label-key
not-target-gke-version placement-policy-name pod-isolation pod-slots pods-per-node private-node
requested-min-cpu-platform reservation-affinity reservation-blocks reservation-blocks-count reservation-name
reservation-project reservation-subblocks reservation-subblocks-count reservation-zone run-high-perf-daemons
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


def is_known_key(key: str) -> bool:
    """Whether GKE is known to use this label, taint or annotation key."""
    return key in KEYS or key.startswith(KEY_PREFIXES)
