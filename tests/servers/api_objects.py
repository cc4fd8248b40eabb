"""What the pretended API server keeps: objects with versions, a history for watches, field ownership, validation.

It does what a real one (v1.36) was seen to do on the calls we make, in the shapes that were recorded: strict field
validation as 400, the same mistake under server-side apply as 500, conflicts with the manager's name, the
eviction's 429, 410 for history that is gone. It is no cluster: nothing here schedules, counts or restarts.
"""

from __future__ import annotations

import copy
import datetime
import functools
import threading
import uuid
from collections.abc import Iterator
from typing import Any, NamedTuple

from servers import api_admission as admission
from stayfast.cluster.kubernetes import resources as known
from stayfast.cluster.kubernetes.resources import Resource
from stayfast.lint.schema.validator import has_schema, validate

Object = dict[str, Any]
BUILT_IN = [
    value
    for value in vars(known).values()
    if isinstance(value, Resource)
    and value.group in ("", "apps", "batch", "policy", "scheduling.k8s.io", "storage.k8s.io")
] + [
    Resource("", "v1", "secrets", "Secret"),
    Resource("", "v1", "persistentvolumes", "PersistentVolume", False),
    Resource("", "v1", "services", "Service"),
    Resource("rbac.authorization.k8s.io", "v1", "roles", "Role"),
    Resource("rbac.authorization.k8s.io", "v1", "rolebindings", "RoleBinding"),
    Resource("rbac.authorization.k8s.io", "v1", "clusterroles", "ClusterRole", False),
    Resource("rbac.authorization.k8s.io", "v1", "clusterrolebindings", "ClusterRoleBinding", False),
]
CUSTOM = [
    known.JOB_SETS,
    known.WORKLOADS,
    known.LOCAL_QUEUES,
    known.CLUSTER_QUEUES,
    known.PROVISIONING_REQUESTS,
    known.COMPUTE_CLASSES,
    Resource("kueue.x-k8s.io", "v1beta2", "resourceflavors", "ResourceFlavor", False),
    Resource("kueue.x-k8s.io", "v1beta2", "admissionchecks", "AdmissionCheck", False),
    Resource("kueue.x-k8s.io", "v1beta2", "provisioningrequestconfigs", "ProvisioningRequestConfig", False),
    Resource("monitoring.googleapis.com", "v1", "podmonitorings", "PodMonitoring", True),
]


class Refusal(Exception):
    """An answer of 400 and above."""

    def __init__(self, code: int, reason: str, message: str, **details: Any) -> None:
        super().__init__(message)
        following = details.pop("following", None)
        self.code = code
        self.status: Object = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {"continue": following} if following else {},
            "status": "Failure",
            "message": message,
            "reason": reason,
            "details": details,
            "code": code,
        }
        if not reason:
            del self.status["reason"]


class Happening(NamedTuple):
    """One entry of the history."""

    version: int
    type: str
    resource: Resource
    value: Object


def now() -> str:
    return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class Objects:
    """Thread-safe; every change gets the next version."""

    def __init__(self, resources: list[Resource]) -> None:
        self.resources = resources
        self.tables: dict[tuple[str, str], dict[tuple[str, str], Object]] = {}
        self.history: list[Happening] = []
        self.version = 100
        self.oldest = 100
        self.changed = threading.Condition(threading.RLock())
        self.owners: dict[str, dict[str, set[tuple[str, ...]]]] = {}
        self.keeps_bound_pods = False
        """As with kubelets: a pod that has a node stays until somebody confirms its end with a grace of 0."""

    def table(self, resource: Resource) -> dict[tuple[str, str], Object]:
        return self.tables.setdefault((resource.group, resource.plural), {})

    def get(self, resource: Resource, namespace: str, name: str) -> Object:
        found = self.table(resource).get((namespace if resource.namespaced else "", name))
        if found is None:
            raise Refusal(
                404, "NotFound", f'{resource.title} "{name}" not found', name=name, kind=resource.plural,
                **({"group": resource.group} if resource.group else {}),
            )  # fmt: skip
        return found

    def put(self, resource: Resource, value: Object, kind: str) -> Object:
        """Store a new state and tell the watches."""
        with self.changed:
            self.version += 1
            value["metadata"]["resourceVersion"] = str(self.version)
            key = (value["metadata"].get("namespace", "") if resource.namespaced else "", value["metadata"]["name"])
            if kind == "DELETED":
                self.table(resource).pop(key, None)
            else:
                self.table(resource)[key] = value
            self.history.append(Happening(self.version, kind, resource, copy.deepcopy(value)))
            self.changed.notify_all()
        return value

    def release(self, resource: Resource, item: Object, finalizer: str) -> None:
        """Take a finalizer away; what only waited for that is gone then."""
        left = copy.deepcopy(item)
        left["metadata"]["finalizers"] = [
            name for name in left["metadata"].get("finalizers") or [] if name != finalizer
        ]
        done = "deletionTimestamp" in left["metadata"] and not left["metadata"]["finalizers"]
        confirmed = left["metadata"].get("deletionGracePeriodSeconds", 0) == 0
        self.put(resource, left, "DELETED" if done and confirmed else "MODIFIED")

    def forget_history(self) -> None:
        """As when etcd compacts: older versions answer 410."""
        with self.changed:
            self.version += 1
            self.oldest = self.version
            self.history.clear()

    def since(self, version: int, resource: Resource) -> Iterator[Happening]:
        return iter([item for item in self.history if item.version > version and item.resource == resource])

    # -- writing

    def create(self, resource: Resource, namespace: str, value: Object, *, dry_run: bool = False) -> Object:
        value = copy.deepcopy(value)
        metadata = value.setdefault("metadata", {})
        if not metadata.get("name") and metadata.get("generateName"):
            metadata["name"] = metadata["generateName"] + uuid.uuid4().hex[:5]
        if resource.namespaced:
            self._check_namespace(namespace)
            metadata["namespace"] = namespace
        self._check(resource, value)
        key = (namespace if resource.namespaced else "", metadata["name"])
        if key in self.table(resource):
            raise Refusal(
                409, "AlreadyExists", f'{resource.title} "{metadata["name"]}" already exists', name=metadata["name"],
                kind=resource.plural,
            )  # fmt: skip
        metadata.update(uid=metadata.get("uid") or str(uuid.uuid4()), creationTimestamp=now(), generation=1)
        value.setdefault("apiVersion", resource.api_version)
        value.setdefault("kind", resource.kind)
        return value if dry_run else self.put(resource, value, "ADDED")

    def apply(self, resource: Resource, namespace: str, value: Object, query: dict[str, str]) -> Object:
        name, manager = value["metadata"]["name"], query.get("fieldManager", "")
        if not manager:
            raise Refusal(400, "BadRequest", "PatchOptions.meta.k8s.io is invalid: fieldManager: Required value")
        faults = [item for item in self._faults(value) if item.kind == "unknown"]
        if faults:
            path = "." + ".".join(str(part) for part in faults[0].path)
            title = f"{namespace}/{name}; {resource.api_version}, Kind={resource.kind}"
            raise Refusal(
                500, "", f"failed to create typed patch object ({title}): {path}: field not declared in schema"
            )
        current = self.table(resource).get((namespace if resource.namespaced else "", name))
        owners = self.owners.setdefault(f"{resource.title}/{namespace}/{name}", {})
        mine = set(leaves(value))
        if current is None:
            stored = self.create(resource, namespace, value, dry_run="dryRun" in query)
        else:
            if query.get("force") != "true":
                self._conflicts(resource, name, owners, manager, current, value, mine)
            merged = copy.deepcopy(current)
            for path in owners.get(manager, set()) - mine:
                drop(merged, path)
            overlay(merged, value)
            self._check(resource, merged)
            self._check_immutable(resource, current, merged)
            stored = merged
            if merged != current and "dryRun" not in query:
                merged["metadata"]["generation"] = merged["metadata"].get("generation", 1) + 1
                stored = self.put(resource, merged, "MODIFIED")
        if "dryRun" not in query:
            for other in owners.values():
                other -= mine
            owners[manager] = mine
        return stored

    def merge(self, resource: Resource, namespace: str, name: str, change: Object, query: dict[str, str]) -> Object:
        current = self.get(resource, namespace, name)
        self._check_version(resource, current, (change.get("metadata") or {}).get("resourceVersion"))
        merged = copy.deepcopy(current)
        merge_patch(merged, change)
        if query.get("fieldValidation") == "Strict":
            self._check(resource, merged)
        self._check_immutable(resource, current, merged)
        changed = set(leaves(change))
        owners = self.owners.setdefault(f"{resource.title}/{namespace}/{name}", {})
        owners.setdefault(query.get("fieldManager", "unknown"), set()).update(changed)
        return self.put(resource, merged, "MODIFIED")

    def delete(
        self, resource: Resource, namespace: str, name: str, uid: str | None, *, version: str | None = None,
        grace: int | None = None,
    ) -> Object:  # fmt: skip
        found = self.get(resource, namespace, name)
        self._check_version(resource, found, version)
        if uid and found["metadata"]["uid"] != uid:
            raise Refusal(
                409, "Conflict", f'Operation cannot be fulfilled on {resource.title} "{name}": the UID in the '
                f"precondition ({uid}) does not match the UID in record ({found['metadata']['uid']})",
            )  # fmt: skip
        bound = self.keeps_bound_pods and resource == known.PODS and found["spec"].get("nodeName")
        if (bound and grace != 0) or found["metadata"].get("finalizers"):
            leaving = copy.deepcopy(found)
            leaving["metadata"].setdefault("deletionTimestamp", now())
            leaving["metadata"]["deletionGracePeriodSeconds"] = 0 if not bound or grace == 0 else 30
            return self.put(resource, leaving, "MODIFIED")
        self.put(resource, copy.deepcopy(found), "DELETED")
        for other in self.resources:
            for value in list(self.table(other).values()):
                refs = value["metadata"].get("ownerReferences") or []
                if any(ref.get("uid") == found["metadata"]["uid"] for ref in refs):
                    self.delete(other, value["metadata"].get("namespace", ""), value["metadata"]["name"], None)
        return found

    def evict(self, namespace: str, name: str) -> Object:
        pod = self.get(known.PODS, namespace, name)
        labels = pod["metadata"].get("labels") or {}
        # Of no use to a budget: what has not started, has ended, or is leaving already.
        spared = (pod.get("status") or {}).get("phase") in ("Pending", "Succeeded", "Failed")
        spared = spared or bool(pod["metadata"].get("deletionTimestamp"))
        for budget in [] if spared else list(self.table(known.BUDGETS).values()):
            wanted = (budget["spec"].get("selector") or {}).get("matchLabels") or {}
            covers = budget["metadata"]["namespace"] == namespace and wanted.items() <= labels.items()
            status = budget.get("status") or {}
            if covers and status.get("disruptionsAllowed", 0) < 1:
                title = budget["metadata"]["name"]
                cause = (
                    f"The disruption budget {title} needs {status.get('desiredHealthy', 0)} healthy pods and has "
                    f"{status.get('currentHealthy', 0)} currently"
                )
                raise Refusal(
                    429, "TooManyRequests", "Cannot evict pod as it would violate the pod's disruption budget.",
                    causes=[{"reason": "DisruptionBudget", "message": cause}],
                )  # fmt: skip
        self.delete(known.PODS, namespace, name, None)
        return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}

    # -- checks

    @staticmethod
    def _check_version(resource: Resource, current: Object, version: str | None) -> None:
        """Whoever names the version that was looked at is refused when it is no longer the present one."""
        name = current["metadata"]["name"]
        if version is not None and version != current["metadata"].get("resourceVersion"):
            raise Refusal(
                409, "Conflict", f'Operation cannot be fulfilled on {resource.title} "{name}": the object has been '
                "modified; please apply your changes to the latest version and try again",
                name=name, kind=resource.plural,
            )  # fmt: skip

    def _check_namespace(self, namespace: str) -> None:
        if ("", namespace) not in self.table(known.NAMESPACES):
            raise Refusal(
                404, "NotFound", f'namespaces "{namespace}" not found', name=namespace, kind="namespaces"
            )  # fmt: skip

    @staticmethod
    def _faults(value: Object) -> list[Any]:
        version, kind = str(value.get("apiVersion", "")), str(value.get("kind", ""))
        return list(validate(value, version, kind, "1.36")) if has_schema(version, kind) else []

    def _check(self, resource: Resource, value: Object) -> None:
        faults = [item for item in self._faults(value) if item.kind in ("unknown", "type")]
        if faults:
            unknown = [".".join(str(part) for part in item.path) for item in faults if item.kind == "unknown"]
            what = ", ".join(f'unknown field "{path}"' for path in unknown) or faults[0].message
            raise Refusal(
                400, "BadRequest",
                f'{resource.kind} in version "{resource.version}" cannot be handled as a {resource.kind}: strict '
                f"decoding error: {what}",
            )  # fmt: skip
        refuse = functools.partial(invalid, resource, value)
        admission.check_metadata(value, refuse)
        if resource == known.JOBS:
            admission.check_job(value, refuse)

    @staticmethod
    def _check_immutable(resource: Resource, before: Object, after: Object) -> None:
        refuse = functools.partial(invalid, resource, after)
        if resource == known.JOBS:
            admission.check_job_change(before, after, refuse)
        elif resource == known.PODS:
            admission.check_pod_status(before, after, refuse)

    def admit_pod(self, namespace: str, pod: Object) -> Object:
        """What stands between a request for a pod and the pod: refuses it, or changes it."""
        place = self.table(known.NAMESPACES).get(("", namespace))
        if place is None:
            self._check_namespace(namespace)
            return pod
        accounts = {name for where, name in self.table(known.ACCOUNTS) if where == namespace} | {"default"}
        classes = {name: item.get("value", 0) for (_, name), item in self.table(known.PRIORITY_CLASSES).items()}

        def forbidden(message: str) -> None:
            raise Refusal(403, "Forbidden", message, name=pod["metadata"].get("name", ""), kind="pods")

        admission.check_pod(pod, place, accounts, set(classes), forbidden)
        return admission.label_jobset_pod(pod, classes.get(pod["spec"].get("priorityClassName"), 0))

    @staticmethod
    def _conflicts(
        resource: Resource, name: str, owners: dict[str, set[tuple[str, ...]]], manager: str, current: Object,
        value: Object, mine: set[tuple[str, ...]],
    ) -> None:  # fmt: skip
        found = [
            {
                "reason": "FieldManagerConflict",
                "message": f'conflict with "{other}" using {resource.api_version}',
                "field": "." + ".".join(path),
            }
            for other, paths in owners.items()
            if other != manager
            for path in sorted(paths & mine)
            if look(current, path) != look(value, path)
        ]
        if found:
            many = f"{len(found)} conflict{'s' * (len(found) > 1)}"
            raise Refusal(
                409, "Conflict", f'Apply failed with {many}: {found[0]["message"]}: {found[0]["field"]}', causes=found,
                name=name, kind=resource.plural,
            )  # fmt: skip


def invalid(resource: Resource, value: Object, field: str, message: str) -> None:
    name = value["metadata"].get("name", "")
    title = f"{resource.kind}.{resource.group}" if resource.group else resource.kind
    raise Refusal(
        422, "Invalid", f'{title} "{name}" is invalid: {field}: Invalid value: {message}', name=name,
        kind=resource.kind, causes=[{"reason": "FieldValueInvalid", "message": message, "field": field}],
    )  # fmt: skip


def leaves(value: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Paths of what is owned; a list is one leaf."""
    if isinstance(value, dict) and value:
        for key, inner in value.items():
            skipped = {(): ("apiVersion", "kind"), ("metadata",): ("name", "namespace")}.get(path, ())
            if key not in skipped:
                yield from leaves(inner, (*path, key))
    elif path:
        yield path


def look(value: Any, path: tuple[str, ...]) -> Any:
    for part in path:
        value = value.get(part) if isinstance(value, dict) else None
    return value


def drop(value: Any, path: tuple[str, ...]) -> None:
    holder = look(value, path[:-1])
    if isinstance(holder, dict):
        holder.pop(path[-1], None)


def overlay(target: Object, change: Object) -> None:
    for key, value in change.items():
        if isinstance(value, dict) and isinstance(target.get(key), dict):
            overlay(target[key], value)
        else:
            target[key] = copy.deepcopy(value)


def merge_patch(target: Object, change: Object) -> None:
    for key, value in change.items():
        if value is None:
            target.pop(key, None)
        elif isinstance(value, dict):
            if not isinstance(target.get(key), dict):
                target[key] = {}
            merge_patch(target[key], value)
        else:
            target[key] = copy.deepcopy(value)
