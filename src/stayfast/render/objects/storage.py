"""Volumes for checkpoints, where a bucket URL is not enough: Filestore, a mounted bucket, or a regional disk."""

from __future__ import annotations

from typing import Any

from stayfast.render.context import RenderContext
from stayfast.render.rendered_file import RenderedFile

FILESTORE_CLASS = "standard-rwx"
"""GKE's own class for Filestore; its smallest instance is 1 TiB."""

FILESTORE_LEAST_BYTES = 2**40
DEFAULT_DISK_BYTES = 200 * 2**30
GCSFUSE = "gcsfuse.csi.storage.gke.io"


def claim_name(outline: RenderContext) -> str:
    """Of the claim that the pods mount."""
    return f"{outline.name}-checkpoints"


def storage_objects(outline: RenderContext) -> list[dict[str, Any]]:
    """Class, volume and claim, as far as each kind needs them."""
    match outline.spec.volume_kind:
        case "filestore":
            return [_claim(outline, "ReadWriteMany", FILESTORE_CLASS)]
        case "regional-disk":
            return [regional_disk_class(outline), _claim(outline, "ReadWriteOnce", outline.cluster_name)]
        case "gcsfuse":
            return [bucket_volume(outline), _bucket_claim(outline)]
        case _:
            return []


def regional_disk_class(outline: RenderContext) -> dict[str, Any]:
    """Two zones hold the disk, so that the next pod may run in either."""
    found: dict[str, Any] = {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": outline.metadata(outline.cluster_name, shared=True),
        "provisioner": "pd.csi.storage.gke.io",
        "parameters": {"type": "pd-balanced", "replication-type": "regional-pd"},
        "volumeBindingMode": "WaitForFirstConsumer",
        "reclaimPolicy": "Retain",
        "allowVolumeExpansion": True,
    }
    if len(outline.spec.zones) == 2:
        zones = {"key": "topology.gke.io/zone", "values": list(outline.spec.zones)}
        found["allowedTopologies"] = [{"matchLabelExpressions": [zones]}]
    return found


def bucket_volume(outline: RenderContext) -> dict[str, Any]:
    """A bucket as a file system, for programs that know only directories."""
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": outline.metadata(outline.cluster_name, shared=True),
        "spec": {
            "accessModes": ["ReadWriteMany"],
            "capacity": {"storage": _size(outline)},
            "storageClassName": "",
            "persistentVolumeReclaimPolicy": "Retain",
            "claimRef": {"namespace": outline.namespace, "name": claim_name(outline)},
            "mountOptions": ["implicit-dirs", "uid=1000", "gid=1000"],
            "csi": {"driver": GCSFUSE, "volumeHandle": outline.spec.volume_bucket},
        },
    }


def _bucket_claim(outline: RenderContext) -> dict[str, Any]:
    claim = _claim(outline, "ReadWriteMany", "")
    claim["spec"]["volumeName"] = outline.cluster_name
    return claim


def _claim(outline: RenderContext, mode: str, storage_class: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": outline.metadata(claim_name(outline)),
        "spec": {
            "accessModes": [mode],
            "storageClassName": storage_class,
            "resources": {"requests": {"storage": _size(outline)}},
        },
    }


def _size(outline: RenderContext) -> str:
    fallback = FILESTORE_LEAST_BYTES if outline.spec.volume_kind == "filestore" else DEFAULT_DISK_BYTES
    size = outline.spec.volume_bytes or fallback
    return f"{-(-size // 2**30)}Gi"


STORAGE = RenderedFile("30-storage.yaml", "where checkpoints are kept", storage_objects)
