"""Pitfall 4, storage: checkpoints that die with the pod."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from typing import NamedTuple

from stayfast.documents.editor import Edit
from stayfast.documents.lookup import dig, items, mapping, text
from stayfast.documents.positions import Path
from stayfast.lint.finding import ERROR, Fix, Hit
from stayfast.lint.objects.bundle import Bundle, same_namespace
from stayfast.lint.objects.containers import Container
from stayfast.lint.objects.objects import ManifestObject
from stayfast.lint.objects.pod import PodProfile
from stayfast.lint.rule import POD, rule

GCSFUSE = "gcsfuse.csi.storage.gke.io"
GCSFUSE_ANNOTATION = "gke-gcsfuse/volumes"

_NAMES = re.compile(
    r"(?:^|_)(?:CHECKPOINTS?|CKPTS?)(?:_[A-Z]+)*_?(?:DIR|DIRECTORY|PATH|FOLDER|ROOT|LOCATION|URI|URL|OUTPUT|STORE)$"
    r"|(?:^|_)(?:DIR|DIRECTORY|PATH|FOLDER)_(?:CHECKPOINTS?|CKPTS?)$"
    r"|(?:^|_)(?:OUTPUT|SAVE|RESULTS?|SNAPSHOTS?)_?(?:DIR|DIRECTORY|FOLDER|PATH)$|^(?:DEFAULT_ROOT_DIR|OUTPUT_MODEL_DIR)$",
    re.IGNORECASE,
)
_FLAG = re.compile(r"""(?:^|[\s"'])--?([A-Za-z][\w.-]*)(?:=|\s+)["']?(?:file://)?(/[^\s"'\\;|&)]*)""")
_OVERRIDE = re.compile(r"""(?:^|[\s"'+])([A-Za-z_][\w.]*)=["']?(?:file://)?(/[^\s"'\\;|&)]*)""")
_READS = re.compile(
    r"(?:^|_)(?:tokenizer|config|from|load|init|initial|pretrained|input|resume|restore)(?:_|$)",
    re.IGNORECASE,
)
_REFERENCE = re.compile(r"\$\(([A-Za-z_]\w*)\)")
_WORD_ENDS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|[-.]")


class Target(NamedTuple):
    """A directory that the program will write checkpoints to, and where that is said."""

    directory: str
    name: str
    path: Path
    container: Container


def _is_written(name: str) -> bool:
    name = _WORD_ENDS.sub("_", name) if not name.isupper() else name
    return _NAMES.search(name) is not None and not _READS.search(name)


def _values(container: Container, pod: PodProfile, bundle: Bundle) -> Iterator[tuple[str, str, Path]]:
    """Environment of a container, what comes from ConfigMaps of the bundle included."""
    for index, entry in enumerate(items(container.value.get("envFrom"))):
        found = bundle.named("ConfigMap", text(dig(entry, "configMapRef", "name")), pod.item.namespace)
        for name, value in mapping(found.value.get("data")).items() if found else ():
            yield text(mapping(entry).get("prefix")) + name, text(value), (*container.path, "envFrom", index)
    for name, (value, path) in container.environment.items():
        reference = mapping(dig(pod.item.value, *path, "valueFrom", "configMapKeyRef"))
        found = bundle.named("ConfigMap", text(reference.get("name")), pod.item.namespace) if reference else None
        if found:
            value = mapping(found.value.get("data")).get(text(reference.get("key")))
        yield name, text(value), path


_SERVERS = frozenset(("Deployment", "StatefulSet", "ReplicaSet", "LeaderWorkerSet"))


def checkpoint_targets(pod: PodProfile, bundle: Bundle) -> Iterator[Target]:
    """Absolute paths that the environment or a flag names as checkpoint or output directory."""
    if pod.kind in ("DaemonSet", "RayService", "PodTemplate"):
        return
    if pod.kind in _SERVERS and not (pod.trains or pod.rank_hint):
        return  # these serve; what looks like a checkpoint is a model they read
    for container in pod.containers:
        seen: set[str] = set()
        for name, value, path in _values(container, pod, bundle):
            directory = _expanded(value, container).removeprefix("file://")
            if directory.startswith("/") and _is_written(name):
                seen.add(directory)
                yield Target(directory, name, path, container)
        for field, words in (("command", container.command), ("args", container.args)):
            for index, directory, name in _flags([_expanded(word, container) for word in words]):
                if directory not in seen:
                    seen.add(directory)
                    yield Target(directory, name, (*container.path, field, index), container)


def _expanded(value: str, container: Container) -> str:
    """``$(NAME)`` replaced as Kubernetes does it, where the value is known here."""
    if "$(" not in value:
        return value
    return _REFERENCE.sub(lambda found: text(container.environment.get(found[1], ("",))[0]) or found[0], value)


def _flags(words: list[str]) -> Iterator[tuple[int, str, str]]:
    for index, word in enumerate(words):
        following = words[index + 1] if index + 1 < len(words) else ""
        text_here = f"{word} {following}" if word.startswith("--") and "=" not in word and following else word
        for pattern in (_FLAG, _OVERRIDE):
            for match in pattern.finditer(text_here):
                if _is_written(match.group(1)):
                    yield index, match.group(2), match.group(1)


def volume_at(target: Target, pod: PodProfile) -> tuple[str, dict[str, object]] | None:
    """The volume that the directory lies on, as ``(name, volume)``; ``None`` for the container's own file system."""
    directory = posixpath.normpath(target.directory)
    best = ""
    found = None
    for name, mount_path, _, _ in target.container.mounts():
        mounted = posixpath.normpath(mount_path) if mount_path else ""
        inside = directory == mounted or directory.startswith(mounted.rstrip("/") + "/")
        if mounted and inside and len(mounted) > len(best):
            best, found = mounted, name
    if found is None:
        return None
    volume = next(
        (mapping(entry) for entry in items(pod.spec.get("volumes")) if mapping(entry).get("name") == found), {}
    )
    return found, volume


@rule("SF401", "checkpoint-path-unmounted", POD)
def checkpoint_path_unmounted(pod: PodProfile, bundle: Bundle) -> Iterator[Hit]:
    """Checkpoints go to the container's own file system."""
    for target in checkpoint_targets(pod, bundle):
        if _is_variable(target.directory) or volume_at(target, pod) is not None:
            continue
        yield Hit(
            target.path,
            f"{target.name} is {target.directory}, which no volume is mounted at: what is written there is lost "
            "with the "
            "pod; mount durable storage or use gs://",
            ERROR,
        )


def _is_variable(directory: str) -> bool:
    return directory.startswith(("/$", "/{{", "/<")) or directory == "/"


_EPHEMERAL = {
    "emptyDir": "an emptyDir", "hostPath": "a hostPath", "ephemeral": "an ephemeral volume", "local": "a local disk",
}  # fmt: skip


@rule("SF402", "checkpoint-on-ephemeral", POD)
def checkpoint_on_ephemeral(pod: PodProfile, bundle: Bundle) -> Iterator[Hit]:
    """Checkpoints go to a volume that goes away with the pod or the node."""
    for target in checkpoint_targets(pod, bundle):
        if target.directory.startswith("/dev/shm"):
            continue
        found = volume_at(target, pod)
        if found is None:
            continue
        name, volume = found
        kind = next((kind for kind in _EPHEMERAL if kind in volume), None)
        if kind is None and _is_local_disk(volume, pod, bundle):
            kind = "local"
        if kind is not None and not _is_network_path(volume):
            yield Hit(
                target.path,
                f"{target.name} is {target.directory} on {_EPHEMERAL[kind]} ({name}): lost when the node goes "
                "away; use a "
                "PVC, gcsfuse or gs://",
                ERROR,
            )


def volume_of_claim(volume: dict[str, object], pod: PodProfile, bundle: Bundle) -> ManifestObject | None:
    """The PersistentVolume behind a claim, where the bundle says which: by its name, or by the volume's claimRef."""
    name = text(dig(volume, "persistentVolumeClaim", "claimName"))
    claim = bundle.named("PersistentVolumeClaim", name, pod.item.namespace) if name else None
    if claim is None:
        return None
    if claim.spec.get("volumeName"):
        return bundle.named("PersistentVolume", text(claim.spec["volumeName"]))
    for found in bundle.of_kind("PersistentVolume"):
        reference = mapping(found.spec.get("claimRef"))
        if reference.get("name") == name and same_namespace(text(reference.get("namespace")), claim.namespace):
            return found
    return None


def _is_local_disk(volume: dict[str, object], pod: PodProfile, bundle: Bundle) -> bool:
    found = volume_of_claim(volume, pod, bundle)
    return found is not None and ("local" in found.spec or "hostPath" in found.spec)


def _is_network_path(volume: dict[str, object]) -> bool:
    host_path = text(dig(volume, "hostPath", "path"))
    return any(word in host_path for word in ("nfs", "fsx", "efs", "lustre", "filestore", "gcs"))


@rule("SF405", "gcsfuse-annotation", POD)
def gcsfuse_annotation(pod: PodProfile, bundle: Bundle) -> Iterator[Hit]:
    """A gcsfuse volume without the annotation that brings its sidecar."""
    if str(pod.annotations.get(GCSFUSE_ANNOTATION, "")).lower() == "true":
        return
    for index, volume in enumerate(items(pod.spec.get("volumes"))):
        volume = mapping(volume)
        if dig(volume, "csi", "driver") != GCSFUSE and not _claims_gcsfuse(volume, pod, bundle):
            continue
        elsewhere = pod.path and GCSFUSE_ANNOTATION in pod.item.annotations
        where = f"; on the {pod.kind} itself it has no effect" if elsewhere else ""
        yield Hit(
            (*pod.spec_path, "volumes", index),
            f'a gcsfuse volume needs the annotation {GCSFUSE_ANNOTATION}: "true" on the pod template{where}: '
            "without its "
            "sidecar the mount never completes",
            ERROR,
            _annotate(pod),
        )
        return


def _claims_gcsfuse(volume: dict[str, object], pod: PodProfile, bundle: Bundle) -> bool:
    bound = volume_of_claim(volume, pod, bundle)
    return bound is not None and dig(bound.spec, "csi", "driver") == GCSFUSE


def _annotate(pod: PodProfile) -> Fix:
    metadata = pod.template.value.get("metadata")
    if not isinstance(metadata, dict):
        value: object = {"annotations": {GCSFUSE_ANNOTATION: "true"}}
        edit = Edit("set", pod.path, value, key="metadata")
    elif not isinstance(metadata.get("annotations"), dict):
        edit = Edit("set", (*pod.path, "metadata"), {GCSFUSE_ANNOTATION: "true"}, key="annotations")
    else:
        edit = Edit("set", (*pod.path, "metadata", "annotations"), "true", key=GCSFUSE_ANNOTATION)
    return Fix((edit,), safe=True)
