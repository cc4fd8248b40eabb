"""Objects cut down to what is looked at, with everything of the type it should have.

Of 5,000 pods the rest would fill the memory; and a field of another type than Kubernetes gives it is as good as absent,
so that nothing behind this gate has to ask again.
"""

from __future__ import annotations

from typing import Any

from stayfast.cluster.kubernetes.resources import Resource

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
        found["spec"] = {"taints": as_mappings(spec.get("taints")), "unschedulable": spec.get("unschedulable") is True}
        found["status"] = {key: status[key] for key in ("conditions", "allocatable") if key in status}
    elif resource.kind == "Event":
        found["involvedObject"] = mapping(item.get("involvedObject"))
    elif resource.kind == "ConfigMap":
        found["data"] = as_strings(item.get("data"))
    return found


def mapping(value: Any) -> dict[str, Any]:
    """The value if it is a mapping, else an empty one."""
    return value if isinstance(value, dict) else {}


def as_mappings(value: Any) -> list[dict[str, Any]]:
    """The mappings of a list."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def as_strings(value: Any) -> dict[str, str]:
    """A mapping of texts, as labels and annotations are."""
    if not isinstance(value, dict):
        return {}
    return {key: item for key, item in value.items() if isinstance(item, str)}


def as_int(value: Any, default: int = 0) -> int:
    """The value if it is a whole number, else the default."""
    return value if isinstance(value, int) and not isinstance(value, bool) else default


def _metadata(metadata: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {key: metadata[key] for key in _TEXTS if isinstance(metadata.get(key), str)}
    for key in ("labels", "annotations"):
        if metadata.get(key):
            found[key] = as_strings(metadata[key])
    if metadata.get("ownerReferences"):
        owners = as_mappings(metadata["ownerReferences"])
        found["ownerReferences"] = [row for row in owners if isinstance(row.get("uid"), str)]
    if metadata.get("finalizers"):
        listed = metadata["finalizers"]
        found["finalizers"] = [name for name in listed if isinstance(name, str)] if isinstance(listed, list) else []
    return found


def _conditions(value: Any) -> list[dict[str, Any]]:
    return [row for row in as_mappings(value) if isinstance(row.get("type"), str)]


def _pod_spec(spec: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if isinstance(spec.get("nodeName"), str):
        found["nodeName"] = spec["nodeName"]
    if spec.get("nodeSelector"):
        found["nodeSelector"] = as_strings(spec["nodeSelector"])
    if spec.get("schedulingGates"):
        found["schedulingGates"] = as_mappings(spec["schedulingGates"])
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
                for row in as_mappings(status[key])
            ]
    return found
