"""What the API server answers when it says no, as our errors: one sentence, and the command that helps."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from stayfast.cluster.kubernetes.resources import Resource
from stayfast.cluster.kubernetes.transport import Response
from stayfast.errors import (
    ClusterAccessError,
    ClusterError,
    ClusterLoginError,
    ClusterUnreachableError,
    ObjectConflictError,
    ObjectMissingError,
    ObjectRefusedError,
    StayfastError,
)
from stayfast.text.safe import printable, redact

_UNKNOWN_FIELD = re.compile(r'unknown field "([^"]+)"')
_UNTYPED_FIELD = re.compile(r"\.([\w.\[\]-]+): field not declared in schema")
_HEALTH = "try again; how it is: kubectl get --raw '/readyz?verbose'"
_ADDRESS = "check that the address is an API server's: kubectl config view --minify"
_CRDS = {
    "kueue.x-k8s.io": "Kueue is not installed in this cluster",
    "jobset.x-k8s.io": "JobSet is not installed in this cluster",
    "autoscaling.x-k8s.io": "this cluster has no ProvisioningRequests",
    "cloud.google.com": "this cluster has no ComputeClasses",
}


class RequestContext(NamedTuple):
    """What the request was about."""

    verb: str
    resource: Resource | None = None
    namespace: str | None = None
    name: str | None = None
    login_help: str = ""

    @property
    def title(self) -> str:
        """``jobs.batch train in namespace ml``."""
        if self.resource is None:
            return "the API server's own pages"
        place = f" in namespace {self.namespace}" if self.namespace and self.resource.namespaced else ""
        name = f" {self.name}" if self.name else ""
        return f"{self.resource.title}{name}{place}"


class StatusCause(NamedTuple):
    """One entry of ``details.causes``."""

    field: str
    reason: str
    message: str


class VersionGoneError(ClusterError):
    """410: the server keeps no history that far back; list again, or go on from ``following``."""

    def __init__(self, message: str, *, following: str = "") -> None:
        super().__init__(message, help="try again")
        self.following = following


def status_of(answer: Response) -> dict[str, Any]:
    """The ``Status`` object of an error, or an empty one."""
    try:
        found = answer.json()
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def status_causes(status: dict[str, Any]) -> list[StatusCause]:
    """All causes that the server names."""
    details = status.get("details")
    rows = details.get("causes") if isinstance(details, dict) else None
    return [
        StatusCause(str(row.get("field", "")), str(row.get("reason", "")), str(row.get("message", "")))
        for row in rows or []
        if isinstance(row, dict)
    ]


def error_for_status(status_code: int, status: dict[str, Any], asked: RequestContext) -> StayfastError:
    """The error for an answer of 400 and above."""
    message = printable(redact(" ".join(str(status.get("message") or f"HTTP {status_code}").split())[:600]))
    if status_code == 401:
        return ClusterLoginError("the API server does not accept these credentials (401)", help=asked.login_help)
    if status_code == 403:
        return _forbidden(message, asked)
    if status_code in (404, 405):
        return _missing(message, status, asked)
    if status_code == 409:
        return _conflict(message, status, asked)
    if status_code == 410:
        metadata = status.get("metadata")
        following = metadata.get("continue") if isinstance(metadata, dict) else ""
        return VersionGoneError(f"{asked.title} changed faster than it could be read", following=str(following or ""))
    undeclared = _UNTYPED_FIELD.search(message)
    if status_code == 500 and undeclared:
        # Server-side apply answers an unknown field with 500 and no reason; it is the sender's mistake all the same.
        return ObjectRefusedError(f'unknown field "{undeclared[1]}" in {asked.title}', help="remove or rename it")
    if status_code in (400, 413, 415, 422):
        return _refused(message, asked)
    if status_code == 429:
        return ClusterUnreachableError(
            f"the API server is too busy to {asked.verb} {asked.title}: {message}", help=_HEALTH
        )
    if status_code >= 500:
        return ClusterUnreachableError(f"the API server failed to {asked.verb} {asked.title}: {message}", help=_HEALTH)
    return ClusterError(
        f"the API server answered {status_code} to {asked.verb} {asked.title}: {message}", help=_ADDRESS
    )


def _forbidden(message: str, asked: RequestContext) -> StayfastError:
    if "exceeded quota" in message or "violates PodSecurity" in message or "denied the request" in message:
        return ObjectRefusedError(f"{asked.title} is refused: {message}")
    if asked.resource is None:
        return ClusterAccessError(f"not allowed: {message}", help="run: kubectl auth whoami")
    place = f" -n {asked.namespace}" if asked.namespace and asked.resource.namespaced else ""
    if not asked.namespace and asked.resource.namespaced:
        place = " -A"
    return ClusterAccessError(
        f"not allowed to {asked.verb} {asked.title}: {message}",
        help=f"check with: kubectl auth can-i {asked.verb} {asked.resource.title}{place}",
    )


def _missing(message: str, status: dict[str, Any], asked: RequestContext) -> StayfastError:
    resource = asked.resource
    is_kind = not isinstance(status.get("details"), dict) or not status["details"].get("name")
    if resource is not None and resource.group in _CRDS and is_kind:
        return ObjectMissingError(
            f"{_CRDS[resource.group]} ({resource.title} is unknown)", help="run: stayfast check-cluster"
        )
    if resource is not None and status.get("details", {}).get("kind") == "namespaces":
        return ObjectMissingError(
            f"there is no namespace {asked.namespace}", help=f"run: kubectl create namespace {asked.namespace}"
        )
    return ObjectMissingError(f"there is no {asked.title} ({message})")


def _conflict(message: str, status: dict[str, Any], asked: RequestContext) -> StayfastError:
    found = status_causes(status)
    owned = [cause for cause in found if cause.reason == "FieldManagerConflict"]
    if owned:
        manager = re.search(r'conflict with "([^"]+)"', owned[0].message)
        who = manager[1] if manager else "somebody else"
        fields = ", ".join(cause.field for cause in owned[:4]) + (", …" if len(owned) > 4 else "")
        return ObjectConflictError(
            f"{asked.title}: {who} manages {fields}", help="add --force-conflicts to take the fields over"
        )
    return ObjectConflictError(f"{asked.title}: {message}")


def _refused(message: str, asked: RequestContext) -> StayfastError:
    unknown = _UNKNOWN_FIELD.findall(message)
    if unknown:
        names = ", ".join(f'"{name}"' for name in dict.fromkeys(unknown))
        what = "unknown field" if len(set(unknown)) == 1 else "unknown fields"
        return ObjectRefusedError(f"{asked.title}: {what} {names}", help="remove or rename it: stayfast lint names it")
    return ObjectRefusedError(f"{asked.title} is refused: {message}")
