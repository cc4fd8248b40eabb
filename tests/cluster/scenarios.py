"""Objects as a real control plane (v1.36.4, no kubelet) and Kueue write them; times relative to ``NOW``.

Every call makes fresh objects: what one test changes in its own is in no other test's. ``seen_at`` moves the moment
that they are written at, for as long as it is entered.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from types import MappingProxyType
from typing import Any

from stayfast.clock import to_rfc3339

NOW = 1_790_000_000.0
Object = dict[str, Any]
_moment: ContextVar[float] = ContextVar("moment", default=NOW)


@contextmanager
def seen_at(moment: float) -> Iterator[None]:
    """Objects that are made within are as of this moment."""
    token = _moment.set(moment)
    try:
        yield
    finally:
        _moment.reset(token)


def at(seconds_ago: float) -> str:
    return to_rfc3339(_moment.get() - seconds_ago)


def condition(kind: str, status: str = "True", reason: str = "", message: str = "", ago: float = 60.0) -> Object:
    return {"type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": at(ago)}


def job(
    name: str = "train", *, uid: str = "job-1", ago: float = 3600, labels: Object | None = None, **spec: Any
) -> Object:
    status = spec.pop("status", {})
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": name,
            "namespace": "ml",
            "uid": uid,
            "creationTimestamp": at(ago),
            "labels": {"stayfast.dev/run": name, **(labels or {})},
        },
        "spec": {"completions": 1, "parallelism": 1, **copy.deepcopy(spec)},
        "status": status,
    }


def pod(
    name: str = "train-x", *, owner: str = "job-1", phase: str = "Pending", ago: float = 600, run: str = "train",
    conditions: list[Object] | None = None, node: str = "", selector: Mapping[str, str] | None = None, **more: Any,
) -> Object:  # fmt: skip
    metadata = {
        "name": name,
        "namespace": "ml",
        "uid": f"uid-{name}",
        "creationTimestamp": at(ago),
        "labels": {"stayfast.dev/run": run},
        "ownerReferences": [{"kind": "Job", "uid": owner, "controller": True}],
        **more.pop("metadata", {}),
    }
    spec: Object = {"containers": [{"name": "main", "image": "x"}]}
    if node:
        spec["nodeName"] = node
    if selector:
        spec["nodeSelector"] = dict(selector)
    spec |= more.pop("spec", {})
    status = {"phase": phase, "conditions": conditions or [], **more}
    if node:
        status.setdefault("startTime", at(ago))
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, "status": status}


def ended(code: int, *, reason: str = "Error", message: str = "", ago: float = 5.0) -> list[Object]:
    state = {"exitCode": code, "reason": reason, "finishedAt": at(ago)}
    if message:
        state["message"] = message
    return [{"name": "main", "state": {"terminated": state}}]


def waiting(reason: str, message: str = "") -> list[Object]:
    return [{"name": "main", "state": {"waiting": {"reason": reason, "message": message}}}]


def unschedulable(message: str) -> list[Object]:
    return [condition("PodScheduled", "False", "Unschedulable", message)]


def event(about: Object, reason: str, message: str, ago: float = 30.0) -> Object:
    metadata = about["metadata"]
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"{metadata['name']}.{reason.lower()}.{ago:.0f}", "namespace": "ml"},
        "involvedObject": {"kind": about["kind"], "name": metadata["name"], "uid": metadata["uid"], "namespace": "ml"},
        "reason": reason,
        "message": message,
        "lastTimestamp": at(ago),
    }


def queued_job(**more: Any) -> Object:
    return job(labels={"kueue.x-k8s.io/queue-name": "gpus"}, suspend=True, **more)


def workload(
    *conditions: Object, owner: str = "job-1", name: str = "job-train-a1", ago: float = 600, **status: Any
) -> Object:
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "Workload",
        "metadata": {
            "name": name,
            "namespace": "ml",
            "uid": f"wl-{name}",
            "creationTimestamp": at(ago),
            "ownerReferences": [{"kind": "Job", "uid": owner}],
        },
        "spec": {"queueName": "gpus", "priority": 0},
        "status": {"conditions": list(conditions), **status},
    }


def request(*conditions: Object, ago: float = 600, owner: str = "wl-job-train-a1") -> Object:
    return {
        "apiVersion": "autoscaling.x-k8s.io/v1",
        "kind": "ProvisioningRequest",
        "metadata": {
            "name": "job-train-a1-prov-1",
            "namespace": "ml",
            "uid": "pr-1",
            "creationTimestamp": at(ago),
            "ownerReferences": [{"kind": "Workload", "uid": owner}],
        },
        "spec": {"provisioningClassName": "queued-provisioning.gke.io"},
        "status": {"conditions": list(conditions)},
    }


def local_queue(name: str = "gpus", **status: Any) -> Object:
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "LocalQueue",
        "metadata": {"name": name, "namespace": "ml", "uid": f"lq-{name}", "creationTimestamp": at(9999)},
        "spec": {"clusterQueue": "cq"},
        "status": status,
    }


def node(name: str = "n1", **more: Any) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "uid": f"node-{name}", **more.pop("metadata", {})},
        "spec": more.pop("spec", {}),
        "status": {"conditions": [condition("Ready")], **more},
    }


SPOT = MappingProxyType({"cloud.google.com/gke-spot": "true"})


def interrupted(
    name: str, reason: str = "TerminationByKubelet", *, code: int = 75, ago: float = 5.0, **more: Any
) -> Object:
    """Failed with DisruptionTarget, as a graceful node shutdown, an eviction or a preemption leaves it."""
    target = condition(
        "DisruptionTarget", "True", reason, "Pod was terminated in response to imminent node shutdown.", ago
    )
    return pod(
        name,
        phase="Failed",
        conditions=[target],
        containerStatuses=ended(code, ago=ago),
        node="n1",
        selector=more.pop("selector", SPOT),
        **more,
    )


TEMPLATE = {
    "metadata": {"labels": {"stayfast.dev/coupled": "false"}},
    "spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "x"}]},
}


def stopped(reason: str, *, ago: float = 600, **annotations: str) -> dict[str, Any]:
    """A workload that is out of its queue, as Kueue writes it."""
    found = workload(
        condition("Evicted", reason=reason, ago=ago), condition("QuotaReserved", "False", "Pending", ago=ago),
        condition("Admitted", "False", ago=ago),
    )  # fmt: skip
    found["spec"]["active"] = False
    found["metadata"]["annotations"] = {name.replace("_", "/"): value for name, value in annotations.items()}
    return found


def workers(width: int = 4, *, running: int = 2, waiting: int = 2, **more: Any) -> list[dict[str, Any]]:
    found = job(parallelism=width, completions=width, template=TEMPLATE, **more)
    return [
        found,
        *(pod(f"r{number}", phase="Running", node="n1", ago=5000) for number in range(running)),
        *(pod(f"w{number}", ago=2000) for number in range(waiting)),
    ]


def classes_map(*workloads: dict[str, Any], run: str = "train", **annotations: str) -> dict[str, Any]:
    rows = [{"capacity": "on-demand", "workload": item} for item in workloads]
    labels = {"stayfast.dev/run": run, "stayfast.dev/part": "classes"}
    metadata = {"name": f"{run}-classes", "uid": f"cm-{run}", "labels": labels, "annotations": annotations}
    return {"kind": "ConfigMap", "metadata": metadata, "data": {"classes.json": json.dumps(rows)}}


def numbered(number: int = 1, kind: str = "Job", name: str = "train") -> dict[str, Any]:
    spec: dict[str, Any] = {"parallelism": 1, "template": copy.deepcopy(TEMPLATE)}
    if kind == "JobSet":
        spec = {"replicatedJobs": []}
    version = {"Job": "batch/v1", "JobSet": "jobset.x-k8s.io/v1alpha2"}[kind]
    marks = {"stayfast.dev/class": str(number), "stayfast.dev/capacity": "on-demand", "stayfast.dev/usd-per-hour": "9"}
    metadata = {"name": name, "namespace": "ml", "labels": {"stayfast.dev/run": name}, "annotations": marks}
    return {"apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec}
