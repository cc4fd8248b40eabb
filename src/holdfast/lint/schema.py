"""Strict validation against the trimmed schemas: unknown fields, wrong types, missing fields, versions that are gone.

A walk of our own over a compact table: reading the table takes 3 ms and a file well under one, where compiling JSON
schemas would cost more than everything else the command does.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import lru_cache
from importlib.resources import files
from typing import Any, NamedTuple

from holdfast.documents.tree import Path
from holdfast.lint import crds
from holdfast.lint.objects import is_placeholder
from holdfast.lint.spelling import field_like


class Fault(NamedTuple):
    """One disagreement with the schema."""

    path: Path
    message: str
    kind: str  # unknown, type, missing, version
    suggestion: str | None = None
    is_certain: bool = True


@lru_cache(maxsize=1)
def _table() -> dict[str, Any]:
    raw = files("holdfast.lint").joinpath("schemas", "kubernetes.json").read_text(encoding="utf-8")
    table: dict[str, Any] = json.loads(raw)
    table["types"].update(crds.TYPES)
    return table


def versions() -> list[str]:
    """Kubernetes versions that can be chosen."""
    return list(_table()["versions"])


def validate(value: dict[str, Any], api_version: str, kind: str, version: str) -> Iterator[Fault]:
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


@lru_cache(maxsize=1)
def _built_in_groups() -> frozenset[str]:
    return frozenset(key.rpartition("/")[0].rpartition("/")[0] for key in _table()["kinds"])


def _unknown_kind(api_version: str, kind: str, index: int) -> Iterator[Fault]:
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
        yield Fault(("apiVersion",), message, "version", best)
    elif not kind.endswith("List"):
        yield Fault(("kind",), f"Kubernetes {version} has no kind {kind} in {api_version}", "version")


def _not_served(api_version: str, kind: str, index: int, entry: list[Any]) -> Fault:
    names = _table()["versions"]
    when = f"only up to {names[entry[2]]}" if index > entry[2] else f"only from {names[entry[1]]} on"
    return Fault(("apiVersion",), f"{api_version} {kind} is served {when}, not by Kubernetes {names[index]}", "version")


def _walk(value: Any, kind: str, path: Path, index: int, *, strict: bool) -> Iterator[Fault]:
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
            yield _wrong(path, "a list", value)
    elif kind.startswith("{}"):
        if isinstance(value, dict):
            inner = kind[2:]
            for key, element in value.items():
                yield from _walk(element, inner, (*path, key), index, strict=strict)
        elif not is_placeholder(value):
            yield _wrong(path, "a mapping", value)
    elif not _is_scalar(value, kind):
        yield _wrong(path, _ENGLISH[kind], value)


_ENGLISH = {
    "string": "text", "integer": "a whole number", "number": "a number", "boolean": "true or false",
    "object": "a mapping", "quantity": 'a quantity such as 2 or "500m"', "intstr": "a whole number or text",
}  # fmt: skip


def _is_scalar(value: Any, kind: str) -> bool:
    if kind == "string":
        return isinstance(value, str)
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


def _wrong(path: Path, expected: str, value: Any) -> Fault:
    found = {dict: "a mapping", list: "a list", str: "text", bool: "true/false", int: "a number", float: "a number"}
    kind = next(name for known, name in found.items() if isinstance(value, known))
    name = path[-1] if path else "the object"
    return Fault(path, f"{name} must be {expected}, not {kind}", "type")


def _fields(value: Any, name: str, path: Path, index: int, *, strict: bool) -> Iterator[Fault]:
    if not isinstance(value, dict):
        if not is_placeholder(value):
            yield _wrong(path, "a mapping", value)
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
            yield Fault((*path, key), f"{key} exists {span}, not in Kubernetes {names[index]}", "version")
    for key in definition["required"]:
        if value.get(key) is None and not any(is_placeholder(written) for written in value):
            yield Fault(path, f"{key} is required" + (f" in {path[-1]}" if path else ""), "missing")


def _unknown(key: str, fields: dict[str, Any], path: Path, *, strict: bool) -> Iterator[Fault]:
    if is_placeholder(key) or key.startswith("x-"):
        return
    meant = field_like(key, fields)
    hint = f"; did you mean {meant}?" if meant else ""
    yield Fault((*path, key), f"unknown field {key}{hint}", "unknown", meant, is_certain=strict or meant is not None)
