"""Who the run is: its namespace, its identity, its priority and its settings."""

from __future__ import annotations

from typing import Any

from stayfast.render.context import Controller, RenderContext
from stayfast.render.objects.environment import shared_variables
from stayfast.render.rendered_file import RenderedFile

INTERRUPTIBLE_PRIORITY = -5
"""Below everything that names no class, and above -10, under which the autoscaler does nothing for a pod."""
JOB_SET_PRIORITY = 0
"""JobSet (0.11 and later) copies a pod's priority into a label, where a negative number is not allowed."""


def namespace(outline: RenderContext) -> dict[str, Any]:
    """With Pod Security's strictest profile, which all our pods meet."""
    level = {f"pod-security.kubernetes.io/{mode}": "restricted" for mode in ("enforce", "audit", "warn")}
    return {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": outline.metadata(outline.namespace, shared=True, labels=level),
    }


def service_account(outline: RenderContext) -> dict[str, Any]:
    """The identity that buckets are opened with, through Workload Identity; no token is mounted."""
    email = outline.spec.service_account
    return {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": outline.metadata(
            outline.name, annotations={"iam.gke.io/gcp-service-account": email} if email else None
        ),
        "automountServiceAccountToken": False,
    }


def priority_class(outline: RenderContext) -> dict[str, Any]:
    """Interruptible work gives way first; a JobSet cannot be below 0, but it never takes another pod's place."""
    is_job_set = outline.form == Controller.JOBSET
    return {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": outline.metadata(outline.priority_class_name, shared=True),
        "value": JOB_SET_PRIORITY if is_job_set else INTERRUPTIBLE_PRIORITY,
        **({"preemptionPolicy": "Never"} if is_job_set else {}),
        "globalDefault": False,
        "description": f"interruptible work of run {outline.name}: resumes wherever it is stopped",
    }


def config_map(outline: RenderContext) -> dict[str, Any]:
    """Settings that the pods read at their start."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": outline.metadata(outline.name),
        "data": shared_variables(outline),
    }


NAMESPACE = RenderedFile(
    "00-namespace.yaml",
    "the namespace, with Pod Security `restricted`; leave it out where others own it",
    # The labels of the default namespace, which everybody uses, are not ours to set.
    lambda outline: [namespace(outline)] if outline.namespace != "default" else [],
)
ACCESS = RenderedFile(
    "10-access.yaml",
    "who the run is: service account, priority",
    lambda outline: [service_account(outline), *([priority_class(outline)] if outline.has_priority else [])],
)
CONFIG = RenderedFile(
    "20-config.yaml", "its settings", lambda outline: [config_map(outline)] if shared_variables(outline) else []
)
