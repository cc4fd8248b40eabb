"""Rename, retype or drop any field of a good file: the linter says so, at that field and nowhere else."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from typing import Any

import pytest
from lint_cases import SHARED, dump, good_job
from test_lint_strangers import CASES

from stayfast.documents import load_documents
from stayfast.lint.engine import lint_bundle
from stayfast.lint.finding import Finding
from stayfast.lint.objects.bundle import LintSettings
from stayfast.lint.schema.validator import has_schema
from stayfast.lint.sources import Source

# Mappings whose keys are the user's own.
FREE = {
    "labels", "annotations", "matchLabels", "nodeSelector", "requests", "limits", "data", "parameters", "nodeLabels",
    "volumeAttributes", "capacity", "resourceWeights",
}  # fmt: skip
Path = tuple[Any, ...]


def _good() -> dict[str, dict[str, Any]]:
    """Objects without a fault, by name: ours, those of the cases, and the corrected documents."""
    texts = [text for case in CASES if case.rule == "SF601" and not case.fires for _, text in case.files]
    for name in ("01-spot-hpsearch.yaml", "02-flex-start-distributed.yaml"):
        path = SHARED / "documents" / "fixed" / name
        texts += [path.read_text()] if path.exists() else []
    found = {"job": good_job()}
    for text in texts:
        for document in load_documents(text, "good.yaml"):
            value = document.value
            is_known = isinstance(value, dict) and has_schema(value.get("apiVersion", ""), value.get("kind", ""))
            if is_known and value.get("spec", {}).get("template", {}).get("spec", {}).get("containers", 1):
                found[f"{value['kind']} {len(found)}"] = value
    return {name: value for name, value in found.items() if "SF601" not in {f.rule for f in _lint(value)}}


def _lint(value: dict[str, Any]) -> list[Finding]:
    return lint_bundle([Source("good.yaml", dump(value))], LintSettings()).findings


def _fields(value: Any, path: Path = ()) -> Iterator[Path]:
    """Paths of all fields that a schema names."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield (*path, key)
            if key not in FREE:
                yield from _fields(inner, (*path, key))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from _fields(inner, (*path, index))


def _pointer(path: Path) -> str:
    return "".join("/" + str(part).replace("~", "~0").replace("/", "~1") for part in path)


def _parent(value: dict[str, Any], path: Path) -> Any:
    for part in path[:-1]:
        value = value[part]
    return value


def _line_of(text: str, marker: str) -> int:
    return next(number for number, line in enumerate(text.split("\n"), start=1) if marker in line)


GOOD = _good()
NAMES = sorted(GOOD)


def test_there_are_good_files_of_many_kinds() -> None:
    assert {"Job", "JobSet", "ClusterQueue", "ComputeClass", "Service"} <= {GOOD[name]["kind"] for name in NAMES}


@pytest.mark.parametrize("name", NAMES)
def test_a_renamed_field_is_found_where_it_stands(name: str) -> None:
    for path in _fields(GOOD[name]):
        if path in (("apiVersion",), ("kind",)) or path[0] == "metadata":
            continue
        if GOOD[name]["kind"] == "Service" and path[:2] == ("spec", "selector") and len(path) > 2:
            continue  # labels, not fields
        value = copy.deepcopy(GOOD[name])
        parent = _parent(value, path)
        renamed = (*path[:-1], f"{path[-1]}Zz")
        parent[renamed[-1]] = parent.pop(path[-1])
        text = dump(value)
        found = [finding for finding in _lint(value) if finding.rule == "SF601"]
        pointers = {finding.pointer for finding in found}
        assert _pointer(renamed) in pointers, (path, pointers)
        here = next(finding for finding in found if finding.pointer == _pointer(renamed))
        assert here.line == _line_of(text, f'"{renamed[-1]}"'), path
        # anything else that is said is about what is now missing: around it, or for a neighbour that needs it
        allowed = {_pointer(path[:depth]) for depth in range(len(path) + 1)}
        allowed |= {_pointer((*path[:-1], neighbour)) for neighbour in parent}
        if "flexStart" in path:
            allowed.add(_pointer((*path[:3], "capacityCheckWaitTimeSeconds")))
        assert all(pointer in allowed or "requests" in pointer for pointer in pointers), pointers


@pytest.mark.parametrize("name", NAMES)
def test_a_retyped_field_is_found_where_it_stands(name: str) -> None:
    for path in _fields(GOOD[name]):
        before = _parent(GOOD[name], path)[path[-1]]
        if path[-1] in FREE and path[-1] != "nodeSelector":
            continue
        value = copy.deepcopy(GOOD[name])
        _parent(value, path)[path[-1]] = ["zz"] if not isinstance(before, list) else {"zz": 1}
        if path in (("apiVersion",), ("kind",), ("metadata", "name"), ("metadata", "generateName"), ("metadata",)):
            continue
        pointers = {finding.pointer for finding in _lint(value) if finding.rule == "SF601"}
        assert any(pointer.startswith(_pointer(path)) for pointer in pointers), (path, pointers)


@pytest.mark.parametrize("name", NAMES)
def test_dropping_a_field_never_breaks_the_linter_and_names_required_ones(name: str) -> None:
    for path in _fields(GOOD[name]):
        value = copy.deepcopy(GOOD[name])
        del _parent(value, path)[path[-1]]
        for finding in _lint(value):
            json.dumps(finding.message)
            if finding.rule == "SF601" and "is required" in finding.message and path[0] != "metadata":
                above = {_pointer(path[:depth]) for depth in range(len(path))}
                assert finding.pointer in above, (path, finding)
