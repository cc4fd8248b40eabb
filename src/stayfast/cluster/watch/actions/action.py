"""What the watch may do by itself, each by name and only when asked: as data, why, and the requests in order.

A deed is found by looking at the objects alone and leaves its mark in them, so that a watch that starts anew, or a
second one, finds the same state and goes on from there. Every change carries the version that was looked at: whoever
comes second is refused, and looks again.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Iterator, Set
from typing import Any, NamedTuple

from stayfast.cluster.diagnosis.diagnose import Diagnoses
from stayfast.cluster.kubernetes.client import Client, Object
from stayfast.cluster.kubernetes.resources import JOB_SETS, JOBS, Resource
from stayfast.cluster.observed.objects import meta
from stayfast.cluster.observed.runs import RunSummary, summarize
from stayfast.cluster.observed.snapshot import Snapshot
from stayfast.cluster.watch.alerts import Thresholds
from stayfast.errors import ClusterError, ObjectConflictError
from stayfast.registry import Registry

PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 300.0, 21_600.0
"""How long an action waits before it does the same again to one run: doubled each time."""
MACHINES_WAITED_FOR = ("waiting-for-capacity", "provisioning-stuck", "provisioning-not-accepted")
"""Diagnoses of a run that Kueue would start if there were machines."""


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


class WatchInput(NamedTuple):
    """What an action may look at."""

    observed: Snapshot
    rows: list[RunSummary]
    diagnoses: Diagnoses
    thresholds: Thresholds
    allowed: Set[str]
    """The names of the actions that this watch may take."""

    def roots(self) -> Iterator[tuple[RunSummary, Object]]:
        """The runs whose Job or JobSet was seen, with it."""
        found = self.observed.by_uid(JOB_SETS, JOBS)
        for row in self.rows:
            if row.uid in found:
                yield row, found[row.uid]


class Action(NamedTuple):
    """Something that the watch may do by itself, when asked by name."""

    name: str
    about: str
    rights: tuple[tuple[Resource, Verb], ...]
    """The requests that it makes, beyond looking."""
    find: Callable[[WatchInput], Iterable[PlannedAction]]
    """Pure: what is to be done now, from what was looked at."""


_PLACE = "stayfast.cluster.watch.actions"
ACTIONS: Registry[Action] = Registry(
    "stayfast.actions",
    {
        "copy-lease": f"{_PLACE}.copy_lease:ACTION",
        "requeue-lease": f"{_PLACE}.requeue_lease:ACTION",
        "reactivate-workload": f"{_PLACE}.reactivate_workload:ACTION",
        "recreate-request": f"{_PLACE}.recreate_request:ACTION",
        "split-parallelism": f"{_PLACE}.split_parallelism:ACTION",
        "fall-back": f"{_PLACE}.fall_back:ACTION",
    },
)


def find_actions(names: Set[str]) -> list[Action]:
    """Those of these names, ours first and in the order of the table."""
    known = ACTIONS.names()
    ordered = [*(name for name in known if name in names), *sorted(names - set(known))]
    return [action for name in ordered if (action := ACTIONS.find(name)) is not None]


def plan_actions(
    observed: Snapshot,
    allowed: Set[str],
    thresholds: Thresholds | None = None,
    *,
    rows: list[RunSummary] | None = None,
    diagnoses: Diagnoses | None = None,
) -> list[PlannedAction]:
    """What is to be done now, of what is allowed; ``rows`` and ``diagnoses`` if they are worked out already."""
    look = WatchInput(
        observed, summarize(observed) if rows is None else rows, diagnoses or Diagnoses(observed),
        thresholds or Thresholds(), allowed,
    )  # fmt: skip
    return _one_change_per_object([deed for action in find_actions(allowed) for deed in action.find(look)])


def _one_change_per_object(deeds: list[PlannedAction]) -> list[PlannedAction]:
    """One change to an object at a time: the second would be refused, for its version is no longer the one seen."""
    taken: set[tuple[str, str, str]] = set()
    found = []
    for deed in deeds:
        places = {(step.resource.title, step.namespace, step.name) for step in deed.steps}
        if not places & taken:
            found.append(deed)
            taken |= places
    return found


def carry_out(client: Client, deed: PlannedAction, served: Callable[[Resource], Resource]) -> str | None:
    """Nothing when done, else why not; ``served`` gives the version of a kind that this server has."""
    for step in deed.steps:
        try:
            _take(client, step, served(step.resource))
        except ObjectConflictError as error:
            return f"{error.message}; somebody else was faster, it is looked at again"
        except ClusterError as error:
            return error.message
    return None


def _take(client: Client, step: Step, resource: Resource) -> None:
    match step.verb:
        case Verb.PATCH:
            client.merge(resource, step.namespace, step.name, step.body)
        case Verb.DELETE:
            version = step.body.get("resourceVersion")
            client.delete(resource, step.namespace, step.name, uid=step.body.get("uid"), version=version)
        case Verb.CREATE:
            client.create(resource, step.namespace, step.body)


def rights_of(actions: Set[str]) -> list[tuple[Resource, Verb]]:
    """What the actions need beyond looking."""
    return [right for action in find_actions(actions) for right in action.rights]
