"""Kinds of objects and where the API server keeps them; paths are built here and nowhere else."""

from __future__ import annotations

from typing import Any, NamedTuple
from urllib.parse import quote

from stayfast.errors import UsageError


class Resource(NamedTuple):
    """One kind of object, as discovery names it."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool = True

    @property
    def api_version(self) -> str:
        """As written in manifests."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def title(self) -> str:
        """As in role bindings and ``kubectl``: ``jobs.batch``."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    def path(self, namespace: str | None = None, name: str | None = None, subresource: str | None = None) -> str:
        """The path of the collection, of one object, or of a part of it; every piece is quoted."""
        parts = [group_path(self.group, self.version)]
        if self.namespaced and namespace is not None:
            parts += ["namespaces", segment(namespace, "namespace")]
        parts.append(self.plural)
        if name is not None:
            parts.append(segment(name, "name"))
            if subresource is not None:
                parts.append(subresource)
        return "/".join(parts)


def group_path(group: str, version: str) -> str:
    """Where a group version is discovered."""
    return f"/apis/{segment(group, 'group')}/{segment(version, 'version')}" if group else f"/api/{version}"


def segment(value: str, what: str) -> str:
    """One quoted piece of a path; an empty one or a dot would mean another place."""
    if value in ("", ".", "..") or "\0" in value:
        raise UsageError(f"{value!r} is no {what} of a Kubernetes object")
    return quote(value, safe="")


NAMESPACES = Resource("", "v1", "namespaces", "Namespace", False)
NODES = Resource("", "v1", "nodes", "Node", False)
PODS = Resource("", "v1", "pods", "Pod")
EVENTS = Resource("", "v1", "events", "Event")
CONFIG_MAPS = Resource("", "v1", "configmaps", "ConfigMap")
CLAIMS = Resource("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim")
QUOTAS = Resource("", "v1", "resourcequotas", "ResourceQuota")
ACCOUNTS = Resource("", "v1", "serviceaccounts", "ServiceAccount")
JOBS = Resource("batch", "v1", "jobs", "Job")
DEPLOYMENTS = Resource("apps", "v1", "deployments", "Deployment")
BUDGETS = Resource("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget")
PRIORITY_CLASSES = Resource("scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", False)
STORAGE_CLASSES = Resource("storage.k8s.io", "v1", "storageclasses", "StorageClass", False)
JOB_SETS = Resource("jobset.x-k8s.io", "v1alpha2", "jobsets", "JobSet")
WORKLOADS = Resource("kueue.x-k8s.io", "v1beta2", "workloads", "Workload")
LOCAL_QUEUES = Resource("kueue.x-k8s.io", "v1beta2", "localqueues", "LocalQueue")
CLUSTER_QUEUES = Resource("kueue.x-k8s.io", "v1beta2", "clusterqueues", "ClusterQueue", False)
PROVISIONING_REQUESTS = Resource("autoscaling.x-k8s.io", "v1", "provisioningrequests", "ProvisioningRequest")
COMPUTE_CLASSES = Resource("cloud.google.com", "v1", "computeclasses", "ComputeClass", False)


def from_discovery(group: str, version: str, row: dict[str, Any]) -> Resource:
    """From one row of an ``APIResourceList``."""
    return Resource(
        row.get("group") or group,
        row.get("version") or version,
        str(row.get("name", "")),
        str(row.get("kind", "")),
        bool(row.get("namespaced")),
    )
