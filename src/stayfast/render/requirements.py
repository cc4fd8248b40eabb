"""What a spec must say before it can be rendered; a plan asks for less."""

from __future__ import annotations

import posixpath
from urllib.parse import urlsplit

from stayfast.capacity.spec.workload import WorkloadKind
from stayfast.errors import UsageError
from stayfast.render.context import Controller, RenderContext
from stayfast.render.naming import check_names, check_pod_name
from stayfast.render.objects.storage import FILESTORE_LEAST_BYTES
from stayfast.render.objects.workload import MOST_INDEXES

_HYPERDISK_ONLY = ("a3-ultragpu", "a4-", "g4-")
"""Machine families that take no Persistent Disk."""


def check_requirements(outline: RenderContext) -> None:
    """Refuse what would be accepted by the cluster and then lose work or wait for ever."""
    check_names(outline.spec)
    if outline.is_tpu and outline.is_gang:
        raise UsageError(
            "several TPU hosts that train together are one slice with a topology of its own, which is not rendered",
            help="use one host (nodes: 1), choose a GPU, or write the manifests by hand",
        )
    if outline.spec.kind == WorkloadKind.TRAIN and outline.form == Controller.JOBSET:
        check_pod_name(outline.spec)
    _check_volume(outline)
    _check_checkpoints(outline)
    _check_items(outline)


def _check_volume(outline: RenderContext) -> None:
    spec = outline.spec
    if spec.volume_kind is None:
        return
    if not spec.volume_path.startswith("/") or posixpath.normpath(spec.volume_path) in ("/", "/tmp", "/dev/shm"):
        raise UsageError(f"volume.path {spec.volume_path} cannot be mounted", help="write for example /checkpoints")
    if spec.volume_kind == "gcsfuse" and not spec.volume_bucket:
        raise UsageError("volume.bucket is missing for kind gcsfuse", help="add bucket: and the bucket's name")
    if spec.volume_kind == "filestore" and (spec.volume_bytes or FILESTORE_LEAST_BYTES) < FILESTORE_LEAST_BYTES:
        raise UsageError("a Filestore volume has at least 1TiB", help="write size: 1TiB, or leave it out")
    if spec.volume_kind == "regional-disk":
        if spec.nodes > 1:
            raise UsageError(
                f"a regional disk attaches to one node, and there are {spec.nodes}",
                help="use state.checkpoints with a bucket URL, or volume.kind: filestore",
            )
        if outline.machine.name.startswith(_HYPERDISK_ONLY):
            raise UsageError(
                f"{outline.machine.name} takes no Persistent Disk", help="use state.checkpoints with a bucket URL"
            )


def _check_checkpoints(outline: RenderContext) -> None:
    spec, url = outline.spec, outline.spec.checkpoint_url
    if spec.kind == WorkloadKind.TRAIN and outline.is_interruptible and url is None and spec.volume_kind is None:
        raise UsageError(
            f"state.checkpoints is missing: on {outline.capacity_text} the run would start over at each interruption",
            help="add state: {checkpoints: gs://BUCKET/runs/NAME}, or a volume",
        )
    if url is None:
        return
    if url.startswith("memory:"):
        raise UsageError("checkpoints in memory:// die with the pod", help="write a bucket URL, such as gs://…")
    if url.startswith("file:"):
        _check_local(outline, urlsplit(url).path, f"state.checkpoints {url}")


def _check_local(outline: RenderContext, path: str, what: str) -> None:
    """A path must lie on a volume, and only a disk commits atomically."""
    spec = outline.spec
    inside = spec.volume_kind and posixpath.normpath(path).startswith(posixpath.normpath(spec.volume_path) + "/")
    if not inside:
        raise UsageError(f"{what} is in the pod's own file system, and dies with it", help="use a bucket or a volume")
    if spec.volume_kind != "regional-disk":
        raise UsageError(
            f"{what} is on {spec.volume_kind}, where stayfast cannot promise atomic commits",
            help="use a bucket URL such as gs://…, and keep the volume for other files",
        )


def _check_items(outline: RenderContext) -> None:
    spec = outline.spec
    if spec.kind == WorkloadKind.BATCH:
        for name, url in (("queue", spec.queue_url), ("sink", spec.sink_url)):
            if url is None:
                raise UsageError(f"{name} is missing for kind batch", help=f"add {name}: and its URL")
    if spec.kind == WorkloadKind.SWEEP and not outline.is_queue_worker and (spec.units or 0) > MOST_INDEXES:
        raise UsageError(
            f"{spec.units} trials are more than a Job can index ({MOST_INDEXES})", help="add a queue and a sink"
        )
    for name, url in (("queue", spec.queue_url), ("sink", spec.sink_url)):
        if url and url.startswith("sqlite:"):
            _check_local(outline, urlsplit(url).path, f"{name} {url}")
            if spec.nodes > 1:
                raise UsageError(f"{name} {url} serves one node", help="use postgresql:// or pubsub://")
        elif url and url.startswith("memory:"):
            raise UsageError(f"{name} {url} dies with the pod", help="use a bucket, PostgreSQL or Pub/Sub")
        elif url and url.startswith("file:"):
            _check_local(outline, urlsplit(url).path, f"{name} {url}")
