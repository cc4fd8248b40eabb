"""SF601: what the API server would refuse, said before it does."""

from __future__ import annotations

from collections.abc import Iterator

from stayfast.documents.editor import Edit
from stayfast.documents.lookup import dig, items, mapping, number, text
from stayfast.documents.positions import Path
from stayfast.lint.finding import ADVICE, ERROR, Fix, Hit
from stayfast.lint.objects.bundle import Bundle
from stayfast.lint.objects.containers import Container
from stayfast.lint.objects.objects import ManifestObject, is_placeholder
from stayfast.lint.objects.pod import PodProfile
from stayfast.lint.objects.workloads import JobSpecAt
from stayfast.lint.rule import OBJECT, POD, rule
from stayfast.lint.rules.retries import failure_rules
from stayfast.lint.schema.validator import SchemaViolation, has_schema, kind_names, validate, validate_template
from stayfast.text.units import quantity

# Values that the API server checks although the published schemas do not list them (Kubernetes 1.36, read 2026-08).
_ENUMS: dict[str, frozenset[str]] = {
    "restartPolicy": frozenset(("Always", "OnFailure", "Never")),
    "completionMode": frozenset(("Indexed", "NonIndexed")),
    "podReplacementPolicy": frozenset(("Failed", "TerminatingOrFailed")),
}


@rule("SF601", "invalid-object", OBJECT)
def invalid_object(item: ManifestObject, bundle: Bundle) -> Iterator[Hit]:
    """Unknown fields, wrong types, missing fields, API versions that are gone."""
    if not item.api_version:
        if item.kind in kind_names():  # other files have a kind too, and are none of our business
            yield Hit((), "apiVersion is missing", ERROR)
        return
    is_patch = any(pod.is_partial for pod in bundle.pods_of(item)) or _is_patch(item)
    if not item.name and not is_patch and has_schema(item.api_version, item.kind):
        yield Hit(("metadata",), "metadata.name (or generateName) is required", ERROR)
    for fault in validate(item.value, item.api_version, item.kind, bundle.settings.kubernetes):
        if fault.kind == "missing" and is_patch:
            continue
        yield Hit(fault.path, fault.message, ERROR if fault.is_certain else ADVICE, _fix(fault, item))
    if not has_schema(item.api_version, item.kind) and not is_patch:
        yield from _invalid_templates(item, bundle)


def _invalid_templates(item: ManifestObject, bundle: Bundle) -> Iterator[Hit]:
    """What operators hand on to the API server as it is: Ray groups, replicas of a PyTorchJob."""
    for pod in bundle.pods_of(item):
        if pod.path:
            for fault in validate_template(pod.template.value, pod.path, bundle.settings.kubernetes):
                if fault.kind != "missing":  # the operator may fill it in
                    yield Hit(fault.path, fault.message, ERROR, _fix(fault, item))


def _is_patch(item: ManifestObject) -> bool:
    """A strategic-merge patch: named so, or a workload without any container."""
    name = item.file.rpartition("/")[2]
    return "patch" in name or (
        item.kind in ("Job", "Deployment", "StatefulSet")
        and not items(dig(item.value, "spec", "template", "spec", "containers"))
    )


def _fix(fault: SchemaViolation, item: ManifestObject) -> Fix | None:
    if fault.kind == "unknown":
        parent = mapping(dig(item.value, *fault.path[:-1]))
        if fault.suggestion and fault.suggestion not in parent:
            return Fix((Edit("rename", fault.path, fault.suggestion),), safe=False)
        return Fix((Edit("remove", fault.path),), safe=False) if fault.is_removable else None
    if fault.kind == "value" and fault.suggestion and fault.path:
        return Fix((Edit("set", fault.path[:-1], fault.suggestion, key=fault.path[-1]),), safe=False)
    if fault.kind == "type" and "must be text" in fault.message:
        value = dig(item.value, *fault.path)
        if isinstance(value, bool | int):
            spelled = str(value).lower() if isinstance(value, bool) else str(value)
            return Fix((Edit("set", fault.path[:-1], spelled, key=fault.path[-1]),), safe=True)
    return None


@rule("SF601", "invalid-object", POD)
def refused_combinations(pod: PodProfile, _bundle: Bundle) -> Iterator[Hit]:
    """Fields that are each fine and refused together (422)."""
    job = pod.template.job
    restart = pod.spec.get("restartPolicy")
    path: Path = (*pod.spec_path, "restartPolicy")
    if isinstance(restart, str) and restart not in _ENUMS["restartPolicy"] and not is_placeholder(restart):
        yield Hit(path, f"restartPolicy must be Always, OnFailure or Never, not {restart}", ERROR)
    yield from _refused_of_pod(pod)
    if job is None:
        return
    yield from _negative(job)
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


def _refused_of_pod(pod: PodProfile) -> Iterator[Hit]:
    for toleration in pod.tolerations:
        if toleration.operator == "Exists" and toleration.value not in (None, ""):
            yield Hit(
                (*toleration.path, "value"),
                "a toleration with the operator Exists must not have a value",
                ERROR,
                Fix((Edit("remove", (*toleration.path, "value")),), safe=True),
            )
    for container in (*pod.containers, *pod.init_containers):
        for name in container.requests:
            # Extended resources cannot be overcommitted: the limit is required, and equal.
            if isinstance(name, str) and name.startswith(("nvidia.com/", "google.com/tpu", "amd.com/")):
                asked, most = quantity(container.requests[name]), quantity(container.limits.get(name))
                if name not in container.limits or (asked is not None and most is not None and asked != most):
                    yield Hit(
                        (*container.path, "resources", "requests", name),
                        f"a request for {name} needs the same value under limits: the API refuses the pod",
                        ERROR,
                        _equal_limit(container, name),
                    )


def _equal_limit(container: Container, name: str) -> Fix:
    value, path = container.requests[name], (*container.path, "resources")
    if isinstance(mapping(container.value.get("resources")).get("limits"), dict):
        return Fix((Edit("set", (*path, "limits"), value, key=name),), safe=False)
    return Fix((Edit("set", path, {name: value}, key="limits"),), safe=False)


def _negative(job: JobSpecAt) -> Iterator[Hit]:
    for field in ("parallelism", "completions", "backoffLimit", "backoffLimitPerIndex", "activeDeadlineSeconds"):
        value = number(job.spec.get(field))
        if value is not None and value < (field == "activeDeadlineSeconds"):
            yield Hit((*job.path, field), f"{field} must not be {value}", ERROR)


@rule("SF601", "invalid-object", OBJECT, "PodDisruptionBudget")
def one_of_two_limits(item: ManifestObject, _bundle: Bundle) -> Iterator[Hit]:
    """A budget has a minimum or a maximum, not both."""
    if item.spec.get("minAvailable") is not None and item.spec.get("maxUnavailable") is not None:
        yield Hit(("spec", "maxUnavailable"), "minAvailable and maxUnavailable exclude each other: keep one", ERROR)


@rule("SF601", "invalid-object", OBJECT, "ComputeClass")
def refused_priorities(item: ManifestObject, _bundle: Bundle) -> Iterator[Hit]:
    """Fields of a ComputeClass priority that its definition refuses together."""
    for index, row in enumerate(items(item.spec.get("priorities"))):
        row = mapping(row)
        path: Path = ("spec", "priorities", index)
        if "nodepools" in row and len(row) > 1:
            yield Hit((*path, "nodepools"), "nodepools stands alone in a priority: drop the other fields", ERROR)
        if "machineFamily" in row and "machineType" in row:
            yield Hit((*path, "machineFamily"), "machineFamily and machineType in one priority: keep one", ERROR)
        if "machineType" in row and ("minCores" in row or "minMemoryGb" in row):
            yield Hit((*path, "machineType"), "machineType leaves no room for minCores or minMemoryGb", ERROR)
        flexible = mapping(row.get("flexStart")).get("enabled") is True
        if "capacityCheckWaitTimeSeconds" in row and not flexible and "tpu" not in row:
            where = (*path, "capacityCheckWaitTimeSeconds")
            yield Hit(where, "capacityCheckWaitTimeSeconds goes with flexStart or multi-host TPUs only", ERROR)


@rule("SF601", "invalid-object", OBJECT, "Deployment", "StatefulSet", "ReplicaSet", "DaemonSet")
def selector_must_match(item: ManifestObject, _bundle: Bundle) -> Iterator[Hit]:
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
