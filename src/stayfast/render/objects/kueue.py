"""Kueue's chain for queued flex-start: all nodes of a gang or none.

``v1beta2``: Kueue stops serving ``v1beta1`` with 0.20 (kubernetes-sigs/kueue#13957 and #14558, August 2026).
"""

from __future__ import annotations

from typing import Any

from stayfast.capacity.machines.gke_keys import FLEX_START, PROVISIONING_REQUEST, QUEUE_LABEL, RUN_DURATION
from stayfast.render.context import RenderContext
from stayfast.render.objects.placement import compute_class
from stayfast.render.objects.pod import cpu_request, memory_request_gib, requests
from stayfast.render.rendered_file import RenderedFile

API_VERSION = "kueue.x-k8s.io/v1beta2"
RETRIES = 1000
"""After that many refused requests Kueue gives the workload up; its default, 3, is an afternoon."""


def queue_labels(outline: RenderContext) -> dict[str, str]:
    """For the workload object itself: Kueue does not look at pod templates."""
    return {QUEUE_LABEL: outline.name} if outline.is_queued else {}


def queue_annotations(outline: RenderContext) -> dict[str, str]:
    """How long the machines are booked; a text, as all annotations."""
    return {RUN_DURATION: str(outline.lease_seconds)} if outline.is_queued else {}


def queue_objects(outline: RenderContext) -> list[dict[str, Any]]:
    """Flavor, provisioning, check and the two queues."""
    return [
        resource_flavor(outline),
        provisioning_config(outline),
        admission_check(outline),
        cluster_queue(outline),
        local_queue(outline),
    ]


def resource_flavor(outline: RenderContext) -> dict[str, Any]:
    """What kind of node the quota is for."""
    return _shared(
        outline,
        "ResourceFlavor",
        {
            "nodeLabels": {**outline.accelerator_labels, FLEX_START: "true"},
        },
    )


def provisioning_config(outline: RenderContext) -> dict[str, Any]:
    """GKE's class for queued requests; pods then run on the nodes of their own request."""
    return _shared(
        outline,
        "ProvisioningRequestConfig",
        {
            "provisioningClassName": "queued-provisioning.gke.io",
            "managedResources": [outline.resource],
            "retryStrategy": {"backoffLimitCount": RETRIES, "backoffBaseSeconds": 60, "backoffMaxSeconds": 1800},
            "podSetUpdates": {
                "nodeSelector": [
                    {
                        "key": PROVISIONING_REQUEST,
                        "valueFromProvisioningClassDetail": "ResizeRequestName",
                    }
                ]
            },
        },
    )


def admission_check(outline: RenderContext) -> dict[str, Any]:
    """Holds the workload back until its ProvisioningRequest is fulfilled."""
    return _shared(
        outline,
        "AdmissionCheck",
        {
            "controllerName": "kueue.x-k8s.io/provisioning-request",
            "parameters": {
                "apiGroup": "kueue.x-k8s.io",
                "kind": "ProvisioningRequestConfig",
                "name": outline.cluster_name,
            },
        },
    )


def cluster_queue(outline: RenderContext) -> dict[str, Any]:
    """Quota for exactly this gang, usable from its namespace only."""
    nodes, machine = outline.spec.nodes, outline.machine
    quotas = {
        "cpu": str(cpu_request(machine) * nodes),
        "memory": f"{memory_request_gib(machine) * nodes}Gi",
        "ephemeral-storage": f"{int(requests(outline)['ephemeral-storage'].removesuffix('Gi')) * nodes}Gi",
        outline.resource: str(machine.count * nodes),
    }
    return _shared(
        outline,
        "ClusterQueue",
        {
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": outline.namespace}},
            "resourceGroups": [
                {
                    "coveredResources": list(quotas),
                    "flavors": [
                        {
                            "name": outline.cluster_name,
                            "resources": [{"name": name, "nominalQuota": quota} for name, quota in quotas.items()],
                        }
                    ],
                }
            ],
            "admissionChecksStrategy": {"admissionChecks": [{"name": outline.cluster_name}]},
        },
    )


def local_queue(outline: RenderContext) -> dict[str, Any]:
    """The queue that the workload names."""
    return {
        "apiVersion": API_VERSION,
        "kind": "LocalQueue",
        "metadata": outline.metadata(outline.name),
        "spec": {"clusterQueue": outline.cluster_name},
    }


def _shared(outline: RenderContext, kind: str, spec: dict[str, Any]) -> dict[str, Any]:
    metadata = outline.metadata(outline.cluster_name, shared=True)
    return {"apiVersion": API_VERSION, "kind": kind, "metadata": metadata, "spec": spec}


def capacity_objects(outline: RenderContext) -> list[dict[str, Any]]:
    """A ComputeClass, Kueue's chain, or nothing where the node selector says enough."""
    if outline.class_rows:
        return [compute_class(outline)]
    return queue_objects(outline) if outline.is_queued else []


CAPACITY = RenderedFile("40-capacity.yaml", "which machines, and how they are asked for", capacity_objects)
