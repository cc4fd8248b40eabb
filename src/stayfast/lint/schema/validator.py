"""Strict validation against the trimmed schemas: unknown fields, wrong types, missing fields, versions that are gone.

A walk of our own over a compact table: reading the table takes 3 ms and a file well under one, where compiling JSON
schemas would cost more than everything else the command does.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, NamedTuple

from stayfast.documents.positions import Path
from stayfast.lint.objects.objects import is_placeholder
from stayfast.lint.schema import crds
from stayfast.text.suggest import closest, did_you_mean, field_like
from stayfast.text.units import quantity


class SchemaViolation(NamedTuple):
    """One disagreement with the schema."""

    path: Path
    message: str
    kind: str  # unknown, type, missing, version, value
    suggestion: str | None = None
    is_certain: bool = True
    is_removable: bool = False
    """Whether the definition is known completely, so that an unknown field means nothing to the server."""


_EFFECTS = "=NoSchedule|PreferNoSchedule|NoExecute"
# Values that the API server checks although the published schemas do not list them (Kubernetes 1.36, read 2026-08).
_VALUES: dict[str, dict[str, str]] = {
    "core.v1.Toleration": {"effect": _EFFECTS, "operator": "=Exists|Equal|Lt|Gt"},
    "core.v1.Taint": {"effect": _EFFECTS},
    "core.v1.Container": {
        "imagePullPolicy": "=Always|Never|IfNotPresent", "terminationMessagePolicy": "=File|FallbackToLogsOnError",
    },
    "core.v1.PodSpec": {
        "dnsPolicy": "=ClusterFirst|ClusterFirstWithHostNet|Default|None",
        "preemptionPolicy": "=Never|PreemptLowerPriority",
    },
    "core.v1.NodeSelectorRequirement": {"operator": "=In|NotIn|Exists|DoesNotExist|Gt|Lt"},
    "core.v1.PersistentVolumeClaimSpec": {
        "accessModes": "[]=ReadWriteOnce|ReadOnlyMany|ReadWriteMany|ReadWriteOncePod",
        "volumeMode": "=Block|Filesystem",
    },
    "core.v1.ServiceSpec": {"type": "=ClusterIP|NodePort|LoadBalancer|ExternalName"},
    "meta.v1.LabelSelectorRequirement": {"operator": "=In|NotIn|Exists|DoesNotExist"},
    "batch.v1.PodFailurePolicyRule": {"action": "=Ignore|FailJob|FailIndex|Count"},
    "batch.v1.PodFailurePolicyOnExitCodesRequirement": {"operator": "=In|NotIn"},
    "batch.v1.CronJobSpec": {"concurrencyPolicy": "=Allow|Forbid|Replace"},
    "policy.v1.PodDisruptionBudgetSpec": {"unhealthyPodEvictionPolicy": "=IfHealthyBudget|AlwaysAllow"},
    "storage.v1.StorageClass": {"volumeBindingMode": "=Immediate|WaitForFirstConsumer"},
    "scheduling.v1.PriorityClass": {"preemptionPolicy": "=Never|PreemptLowerPriority"},
}  # fmt: skip


@lru_cache(maxsize=1)
def _table() -> dict[str, Any]:
    # Not importlib.resources: its imports alone take longer than reading the file.
    with open(os.path.join(os.path.dirname(__file__), "data", "kubernetes.json"), encoding="utf-8") as stream:
        table: dict[str, Any] = json.load(stream)
    table["types"].update(crds.TYPES)
    for name, values in _VALUES.items():
        fields = table["types"][name]["fields"]
        for field, kind in values.items():
            fields[field] = kind if isinstance(fields[field], str) else [kind, *fields[field][1:]]
    return table


def versions() -> list[str]:
    """Kubernetes versions that can be chosen."""
    return list(_table()["versions"])


def has_schema(api_version: str, kind: str) -> bool:
    """Whether there is a schema for this kind."""
    key = f"{api_version}/{kind}"
    return key in _table()["kinds"] or key in crds.KINDS


@lru_cache(maxsize=1)
def kind_names() -> frozenset[str]:
    """Names of all kinds that there are schemas for."""
    return frozenset(key.rpartition("/")[2] for key in (*_table()["kinds"], *crds.KINDS))


def validate(value: dict[str, Any], api_version: str, kind: str, version: str) -> Iterator[SchemaViolation]:
    """Everything the API server of that version would refuse about the object's fields."""
    table = _table()
    index = table["versions"].index(version)
    key = f"{api_version}/{kind}"
    root = table["kinds"].get(key)
    if root is None and key in crds.KINDS:
        yield from _walk(value, "#" + crds.KINDS[key], (), index, strict=False)
    elif root is None:
        yield from _unknown_kind(api_version, kind, index)
    elif not root[1] <= index <= root[2]:
        yield _not_served(api_version, kind, index, root)
    else:
        yield from _walk(value, "#" + root[0], (), index, strict=True)


def validate_template(value: dict[str, Any], path: Path, version: str) -> Iterator[SchemaViolation]:
    """The same for a pod template inside an object that there is no schema for."""
    yield from _walk(value, "#core.v1.PodTemplateSpec", path, _table()["versions"].index(version), strict=True)


@lru_cache(maxsize=1)
def _built_in_groups() -> frozenset[str]:
    return frozenset(key.rpartition("/")[0].rpartition("/")[0] for key in _table()["kinds"])


def _unknown_kind(api_version: str, kind: str, index: int) -> Iterator[SchemaViolation]:
    """Built-in groups are known completely; of custom groups nothing can be said."""
    table = _table()
    group = api_version.rpartition("/")[0]
    if group not in _built_in_groups() or is_placeholder(api_version) or is_placeholder(kind):
        return
    served = sorted(
        key.rpartition("/")[0]
        for key, entry in table["kinds"].items()
        if key.rpartition("/")[2] == kind and entry[1] <= index <= entry[2]
    )
    version = table["versions"][index]
    if served:
        stable = [item for item in served if "alpha" not in item and "beta" not in item]
        best = (stable or served)[-1]
        message = f"{kind} is not served as {api_version} by Kubernetes {version}: use {best}"
        yield SchemaViolation(("apiVersion",), message, "version", best)
    elif not kind.endswith("List"):
        near = closest(kind, kind_names(), 1 if len(kind) < 6 else 2)
        hint = did_you_mean(near)
        message = f"Kubernetes {version} has no kind {kind} in {api_version}{hint}"
        yield SchemaViolation(("kind",), message, "version", is_certain=near is not None)  # else: a kubeconfig, say


def _not_served(api_version: str, kind: str, index: int, entry: list[Any]) -> SchemaViolation:
    names = _table()["versions"]
    when = f"only up to {names[entry[2]]}" if index > entry[2] else f"only from {names[entry[1]]} on"
    return SchemaViolation(
        ("apiVersion",), f"{api_version} {kind} is served {when}, not by Kubernetes {names[index]}", "version"
    )


def _walk(value: Any, kind: str, path: Path, index: int, *, strict: bool) -> Iterator[SchemaViolation]:
    if value is None or kind == "any":
        return
    if kind[0] == "#":
        yield from _fields(value, kind[1:], path, index, strict=strict)
    elif kind.startswith("[]"):
        if isinstance(value, list):
            inner = kind[2:]
            for position, element in enumerate(value):
                yield from _walk(element, inner, (*path, position), index, strict=strict)
        elif not is_placeholder(value):
            yield _wrong_type(path, "a list", value)
    elif kind.startswith("{}"):
        if isinstance(value, dict):
            inner = kind[2:]
            for key, element in value.items():
                yield from _walk(element, inner, (*path, key), index, strict=strict)
        elif not is_placeholder(value):
            yield _wrong_type(path, "a mapping", value)
    elif kind[0] == "=":
        yield from _one_of(value, kind[1:].split("|"), path)
    elif not _is_scalar(value, kind):
        yield _wrong_type(path, _ENGLISH[kind], value)
    elif kind == "quantity" and isinstance(value, str) and quantity(value) is None and not is_placeholder(value):
        yield SchemaViolation(
            path, f'{value} is no quantity: write a number with a unit such as 500m, 16Gi or "2"', "type"
        )


def _one_of(value: Any, allowed: list[str], path: Path) -> Iterator[SchemaViolation]:
    if is_placeholder(value) or value == "":
        return
    if not isinstance(value, str):
        yield _wrong_type(path, "text", value)
    elif value not in allowed:
        near = closest(value, allowed, 3)
        hint = did_you_mean(near)
        listed = f"{', '.join(allowed[:-1])} or {allowed[-1]}" if len(allowed) > 1 else allowed[0]
        yield SchemaViolation(path, f"{path[-1]} must be {listed}, not {value}{hint}", "value", near)


_ENGLISH = {
    "string": "text", "integer": "a whole number", "number": "a number", "boolean": "true or false",
    "object": "a mapping", "quantity": 'a quantity such as 2 or "500m"', "intstr": "a whole number or text",
}  # fmt: skip


def _is_scalar(value: Any, kind: str) -> bool:
    if kind == "string":
        return isinstance(value, str) or is_placeholder(value)
    if is_placeholder(value):
        return True
    if kind == "object":
        return isinstance(value, dict)
    if kind == "boolean":
        return isinstance(value, bool)
    if isinstance(value, bool):
        return False
    if kind == "integer":
        return isinstance(value, int) or (isinstance(value, float) and value.is_integer())
    if kind == "number":
        return isinstance(value, int | float)
    if kind == "quantity":
        return isinstance(value, str | int | float)
    return isinstance(value, str | int)


def _wrong_type(path: Path, expected: str, value: Any) -> SchemaViolation:
    found = {dict: "a mapping", list: "a list", str: "text", bool: "true/false", int: "a number", float: "a number"}
    kind = next(name for known, name in found.items() if isinstance(value, known))
    name = path[-1] if path else "the object"
    return SchemaViolation(path, f"{name} must be {expected}, not {kind}", "type")


def _fields(value: Any, name: str, path: Path, index: int, *, strict: bool) -> Iterator[SchemaViolation]:
    if not isinstance(value, dict):
        if not is_placeholder(value):
            yield _wrong_type(path, "a mapping", value)
        return
    definition = _table()["types"].get(name)
    if definition is None:
        return
    fields = definition["fields"]
    for key, element in value.items():
        kind = fields.get(key)
        if kind is None:
            yield from _unknown(key, fields, path, strict=strict or name.startswith(("core.", "batch.", "meta.")))
        elif isinstance(kind, str):
            yield from _walk(element, kind, (*path, key), index, strict=strict)
        elif kind[1] <= index <= kind[2]:
            yield from _walk(element, kind[0], (*path, key), index, strict=strict)
        else:
            names = _table()["versions"]
            span = f"up to {names[kind[2]]}" if index > kind[2] else f"from {names[kind[1]]} on"
            yield SchemaViolation((*path, key), f"{key} exists {span}, not in Kubernetes {names[index]}", "version")
    for key in definition["required"]:
        if value.get(key) is None and not any(is_placeholder(written) for written in value):
            yield SchemaViolation(path, f"{key} is required" + (f" in {path[-1]}" if path else ""), "missing")


def _unknown(key: str, fields: dict[str, Any], path: Path, *, strict: bool) -> Iterator[SchemaViolation]:
    if is_placeholder(key) or key.startswith("x-"):
        return
    meant = field_like(key, fields)
    hint = did_you_mean(meant)
    # A definition that still grows may have the field already: one wrong letter is certain, and nothing is removed.
    slip = meant if strict else closest(key, fields, 1)
    certain = strict or slip is not None
    yield SchemaViolation(
        (*path, key), f"unknown field {key}{hint}", "unknown", slip, is_certain=certain, is_removable=strict
    )
