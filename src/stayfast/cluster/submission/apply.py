"""Applying a run: created, updated, left alone, or replaced; the same submit twice changes nothing."""

from __future__ import annotations

import enum
from typing import NamedTuple

from stayfast.clock import Clock
from stayfast.cluster.kubernetes.client import Client, Object
from stayfast.cluster.kubernetes.resources import NAMESPACES, Resource
from stayfast.cluster.observed.objects import condition, meta
from stayfast.cluster.submission.preflight import TargetedObject
from stayfast.errors import ClusterUnreachableError, ObjectRefusedError
from stayfast.model.kubernetes_objects import identity
from stayfast.model.labels import SPEC_DIGEST

GONE_SECONDS = 900.0


class Action(enum.StrEnum):
    """What a submit does to the workload."""

    CREATE = "create"
    UPDATE = "update"
    NOTHING = "nothing"
    REPLACE = "replace"


class Decision(NamedTuple):
    """The action, and why."""

    action: Action
    because: str
    existing: Object | None = None


def decide(client: Client, workload: TargetedObject, *, replace: bool) -> Decision:
    """Compare with what is there."""
    name = str(meta(workload.value)["name"])
    existing = client.find(workload.resource, workload.namespace, name)
    if existing is None:
        return Decision(Action.CREATE, "it is new")
    if replace:
        return Decision(Action.REPLACE, "as asked with --replace", existing)
    same = _digest(existing) == _digest(workload.value)
    if condition(existing, "Failed"):
        return Decision(Action.REPLACE, "the one before has failed; the new one resumes from its checkpoint", existing)
    if condition(existing, "Complete") or condition(existing, "Completed"):
        if same:
            return Decision(Action.NOTHING, "it has finished; --replace starts it again", existing)
        return Decision(Action.REPLACE, "the one before has finished", existing)
    if same:
        return Decision(Action.NOTHING, "it is submitted already and unchanged", existing)
    return Decision(Action.UPDATE, "its file has changed", existing)


def _digest(value: Object) -> str | None:
    found = (meta(value).get("annotations") or {}).get(SPEC_DIGEST)
    return found if isinstance(found, str) else None


def check_update(client: Client, workload: TargetedObject, decision: Decision, *, force: bool) -> None:
    """A running Job's pods cannot be changed in place: say so before anything is applied."""
    if decision.action is not Action.UPDATE:
        return
    try:
        client.apply(workload.resource, workload.namespace, workload.value, dry_run=True, force=force)
    except ObjectRefusedError as error:
        if "immutable" not in error.message:
            raise
        raise ObjectRefusedError(
            f"{identity(workload.value)} is running, and its pods cannot be changed in place",
            help="add --replace: it saves, ends, and the changed one resumes from the checkpoint",
        ) from error


def apply_all(
    client: Client,
    placed: list[TargetedObject],
    workload: TargetedObject,
    decision: Decision,
    *,
    clock: Clock,
    force: bool = False,
) -> list[tuple[str, str]]:
    """Apply in order; returns what happened to each object."""
    done = []
    for item in placed:
        if item.resource == NAMESPACES and client.find(NAMESPACES, None, str(meta(item.value)["name"])) is None:
            client.apply(item.resource, None, item.value, force=force)
            done.append((identity(item.value), "created"))
            continue
        if item is workload:
            if decision.action is Action.NOTHING:
                done.append((identity(item.value), "unchanged"))
                continue
            if decision.action is Action.REPLACE and decision.existing is not None:
                delete_and_wait(client, item.resource, item.namespace, decision.existing, clock=clock)
        before = client.find(item.resource, item.namespace, str(meta(item.value)["name"]))
        after = client.apply(item.resource, item.namespace, item.value, force=force)
        done.append((identity(item.value), _result(before, after)))
    return done


def _result(before: Object | None, after: Object) -> str:
    if before is None:
        return "created"
    same = meta(before).get("resourceVersion") == meta(after).get("resourceVersion")
    return "unchanged" if same else "updated"


def delete_and_wait(
    client: Client, resource: Resource, namespace: str | None, existing: Object, *, clock: Clock
) -> None:
    """Delete, and wait until its pods have saved and gone: two writers at once would only lose each other's time."""
    name, uid = str(meta(existing)["name"]), str(meta(existing).get("uid") or "")
    client.delete(resource, namespace, name, uid=uid, foreground=True)
    deadline = clock.monotonic() + GONE_SECONDS
    pause = 0.5
    while True:
        found = client.find(resource, namespace, name)
        if found is None or meta(found).get("uid") != uid:
            return
        if clock.monotonic() >= deadline:
            raise ClusterUnreachableError(
                f"{identity(existing)} is still there {GONE_SECONDS:.0f} s after it was deleted",
                help=f"run: stayfast explain {name}",
            )
        clock.sleep(pause)
        pause = min(5.0, pause * 1.5)
