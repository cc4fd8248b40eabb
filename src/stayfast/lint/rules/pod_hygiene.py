"""Pitfall 8, the rest: requests, image references, priority classes, ranks."""

from __future__ import annotations

import re
from collections.abc import Iterator

from stayfast.documents.editor import Edit
from stayfast.documents.lookup import mapping, text
from stayfast.lint.finding import ADVICE, ERROR, WARNING, Fix, Hit
from stayfast.lint.objects.bundle import Bundle
from stayfast.lint.objects.objects import is_placeholder
from stayfast.lint.objects.pod import PodProfile
from stayfast.lint.rule import POD, rule

_REGISTRY = re.compile(r"([a-z0-9-]+-)?docker\.pkg\.dev/(.*)\Z")
_BUILT_IN = frozenset(("system-cluster-critical", "system-node-critical", ""))


@rule("SF801", "requests-missing", POD)
def requests_missing(pod: PodProfile, _bundle: Bundle) -> Iterator[Hit]:
    """Accelerator or Kueue pods that do not say how much CPU and memory they need."""
    if pod.kind == "DaemonSet" or pod.is_partial:
        return
    for container in pod.containers:
        accelerated = any(
            str(key).startswith(("nvidia.com/", "google.com/tpu", "amd.com/gpu"))
            for key in (*container.requests, *container.limits)
        )
        if not accelerated and not (pod.queue and container is pod.containers[0]):
            continue
        whole = mapping(pod.spec.get("resources"))  # of the pod, Kubernetes 1.34
        given = {**mapping(whole.get("limits")), **mapping(whole.get("requests"))}
        missing = [name for name in ("cpu", "memory") if not container.mentions(name) and name not in given]
        if missing:
            path = (*container.path, "resources") if "resources" in container.value else container.path
            yield Hit(
                path,
                f"container {container.name} requests no {' and no '.join(missing)}: bin-packing, quota and Autopilot "
                "defaults go wrong",
                WARNING,
            )


@rule("SF802", "image-ref-invalid", POD)
def image_ref_invalid(pod: PodProfile, _bundle: Bundle) -> Iterator[Hit]:
    """An Artifact Registry path without project, repository and image."""
    for container in (*pod.containers, *pod.init_containers):
        match = _REGISTRY.match(container.image)
        if match is None or is_placeholder(container.image) or "$" in container.image:
            continue
        path = match.group(2).partition("@")[0]
        parts = [part for part in path.split("/") if part]
        if len(parts) < 3:
            yield Hit(
                (*container.path, "image"),
                f"{container.image} cannot be pulled: Artifact Registry needs project/repository/image after the host",
                ERROR,
            )


@rule("SF803", "priority-class-missing", POD)
def priority_class_missing(pod: PodProfile, bundle: Bundle) -> Iterator[Hit]:
    """A priority class that is neither built in nor given."""
    name = text(pod.spec.get("priorityClassName"))
    if name in _BUILT_IN or is_placeholder(name) or bundle.named("PriorityClass", name) or pod.kind == "PodTemplate":
        return
    declared = bundle.settings.is_cluster_snapshot or bool(bundle.of_kind("PriorityClass"))
    yield Hit(
        (*pod.spec_path, "priorityClassName"),
        f"PriorityClass {name} is not among the linted objects: without it the workload is accepted and no pod "
        "is ever made",
        ERROR if declared else WARNING,
    )


@rule("SF805", "no-stable-rank", POD)
def no_stable_rank(pod: PodProfile, _bundle: Bundle) -> Iterator[Hit]:
    """Several ranks and nothing that tells them apart."""
    job = pod.template.job
    if pod.kind not in ("Job", "CronJob") or job is None or job.spec.get("completionMode") == "Indexed":
        return
    count = pod.template.pods
    if count is None or count < 2 or pod.declared_independent:
        return
    hint = pod.rank_hint or ("a name that says training" if pod.trains else "")
    if hint:
        edits = [Edit("set", job.path, "Indexed", key="completionMode")]
        if "completions" not in job.spec:
            edits.append(Edit("set", job.path, count, key="completions"))
        yield Hit(
            (*job.path, "parallelism"),
            f"{count} pods with {hint}, but the Job is not Indexed: no completion index and no stable host name",
            WARNING if pod.rank_hint or pod.is_interruptible else ADVICE,
            Fix(tuple(edits), safe=False),
        )
