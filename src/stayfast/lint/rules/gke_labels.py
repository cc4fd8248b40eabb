"""Pitfall 5, first half: labels and taints that do not exist, and values GKE does not know."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from stayfast.capacity.machines import gke_keys as keys
from stayfast.capacity.machines.machine import load_machines
from stayfast.documents.editor import Edit
from stayfast.documents.lookup import dig, items, mapping
from stayfast.documents.positions import Path
from stayfast.lint.finding import ADVICE, ERROR, Fix, Hit
from stayfast.lint.objects.bundle import Bundle
from stayfast.lint.objects.objects import ManifestObject, is_placeholder
from stayfast.lint.objects.pod import PodProfile
from stayfast.lint.objects.scheduling import preferred_keys
from stayfast.lint.rule import OBJECT, POD, rule
from stayfast.text.suggest import closest, did_you_mean, distance

_WRONG_DOMAINS = ("gke.io", "cloud.gke.io", "google.com", "gke.google.com")
_DOMAINS = ("cloud.google.com/", "autoscaling.gke.io/")


@rule("SF501", "unknown-gke-key", POD)
def unknown_gke_key(pod: PodProfile, _bundle: Bundle) -> Iterator[Hit]:
    """A label or taint key that GKE does not use."""
    seen: set[str] = set()
    for key, path in _keys(pod):
        if key in seen or not key or is_placeholder(key):
            continue
        seen.add(key)
        hit = _judge_key(key, path)
        if hit:
            yield hit


def _keys(pod: PodProfile) -> Iterator[tuple[str, Path]]:
    for demand in pod.demands:
        yield demand.key, demand.path
    for toleration in pod.tolerations:
        yield toleration.key, toleration.path
    yield from preferred_keys(pod.spec, pod.spec_path)


def _judge_key(key: str, path: Path) -> Hit | None:
    if keys.is_known_key(key):
        return None
    if not key.startswith(_DOMAINS):
        meant = _meant_outside(key)
        return _misspelled(key, meant, path) if meant else None
    domain, _, name = key.partition("/")
    candidates = {known.partition("/")[2]: known for known in keys.KEYS if known.startswith(domain + "/")}
    squeezed = {_squeeze(known): full for known, full in candidates.items()}
    meant = squeezed.get(_squeeze(name))
    if meant is None:
        near = closest(name, candidates, 2 if len(name) > 6 else 1)
        meant = candidates[near] if near else None
    if meant:
        return _misspelled(key, meant, path)
    return Hit(path, f"GKE is not known to use {key}: if no node carries it, the pods stay Pending", ADVICE)


def _squeeze(name: str) -> str:
    return name.lower().removeprefix("gke").replace("-", "").replace("_", "")


def _meant_outside(key: str) -> str | None:
    """``gke-spot`` without its domain, or a misspelled domain."""
    if f"cloud.google.com/{key}" in keys.KEYS and key.startswith("gke-"):
        return f"cloud.google.com/{key}"
    domain, slash, name = key.partition("/")
    if not slash or f"cloud.google.com/{name}" not in keys.KEYS:
        return None
    near = distance(domain, "cloud.google.com", 3) <= 3
    return f"cloud.google.com/{name}" if near or domain in _WRONG_DOMAINS else None


def _misspelled(key: str, meant: str, path: Path) -> Hit:
    edit = (
        Edit("rename", path, meant)
        if path[-2] in ("nodeSelector", "nodeLabels")
        else Edit("set", path, meant, key="key")
    )
    return Hit(path, f"there is no {key}{did_you_mean(meant)}", ERROR, Fix((edit,), safe=False))


@rule("SF502", "bad-gke-value", POD)
def bad_gke_value(pod: PodProfile, _bundle: Bundle) -> Iterator[Hit]:
    """A value that GKE does not know, or one that is not text."""
    for demand in pod.demands:
        if not demand.key.startswith(_DOMAINS):
            continue
        in_selector = "nodeSelector" in demand.path
        for index, value in enumerate(demand.values):
            path = demand.path if in_selector else (*demand.path, "values", index)
            yield from _judge_value(demand.key, value, path, forbids=demand.excludes)
    for toleration in pod.tolerations:
        if toleration.key.startswith(_DOMAINS) and toleration.value is not None:
            only_true = toleration.key in keys.TRUE_ONLY_KEYS and toleration.operator == "Equal"
            path = (*toleration.path, "value")
            yield from _judge_value(toleration.key, toleration.value, path, forbids=not only_true)


def _listed_values(key: str) -> frozenset[str]:
    """What GKE knows for this key; empty where any value will do."""
    if key == keys.PROVISIONING:
        return frozenset(keys.PROVISIONING_VALUES)
    if key == keys.ACCELERATOR:
        return load_machines().gpu_names
    return load_machines().tpu_names if key == keys.TPU_ACCELERATOR else frozenset()


def _judge_value(key: str, value: Any, path: Path, *, forbids: bool) -> Iterator[Hit]:
    if value is not None and not isinstance(value, str):
        spelled = str(value).lower() if isinstance(value, bool) else str(value)
        fix = Fix((Edit("set", path[:-1], spelled, key=path[-1]),), safe=True)
        yield Hit(path, f'the value of {key} must be text: write "{spelled}" in quotes', ERROR, fix)
        return
    if value is None or is_placeholder(value) or forbids:
        return
    if key in keys.TRUE_ONLY_KEYS and value not in ("true", "false"):
        fix = Fix((Edit("set", path[:-1], "true", key=path[-1]),), safe=False)
        yield Hit(path, f'{key} is only ever "true", not "{value}"', ERROR, fix)
    elif key in keys.TRUE_ONLY_KEYS and value == "false" and key != "cloud.google.com/gke-ephemeral-storage-local-ssd":
        yield Hit(
            path, f'{key} is only ever "true" or absent: no node has "false"; use DoesNotExist in nodeAffinity', ERROR
        )
    elif (listed := _listed_values(key)) and value not in listed:
        near = closest(value, listed, 4)
        hint = did_you_mean(near)
        known = Fix((Edit("set", path[:-1], near, key=path[-1]),), safe=False) if near else None
        yield Hit(path, f"GKE knows no {value} for {key}{hint}", ERROR, known)
    elif key == keys.MACHINE_FAMILY and value != value.lower():
        fix = Fix((Edit("set", path[:-1], value.lower(), key=path[-1]),), safe=False)
        yield Hit(path, f"machine families are written in lower case: {value.lower()}", ERROR, fix)


@rule("SF501", "unknown-gke-key", OBJECT, "ResourceFlavor")
def unknown_gke_key_in_flavor(item: ManifestObject, _bundle: Bundle) -> Iterator[Hit]:
    """The same for the node labels that Kueue adds to its workloads."""
    for key in mapping(item.spec.get("nodeLabels")):
        hit = None if is_placeholder(key) else _judge_key(key, ("spec", "nodeLabels", key))
        if hit:
            yield hit


@rule("SF502", "bad-gke-value", OBJECT, "ResourceFlavor")
def bad_gke_value_in_flavor(item: ManifestObject, _bundle: Bundle) -> Iterator[Hit]:
    """The same for the values of those labels."""
    for key, value in mapping(item.spec.get("nodeLabels")).items():
        if key.startswith(_DOMAINS):
            yield from _judge_value(key, value, ("spec", "nodeLabels", key), forbids=False)


@rule("SF502", "bad-gke-value", OBJECT, "ComputeClass")
def bad_gke_value_in_class(item: ManifestObject, _bundle: Bundle) -> Iterator[Hit]:
    """The same for the accelerators of a ComputeClass."""
    for index, row in enumerate(items(item.spec.get("priorities"))):
        for field, key in (("gpu", keys.ACCELERATOR), ("tpu", keys.TPU_ACCELERATOR)):
            value = dig(row, field, "type")
            if isinstance(value, str):
                yield from _judge_value(key, value, ("spec", "priorities", index, field, "type"), forbids=False)
