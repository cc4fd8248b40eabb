"""What a real API server refuses before it keeps an object, as far as our manifests and scenarios could meet it.

Names and labels, what a Job must have, what may change on one that exists, Pod Security ``restricted``, and the objects
that a pod's creation depends on. Each refusal has the code and the words of Kubernetes 1.36, so that a scenario that a
control plane would fail fails here as well.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

Object = dict[str, Any]
Invalid = Callable[[str, str], None]
"""Field and message of a refusal with 422."""
Forbidden = Callable[[str], None]
"""Message of a refusal with 403."""

_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_LABEL = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
_KEY = re.compile(r"([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_LABEL_NAMES = ("Namespace", "Service")
ENFORCE = "pod-security.kubernetes.io/enforce"
_VOLUMES = {"configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "persistentVolumeClaim", "projected", "secret"}
NO_STATUS = {"ConfigMap", "Secret", "ServiceAccount", "PriorityClass", "StorageClass", "Event", "Role", "RoleBinding",
             "ClusterRole", "ClusterRoleBinding"}  # fmt: skip
"""Kinds without a status of their own; for all others it is written through its subresource alone."""
JOBSET_NAME = "jobset.sigs.k8s.io/jobset-name"
JOBSET_PRIORITY = "jobset.sigs.k8s.io/priority"


def check_metadata(value: Object, invalid: Invalid) -> None:
    """Names as DNS has them, labels as selectors can find them."""
    metadata = value["metadata"]
    name = str(metadata.get("name", ""))
    longest = 63 if value.get("kind") in _LABEL_NAMES else 253
    if not _NAME.fullmatch(name) or len(name) > longest:
        invalid("metadata.name", f"{name!r}: a lowercase RFC 1123 subdomain must consist of lower case alphanumeric")
    for key, text in (metadata.get("labels") or {}).items():
        if not _KEY.fullmatch(key) or not isinstance(text, str) or not _LABEL.fullmatch(text):
            invalid(
                "metadata.labels", f"{key}={text!r}: a valid label must be an empty string or consist of alphanumeric"
            )
    for key in metadata.get("annotations") or {}:
        if not _KEY.fullmatch(key):
            invalid("metadata.annotations", f"{key!r}: name part must consist of alphanumeric characters")


def check_job(value: Object, invalid: Invalid) -> None:
    """The rules that a rendered Job could break."""
    spec = value.get("spec") or {}
    pod = (spec.get("template") or {}).get("spec") or {}
    policy = spec.get("podFailurePolicy") or {}
    containers = pod.get("containers") or []
    if not containers:
        invalid("spec.template.spec.containers", "Required value")
    for number, container in enumerate(containers):
        for field in ("name", "image"):
            if not container.get(field):
                invalid(f"spec.template.spec.containers[{number}].{field}", "Required value")
    if policy and pod.get("restartPolicy") != "Never":
        invalid("spec.template.spec.restartPolicy", 'only "Never" is supported when podFailurePolicy is specified')
    if pod.get("restartPolicy") not in ("Never", "OnFailure"):
        invalid("spec.template.spec.restartPolicy", 'Required value: valid values: "OnFailure", "Never"')
    if policy and spec.get("podReplacementPolicy", "Failed") != "Failed":
        invalid("spec.podReplacementPolicy", 'supported values: "Failed"')
    if "backoffLimitPerIndex" in spec and spec.get("completionMode") != "Indexed":
        invalid("spec.backoffLimitPerIndex", "requires indexed completion mode")
    if spec.get("completionMode") == "Indexed" and spec.get("completions") is None:
        invalid("spec.completions", "Required value: when completion mode is Indexed")
    names = {container.get("name") for container in [*containers, *(pod.get("initContainers") or [])]}
    for number, rule in enumerate(policy.get("rules") or []):
        _check_rule(rule, f"spec.podFailurePolicy.rules[{number}]", names, spec, invalid)


def _check_rule(rule: Object, at: str, names: set[Any], spec: Object, invalid: Invalid) -> None:
    codes = rule.get("onExitCodes")
    if bool(codes) == bool(rule.get("onPodConditions")):
        invalid(at, "specifying one of OnExitCodes and OnPodConditions is required, and not both")
    if rule.get("action") not in ("FailJob", "FailIndex", "Ignore", "Count"):
        invalid(f"{at}.action", "supported values: Count, FailIndex, FailJob, Ignore")
    if rule.get("action") == "FailIndex" and "backoffLimitPerIndex" not in spec:
        invalid(f"{at}.action", "requires the backoffLimitPerIndex to be set")
    if codes:
        values = codes.get("values") or []
        if codes.get("operator") == "In" and 0 in values:
            invalid(f"{at}.onExitCodes.values[{values.index(0)}]", "must not be 0 for the In operator")
        if values != sorted(set(values)) or not values:
            invalid(f"{at}.onExitCodes.values", "must be ordered, without duplicates, and not empty")
        if codes.get("containerName") not in (None, *names):
            invalid(f"{at}.onExitCodes.containerName", "must be one of the container or initContainer names in the pod")
    for number, row in enumerate(rule.get("onPodConditions") or []):
        if not row.get("type") or row.get("status", "True") not in ("True", "False", "Unknown"):
            invalid(f"{at}.onPodConditions[{number}]", "Required value")


def check_job_change(before: Object, after: Object, invalid: Invalid) -> None:
    """A Job's pods stay as they are; ``parallelism`` and ``suspend`` may change."""
    old, new = before.get("spec") or {}, after.get("spec") or {}
    for field in ("template", "selector", "completionMode", "podFailurePolicy", "backoffLimitPerIndex", "managedBy"):
        if old.get(field) != new.get(field):
            invalid(f"spec.{field}", "field is immutable")
    elastic = new.get("completionMode") == "Indexed" and new.get("completions") == new.get("parallelism")
    if old.get("completions") != new.get("completions") and not elastic:
        invalid("spec.completions", "field is immutable")


def check_pod_status(before: Object, after: Object, invalid: Invalid) -> None:
    """A container that has ended does not run again where nothing restarts it; a phase is one of five."""
    status = after.get("status") or {}
    if status.get("phase") not in (None, "Pending", "Running", "Succeeded", "Failed", "Unknown"):
        invalid("status.phase", "unknown phase")
    rows = {row.get("name"): row for row in status.get("containerStatuses") or []}
    for number, row in enumerate((before.get("status") or {}).get("containerStatuses") or []):
        ended = "terminated" in (row.get("state") or {})
        now = rows.get(row.get("name"))
        never = (before.get("spec") or {}).get("restartPolicy") == "Never"
        if ended and never and now is not None and "terminated" not in (now.get("state") or {}):
            invalid(f"status.containerStatuses[{number}].state", "may not be transitioned to non-terminated state")


def check_pod(pod: Object, namespace: Object, accounts: set[str], classes: set[str], forbidden: Forbidden) -> None:
    """What admission asks before a pod is made."""
    spec = pod.get("spec") or {}
    name = pod["metadata"].get("name", "")
    account = spec.get("serviceAccountName") or "default"
    if account not in accounts:
        place = namespace["metadata"]["name"]
        forbidden(f'pods "{name}" is forbidden: error looking up service account {place}/{account}: serviceaccount '
                  f'"{account}" not found')  # fmt: skip
    priority = spec.get("priorityClassName")
    if priority and priority not in classes | {"system-cluster-critical", "system-node-critical"}:
        forbidden(f'pods "{name}" is forbidden: no PriorityClass with name {priority} was found')
    level = (namespace["metadata"].get("labels") or {}).get(ENFORCE)
    problems = list(violations(spec)) if level == "restricted" else []
    if problems:
        forbidden(f'pods "{name}" is forbidden: violates PodSecurity "restricted:latest": {", ".join(problems)}')


def label_jobset_pod(pod: Object, priority: int) -> Object:
    """JobSet's webhook for pods, from 0.11 on: it copies the priority into a label. The label is checked after it."""
    metadata = pod["metadata"]
    if JOBSET_NAME not in (metadata.get("annotations") or {}):
        return pod
    labels = {**(metadata.get("labels") or {}), JOBSET_PRIORITY: str(priority)}
    return {**pod, "metadata": {**metadata, "labels": labels}}


def violations(spec: Object) -> Iterator[str]:
    """Of the profile ``restricted``."""
    shared = spec.get("securityContext") or {}
    for field in ("hostNetwork", "hostPID", "hostIPC"):
        if spec.get(field):
            yield f"host namespaces ({field}=true)"
    for volume in spec.get("volumes") or []:
        kinds = set(volume) - {"name"}
        if not kinds <= _VOLUMES:
            yield f'restricted volume types (volume "{volume.get("name")}" uses {", ".join(sorted(kinds - _VOLUMES))})'
    for container in [*(spec.get("initContainers") or []), *(spec.get("containers") or [])]:
        own = container.get("securityContext") or {}
        title = f'container "{container.get("name")}"'
        if own.get("privileged") or any("hostPort" in port for port in container.get("ports") or []):
            yield f"privileged or hostPort ({title})"
        if own.get("allowPrivilegeEscalation") is not False:
            yield f"allowPrivilegeEscalation != false ({title})"
        capabilities = own.get("capabilities") or {}
        if "ALL" not in (capabilities.get("drop") or []) or set(capabilities.get("add") or []) - {"NET_BIND_SERVICE"}:
            yield f"unrestricted capabilities ({title})"
        if {**shared, **own}.get("runAsNonRoot") is not True:
            yield f"runAsNonRoot != true ({title})"
        if {**shared, **own}.get("runAsUser") == 0:
            yield f"runAsUser=0 ({title})"
        if ({**shared, **own}.get("seccompProfile") or {}).get("type") not in ("RuntimeDefault", "Localhost"):
            yield f"seccompProfile ({title})"
