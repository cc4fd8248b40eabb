"""The next classes of a plan, kept in the cluster: what the watch applies when the first one does not come.

``stayfast submit --fall-back`` writes one ConfigMap per run, ``RUN-classes``, with the run's workload rendered for
every later class of the plan that needs no other objects than the first. The watch reads it and nothing else: it has no
plan, no prices and no file of its own.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from stayfast.capacity.plan.planner import Plan
from stayfast.errors import UsageError
from stayfast.model import variables
from stayfast.model.capacity import CapacityClass
from stayfast.model.kubernetes_objects import identity
from stayfast.model.labels import CAPACITY, CLASS_NUMBER, CLASSES, CLASSES_KEY, PART_LABEL, SPEC_DIGEST, USD_PER_HOUR
from stayfast.render.bundle import Bundle, render

MAX_BYTES = 900_000
"""A ConfigMap may have 1 MiB."""
_SETTINGS = {variables.CAPACITY: CAPACITY, variables.USD_PER_HOUR: USD_PER_HOUR}


def classes_name(run: str) -> str:
    """Of the ConfigMap."""
    return f"{run}-classes"


def fallback_classes(bundle: Bundle, plan: Plan) -> tuple[dict[str, Any] | None, list[str]]:
    """The ConfigMap, if there is anything to fall back to, and why classes were left out."""
    outline = bundle.outline
    promise = plan.promise
    if promise is None:
        return None, []
    if plan.choice == CapacityClass.HYBRID:
        return None, ["hybrid falls back by itself: its ComputeClass does"]
    present = {identity(item) for item in bundle.objects}
    rows: list[dict[str, Any]] = []
    left_out = []
    for kind in promise.later_classes:
        try:
            other = render(outline.spec, replace(plan, choice=kind), form=outline.form)
        except UsageError as error:
            left_out.append(f"{kind}: {error.message}")
            continue
        lacking = [identity(item) for item in other.objects if identity(item) not in present | _optional_objects(other)]
        if lacking or other.workload["kind"] != bundle.workload["kind"]:
            left_out.append(f"{kind}: it needs {lacking[0] if lacking else other.workload['kind']} as well")
            continue
        rows.append({"capacity": kind.value, "workload": _numbered(bundle, other, len(rows) + 1)})
    if not rows:
        return None, left_out
    metadata = outline.metadata(classes_name(outline.name), labels={PART_LABEL: CLASSES})
    text = json.dumps(rows, separators=(",", ":"))
    if len(text.encode()) > MAX_BYTES:
        return None, [*left_out, "the rendered classes do not fit a ConfigMap"]
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {CLASSES_KEY: text}}, left_out


def _optional_objects(bundle: Bundle) -> set[str]:
    """A run works without its budget: drains are only less polite."""
    return {identity(item) for item in bundle.objects if item["kind"] == "PodDisruptionBudget"}


def _numbered(first: Bundle, other: Bundle, number: int) -> dict[str, Any]:
    """Under the first one's digest, so that submitting the same file again finds it unchanged."""
    workload: dict[str, Any] = json.loads(json.dumps(other.workload))
    before, after = _settings(first), _settings(other)
    marks = {mark: after[name] for name, mark in _SETTINGS.items() if name in after}
    workload["metadata"]["annotations"] |= {
        SPEC_DIGEST: first.outline.digest,
        CLASS_NUMBER: str(number),
        **marks,
    }
    spec = workload["spec"]
    if workload["kind"] == "JobSet":
        spec = spec["replicatedJobs"][0]["template"]["spec"]
    for container in spec["template"]["spec"]["containers"]:
        # The shared settings stay those of the first class; what differs stands on the container, where it wins.
        changed = {name: value for name, value in after.items() if before.get(name) != value}
        container["env"] = [*container.get("env", []), *({"name": n, "value": v} for n, v in sorted(changed.items()))]
    return workload


def _settings(bundle: Bundle) -> dict[str, str]:
    return next((dict(item["data"]) for item in bundle.objects if item["kind"] == "ConfigMap"), {})
