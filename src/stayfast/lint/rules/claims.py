"""Pitfall 4, claims: who shares them, whether they exist, where they pin the pod, and who writes at the same time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from stayfast.documents.editor import Edit
from stayfast.documents.lookup import dig, items, mapping, text
from stayfast.documents.positions import Path
from stayfast.lint.finding import ADVICE, ERROR, WARNING, Fix, Hit
from stayfast.lint.objects.bundle import Bundle
from stayfast.lint.objects.objects import ManifestObject, is_placeholder
from stayfast.lint.objects.pod import PodProfile
from stayfast.lint.rule import POD, rule
from stayfast.lint.rules.checkpoint_storage import GCSFUSE

_ONE_NODE = frozenset(("ReadWriteOnce", "ReadWriteOncePod"))
_DURABLE_DRIVERS = (GCSFUSE, "filestore.csi.storage.gke.io", "lustre.csi.storage.gke.io", "pd.csi.storage.gke.io")


def claims(pod: PodProfile) -> Iterator[tuple[str, Path, dict[str, Any]]]:
    """``(claim name, path, volume)`` of each claim the pod mounts."""
    for index, volume in enumerate(items(pod.spec.get("volumes"))):
        volume = mapping(volume)
        name = dig(volume, "persistentVolumeClaim", "claimName")
        if isinstance(name, str):
            yield name, (*pod.spec_path, "volumes", index, "persistentVolumeClaim", "claimName"), volume


@rule("SF403", "rwo-claim-shared", POD)
def rwo_claim_shared(pod: PodProfile, bundle: Bundle) -> Iterator[Hit]:
    """More than one pod on a claim that attaches to one node."""
    for name, path, _ in claims(pod):
        sharers = [other for other in bundle.pods_of(pod.item) if name in {found for found, _, _ in claims(other)}]
        counts = [2 if other.kind == "DaemonSet" else other.template.pods for other in sharers]
        count = sum(number or 0 for number in counts)
        if None in counts or count < 2:
            continue
        claim = bundle.named("PersistentVolumeClaim", name, pod.item.namespace)
        who = "the" if pod.kind == "DaemonSet" else str(count)
        modes = set(items(claim.spec.get("accessModes"))) if claim else set()
        if modes and modes <= _ONE_NODE:
            yield Hit(
                path,
                f"{who} pods share claim {name}, which is {', '.join(sorted(modes))}: the second node cannot attach; "
                "use ReadWriteMany (Filestore, gcsfuse) or ReadOnlyMany",
                ERROR,
            )


@rule("SF404", "claim-unresolved", POD)
def claim_unresolved(pod: PodProfile, bundle: Bundle) -> Iterator[Hit]:
    """A claim that is not among the given objects."""
    if pod.kind == "PodTemplate":
        return
    for name, path, _ in claims(pod):
        if (
            is_placeholder(name)
            or name in _claim_templates(pod)
            or bundle.named("PersistentVolumeClaim", name, pod.item.namespace)
        ):
            continue
        certain = bundle.settings.is_cluster_snapshot
        yield Hit(
            path,
            f"claim {name} is not among the linted objects: the API accepts that, and the pods stay Pending",
            ERROR if certain else ADVICE,
        )


def _claim_templates(pod: PodProfile) -> set[str]:
    return {text(dig(entry, "metadata", "name")) for entry in items(pod.item.spec.get("volumeClaimTemplates"))}


_PINNED = (
    "StorageClass {} binds a zonal disk before the pod is placed: the pod can run in that zone only; use "
    "WaitForFirstConsumer, a regional disk or a bucket"
)


@rule("SF406", "zonal-claim-pins-zone", POD)
def zonal_claim_pins_zone(pod: PodProfile, bundle: Bundle) -> Iterator[Hit]:
    """A zonal disk that is bound before the pod is placed ties interruptible work to one zone."""
    if not pod.is_interruptible:
        return
    for class_name, path in _classes(pod, bundle):
        if class_name == "standard" and not bundle.named("StorageClass", "standard"):
            yield Hit(path, _PINNED.format("standard (GKE's first class)"), ADVICE)
        storage_class = bundle.named("StorageClass", class_name) if class_name else None
        if storage_class is None or not _is_zonal(storage_class):
            continue
        if storage_class.value.get("volumeBindingMode", "Immediate") == "Immediate":
            yield Hit(path, _PINNED.format(class_name), ADVICE)


def _classes(pod: PodProfile, bundle: Bundle) -> Iterator[tuple[str, Path]]:
    """StorageClass and place of each claim: named, made by a StatefulSet, or made with the pod."""
    for name, path, _ in claims(pod):
        claim = bundle.named("PersistentVolumeClaim", name, pod.item.namespace)
        if claim:
            yield text(claim.spec.get("storageClassName")), path
    for index, entry in enumerate(items(pod.item.spec.get("volumeClaimTemplates"))):
        yield text(dig(entry, "spec", "storageClassName")), ("spec", "volumeClaimTemplates", index)
    for index, volume in enumerate(items(pod.spec.get("volumes"))):
        name = text(dig(volume, "ephemeral", "volumeClaimTemplate", "spec", "storageClassName"))
        yield name, (*pod.spec_path, "volumes", index)


def _is_zonal(storage_class: ManifestObject) -> bool:
    provisioner = text(storage_class.value.get("provisioner"))
    parameters = mapping(storage_class.value.get("parameters"))
    return "pd" in provisioner and "regional" not in text(parameters.get("replication-type"))


@rule("SF804", "overlapping-writers", POD)
def overlapping_writers(pod: PodProfile, bundle: Bundle) -> Iterator[Hit]:
    """A replacement pod starts to write while the old one still does."""
    job = pod.template.job
    if (
        job is None
        or pod.is_partial
        or job.spec.get("podReplacementPolicy") == "Failed"
        or "podFailurePolicy" in job.spec
    ):
        return
    volume = _written_volume(pod, bundle)
    if volume is None:
        return
    yield Hit(
        (*job.path, "podReplacementPolicy") if "podReplacementPolicy" in job.spec else job.path,
        f"the replacement of a terminating pod starts at once, so two pods write to {volume}: set "
        "podReplacementPolicy: "
        "Failed",
        WARNING if pod.is_interruptible else ADVICE,
        Fix((Edit("set", job.path, "Failed", key="podReplacementPolicy"),), safe=True),
    )


def _written_volume(pod: PodProfile, bundle: Bundle) -> str | None:
    read_only = {name: True for name, _, is_read_only, _ in _mounts(pod) if is_read_only}
    for name, _, is_read_only, _ in _mounts(pod):
        if not is_read_only:
            read_only[name] = False
    for volume in items(pod.spec.get("volumes")):
        volume = mapping(volume)
        name = text(volume.get("name"))
        if read_only.get(name, True):
            continue  # not mounted, or only for reading
        claim = mapping(volume.get("persistentVolumeClaim"))
        driver = mapping(volume.get("csi"))
        if claim and claim.get("readOnly") is not True and not _is_read_only_claim(claim, pod, bundle):
            return name
        if driver.get("driver") in _DURABLE_DRIVERS and driver.get("readOnly") is not True:
            return name
        if volume.get("nfs") and mapping(volume["nfs"]).get("readOnly") is not True:
            return name
    return None


def _mounts(pod: PodProfile) -> list[tuple[str, str, bool, Path]]:
    return [mount for container in pod.containers for mount in container.mounts()]


def _is_read_only_claim(claim: dict[str, Any], pod: PodProfile, bundle: Bundle) -> bool:
    found = bundle.named("PersistentVolumeClaim", text(claim.get("claimName")), pod.item.namespace)
    return found is not None and items(found.spec.get("accessModes")) == ["ReadOnlyMany"]
