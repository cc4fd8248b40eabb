"""Objects cut down to what is looked at, with everything of the type it should have.

Of 5,000 pods the rest would fill the memory; and a field of another type than Kubernetes gives it is as good as absent,
so that nothing behind this gate has to ask again.
"""

from __future__ import annotations

from typing import Any

from stayfast.cluster.kubernetes.resources import Resource
from stayfast.documents.lookup import mapping, mappings, texts

Object = dict[str, Any]

_TEXTS = ("name", "namespace", "uid", "creationTimestamp", "deletionTimestamp", "resourceVersion", "generateName")
_CONTAINER_ROWS = ("containerStatuses", "initContainerStatuses")


def trim(resource: Resource, item: Object) -> Object:
    """A new object; the one given is not changed."""
    spec, status = mapping(item.get("spec")), mapping(item.get("status"))
    found = {**item, "kind": resource.kind, "metadata": _metadata(mapping(item.get("metadata")))}
    if "spec" in item:
        found["spec"] = spec
    if "conditions" in status:
        status = {**status, "conditions": _conditions(status["conditions"])}
    if "status" in item:
        found["status"] = status
    if resource.kind == "Pod":
        found["spec"], found["status"] = _pod_spec(spec), _pod_status(status)
    elif resource.kind == "Node":
        found["spec"] = {"taints": mappings(spec.get("taints")), "unschedulable": spec.get("unschedulable") is True}
        found["status"] = {key: status[key] for key in ("conditions", "allocatable") if key in status}
    elif resource.kind == "Event":
        found["involvedObject"] = mapping(item.get("involvedObject"))
    elif resource.kind == "ConfigMap":
        found["data"] = texts(item.get("data"))
    return found


def _metadata(metadata: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {key: metadata[key] for key in _TEXTS if isinstance(metadata.get(key), str)}
    for key in ("labels", "annotations"):
        if metadata.get(key):
            found[key] = texts(metadata[key])
    if metadata.get("ownerReferences"):
        owners = mappings(metadata["ownerReferences"])
        found["ownerReferences"] = [row for row in owners if isinstance(row.get("uid"), str)]
    if metadata.get("finalizers"):
        listed = metadata["finalizers"]
        found["finalizers"] = [name for name in listed if isinstance(name, str)] if isinstance(listed, list) else []
    return found


def _conditions(value: Any) -> list[dict[str, Any]]:
    return [row for row in mappings(value) if isinstance(row.get("type"), str)]


def _pod_spec(spec: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if isinstance(spec.get("nodeName"), str):
        found["nodeName"] = spec["nodeName"]
    if spec.get("nodeSelector"):
        found["nodeSelector"] = texts(spec["nodeSelector"])
    if spec.get("schedulingGates"):
        found["schedulingGates"] = mappings(spec["schedulingGates"])
    return found


def _pod_status(status: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {
        key: status[key]
        for key in ("phase", "reason", "message", "startTime", "nominatedNodeName")
        if isinstance(status.get(key), str)
    }
    if "conditions" in status:
        found["conditions"] = status["conditions"]
    for key in _CONTAINER_ROWS:
        if key in status:
            found[key] = [
                {
                    "name": row.get("name"),
                    "state": {kind: mapping(inner) for kind, inner in mapping(row.get("state")).items()},
                    "lastState": {kind: mapping(inner) for kind, inner in mapping(row.get("lastState")).items()},
                }
                for row in mappings(status[key])
            ]
    return found
