"""One thing to do, as data: why, and the requests that do it in order.

A deed is found by looking at the objects alone and leaves its mark in them, so that a watch that starts anew, or a
second one, finds the same state and goes on from there. Every change carries the version that was looked at: whoever
comes second is refused, and looks again.
"""

from __future__ import annotations

import enum
from typing import Any, NamedTuple

from stayfast.cluster.kubernetes.client import Object
from stayfast.cluster.kubernetes.resources import Resource
from stayfast.cluster.observed.objects import meta

PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 300.0, 21_600.0
"""How long an action waits before it does the same again to one run: doubled each time."""


class Verb(enum.StrEnum):
    """How an object is changed."""

    PATCH = "patch"
    DELETE = "delete"
    CREATE = "create"


class Step(NamedTuple):
    """One request."""

    verb: Verb
    resource: Resource
    namespace: str
    name: str
    body: dict[str, Any]
    """The merge patch, the new object, or the ``uid`` and ``resourceVersion`` that must still stand."""


class PlannedAction(NamedTuple):
    """One action on one object."""

    action: str
    namespace: str
    name: str
    uid: str
    sentence: str
    steps: tuple[Step, ...]
    value: str = ""

    @property
    def key(self) -> str:
        """Done once for as long as this stays the same."""
        return f"{self.action}/{self.uid}/{self.value}"


def patch(resource: Resource, item: Object, change: dict[str, Any], *, guarded: bool = True) -> Step:
    """Change an object, if it is still the one that was looked at."""
    body = {**change, "metadata": dict(change.get("metadata") or {})}
    version = meta(item).get("resourceVersion")
    if guarded and version:
        body["metadata"]["resourceVersion"] = version
    return Step(Verb.PATCH, resource, str(meta(item).get("namespace")), str(meta(item).get("name")), body)


def remove(resource: Resource, item: Object) -> Step:
    """Delete an object, if it is still the one that was looked at."""
    stands = {"uid": str(meta(item).get("uid") or ""), "resourceVersion": str(meta(item).get("resourceVersion") or "")}
    return Step(Verb.DELETE, resource, str(meta(item).get("namespace")), str(meta(item).get("name")), stands)


def annotation(item: Object, name: str) -> str:
    """Its value, or an empty text."""
    return str((meta(item).get("annotations") or {}).get(name) or "")
