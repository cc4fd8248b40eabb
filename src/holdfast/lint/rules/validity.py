"""HF601: what the API server would refuse, said before it does."""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.documents.tree import Path
from holdfast.lint.bundle import Bundle
from holdfast.lint.finding import ADVICE, ERROR, Edit, Fix, Hit
from holdfast.lint.objects import Item, dig, is_placeholder, items, mapping, text
from holdfast.lint.profile import Pod
from holdfast.lint.rule import OBJECT, POD, rule
from holdfast.lint.rules.retries import failure_rules
from holdfast.lint.schema import Fault, validate

# Values that the API server checks although the published schemas do not list them (Kubernetes 1.36, read 2026-08).
_ENUMS: dict[str, frozenset[str]] = {
    "restartPolicy": frozenset(("Always", "OnFailure", "Never")),
    "completionMode": frozenset(("Indexed", "NonIndexed")),
    "podReplacementPolicy": frozenset(("Failed", "TerminatingOrFailed")),
    "concurrencyPolicy": frozenset(("Allow", "Forbid", "Replace")),
}


@rule("HF601", "invalid-object", OBJECT)
def invalid_object(item: Item, bundle: Bundle) -> Iterator[Hit]:
    """Unknown fields, wrong types, missing fields, API versions that are gone."""
    if not item.api_version:
        if item.kind not in ("Kustomization", "Component", "Config"):
            yield Hit((), "apiVersion is missing", ERROR)
        return
    is_patch = any(pod.is_partial for pod in bundle.pods_of(item)) or _is_patch(item)
    for fault in validate(item.value, item.api_version, item.kind, bundle.settings.kubernetes):
        if fault.kind == "missing" and is_patch:
            continue
        yield Hit(fault.path, fault.message, ERROR if fault.is_certain else ADVICE, _fix(fault, item))


def _is_patch(item: Item) -> bool:
    """A strategic-merge patch: named so, or a workload without any container."""
    name = item.file.rpartition("/")[2]
    return "patch" in name or (
        item.kind in ("Job", "Deployment", "StatefulSet")
        and not items(dig(item.value, "spec", "template", "spec", "containers"))
    )


def _fix(fault: Fault, item: Item) -> Fix | None:
    if fault.kind == "unknown":
        parent = mapping(dig(item.value, *fault.path[:-1]))
        if fault.suggestion and fault.suggestion not in parent:
            return Fix((Edit("rename", fault.path, fault.suggestion),), safe=False)
        return Fix((Edit("remove", fault.path),), safe=False)
    if fault.kind == "type" and "must be text" in fault.message:
        value = dig(item.value, *fault.path)
        if isinstance(value, bool | int):
            spelled = str(value).lower() if isinstance(value, bool) else str(value)
            return Fix((Edit("set", fault.path[:-1], spelled, key=fault.path[-1]),), safe=True)
    return None


@rule("HF601", "invalid-object", POD)
def refused_combinations(pod: Pod, _bundle: Bundle) -> Iterator[Hit]:
    """Fields that are each fine and refused together (422)."""
    job = pod.template.job
    restart = pod.spec.get("restartPolicy")
    path: Path = (*pod.spec_path, "restartPolicy")
    if isinstance(restart, str) and restart not in _ENUMS["restartPolicy"] and not is_placeholder(restart):
        yield Hit(path, f"restartPolicy must be Always, OnFailure or Never, not {restart}", ERROR)
    if job is None:
        return
    if pod.kind in ("Job", "CronJob") and restart in (None, "Always") and not pod.is_partial:
        fix = Fix((Edit("set", pod.spec_path, "Never", key="restartPolicy"),), safe=False)
        yield Hit(
            path if restart else pod.spec_path,
            "a Job's pods need restartPolicy Never or OnFailure: the default, Always, is refused",
            ERROR,
            fix,
        )
    if "podFailurePolicy" in job.spec and restart == "OnFailure":
        fix = Fix((Edit("set", pod.spec_path, "Never", key="restartPolicy"),), safe=False)
        yield Hit(path, "podFailurePolicy is refused with restartPolicy OnFailure: only Never is allowed", ERROR, fix)
    for field in ("completionMode", "podReplacementPolicy"):
        value = job.spec.get(field)
        if isinstance(value, str) and value not in _ENUMS[field] and not is_placeholder(value):
            yield Hit((*job.path, field), f"{field} must be {' or '.join(sorted(_ENUMS[field]))}, not {value}", ERROR)
    if job.spec.get("completionMode") == "Indexed" and "completions" not in job.spec and pod.kind in ("Job", "CronJob"):
        yield Hit((*job.path, "completionMode"), "an Indexed Job must set completions", ERROR)
    for index, entry in enumerate(failure_rules(job)):
        codes = mapping(entry.get("onExitCodes"))
        if codes.get("operator") == "In" and 0 in items(codes.get("values")):
            where = (*job.path, "podFailurePolicy", "rules", index, "onExitCodes", "values")
            yield Hit(where, "0 is not allowed in onExitCodes with the operator In", ERROR)


@rule("HF601", "invalid-object", OBJECT, "Deployment", "StatefulSet", "ReplicaSet", "DaemonSet")
def selector_must_match(item: Item, _bundle: Bundle) -> Iterator[Hit]:
    """The selector of a workload must match its own template."""
    labels = mapping(dig(item.value, "spec", "template", "metadata", "labels"))
    for key, value in mapping(dig(item.value, "spec", "selector", "matchLabels")).items():
        if labels.get(key) != value and not is_placeholder(value) and not is_placeholder(labels.get(key)):
            yield Hit(
                ("spec", "selector", "matchLabels", key),
                f"the pod template does not carry {key}={text(value)}: the API refuses a selector that misses "
                "its own pods",
                ERROR,
            )
