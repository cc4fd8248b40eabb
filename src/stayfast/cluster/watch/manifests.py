"""The watch inside a cluster: its Deployment, and exactly the rights that its options use."""

from __future__ import annotations

from typing import Any

from stayfast.cluster.kubernetes.client import Object
from stayfast.cluster.kubernetes.resources import (
    CONFIG_MAPS,
    DEPLOYMENTS,
    EVENTS,
    JOB_SETS,
    JOBS,
    NODES,
    PODS,
    PROVISIONING_REQUESTS,
    WORKLOADS,
    Resource,
)
from stayfast.cluster.watch.actions.action import rights_of
from stayfast.model import variables

NAME = "stayfast-watch"
WATCHED = (JOBS, JOB_SETS, DEPLOYMENTS, PODS, WORKLOADS, PROVISIONING_REQUESTS, CONFIG_MAPS, NODES)
_LABELS = {"app.kubernetes.io/name": NAME, "app.kubernetes.io/managed-by": "stayfast"}
_USER = 65532


def rights(actions: set[str], *, events: bool) -> dict[tuple[str, str], set[str]]:
    """(API group, resource) -> verbs, cluster-wide; the state's ConfigMap comes on top, by name."""
    found: dict[tuple[str, str], set[str]] = {}

    def grant(resource: Resource, *verbs: str) -> None:
        found.setdefault((resource.group, resource.plural), set()).update(verbs)

    for resource in WATCHED:
        grant(resource, "list", "watch")
    for resource, verb in rights_of(actions):
        grant(resource, verb.value)
    if events:
        grant(EVENTS, "create")
    return found


def manifests(namespace: str, image: str, actions: set[str], *, events: bool, webhook_secret: str = "") -> list[Object]:
    """Everything to apply; the namespace has to exist."""
    account = {"kind": "ServiceAccount", "name": NAME, "namespace": namespace}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": NAME}
    own_role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": NAME}
    granted = rights(actions, events=events)
    rules = [
        {"apiGroups": [group], "resources": [plural], "verbs": sorted(verbs)}
        for (group, plural), verbs in sorted(granted.items())
    ]
    own_rules = [{"apiGroups": [""], "resources": ["configmaps"], "resourceNames": [NAME], "verbs": ["get", "patch"]}]
    rbac = "rbac.authorization.k8s.io/v1"
    return [
        _object("v1", "ServiceAccount", namespace),
        _object("v1", "ConfigMap", namespace),
        _object(rbac, "ClusterRole", None, rules=rules),
        _object(rbac, "ClusterRoleBinding", None, roleRef=role, subjects=[account]),
        _object(rbac, "Role", namespace, rules=own_rules),
        _object(rbac, "RoleBinding", namespace, roleRef=own_role, subjects=[account]),
        _object("apps/v1", "Deployment", namespace, spec=_deployment(image, actions, events, webhook_secret)),
    ]


def _object(api_version: str, kind: str, namespace: str | None, **more: Any) -> Object:
    metadata: dict[str, Any] = {"name": NAME, "labels": dict(_LABELS)}
    if namespace is not None:
        metadata["namespace"] = namespace
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, **more}


def _deployment(image: str, actions: set[str], events: bool, webhook_secret: str) -> dict[str, Any]:
    pod = {
        "serviceAccountName": NAME,
        # It must not live on the machines whose end it reports.
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
            {"matchExpressions": [{"key": "cloud.google.com/gke-spot", "operator": "DoesNotExist"}]}]}}},
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": _USER,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [_container(image, actions, events, webhook_secret)],
    }  # fmt: skip
    return {
        "replicas": 1,
        "strategy": {"type": "Recreate"},  # two of them would tell everything twice
        "selector": {"matchLabels": {"app.kubernetes.io/name": NAME}},
        "template": {"metadata": {"labels": dict(_LABELS)}, "spec": pod},
    }


def _container(image: str, actions: set[str], events: bool, webhook_secret: str) -> dict[str, Any]:
    command = [
        "stayfast",
        "watch",
        "-A",
        "--state-configmap",
        NAME,
        "--metrics-host",
        "0.0.0.0",
        "--metrics-port",
        "9465",
    ]
    if actions:
        command += ["--act", ",".join(sorted(actions))]
    if events:
        command.append("--events")
    container: dict[str, Any] = {
        "name": "watch",
        "image": image,
        "command": command,
        "env": [{"name": "HOME", "value": "/tmp"}],
        "ports": [{"name": "metrics", "containerPort": 9465}],
        "livenessProbe": {"httpGet": {"path": "/healthz", "port": "metrics"}, "periodSeconds": 30},
        "resources": {"requests": {"cpu": "50m", "memory": "128Mi"}, "limits": {"memory": "512Mi"}},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
    }
    if webhook_secret:
        source = {"secretKeyRef": {"name": webhook_secret, "key": "url"}}
        container["env"].append({"name": variables.WEBHOOK_URL, "valueFrom": source})
    return container
