"""A run whose class does not come, moved to the next class of its plan.

A Job's pods cannot be changed once it has started, so the workload is deleted and made anew from what ``submit`` left.
That loses nothing, because it is done only while none of its pods has a machine: what waits has no state, and what ran
before is in the checkpoint. The intention is written down first (on the ConfigMap), then the old
workload is deleted, and the new one is made when it has gone: a watch that stops anywhere in between is continued by
the next.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import NamedTuple

from stayfast.cluster.kubernetes.client import Object
from stayfast.cluster.kubernetes.resources import CONFIG_MAPS, JOB_SETS, JOBS, PODS, Resource
from stayfast.cluster.observed.objects import meta, spec_of
from stayfast.cluster.observed.pod_endings import ending_of
from stayfast.cluster.observed.runs import Phase, RunSummary
from stayfast.cluster.observed.snapshot import Snapshot
from stayfast.cluster.watch.actions.action import (
    MACHINES_WAITED_FOR,
    Action,
    PlannedAction,
    Step,
    Verb,
    WatchInput,
    annotation,
    patch,
    remove,
)
from stayfast.model.labels import CLASS_NUMBER, CLASSES, CLASSES_KEY, FALLING_BACK, PART_LABEL, RUN_LABEL
from stayfast.text.safe import line
from stayfast.text.units import duration

FALL_BACK = "fall-back"
PATIENCE_FACTOR = 2.0
"""Times the limit of the pending alert: somebody who was told has as long again to decide otherwise."""
_KINDS: dict[str, Resource] = {"Job": JOBS, "JobSet": JOB_SETS}

Key = tuple[str, str]


class NextClass(NamedTuple):
    """One class to fall back to."""

    capacity: str
    workload: Object


def fall_back(look: WatchInput) -> Iterator[PlannedAction]:
    """Begin where it is time, and finish what was begun before."""
    begun = starts(look)
    for deeds in begun.values():
        yield from deeds
    standing: dict[Key, list[Object]] = {}
    for row, root in look.roots():
        standing.setdefault((row.namespace, row.run), []).append(root)
    for key, config_map in plans_of(look.observed).items():
        yield from _finish(look.observed, config_map, standing.get(key, []), due=key in begun)


def starts(look: WatchInput) -> dict[Key, list[PlannedAction]]:
    """Runs that begin to leave their class now."""
    plans = plans_of(look.observed)
    found: dict[Key, list[PlannedAction]] = {}
    for row, root in look.roots():
        key = (row.namespace, row.run)
        deeds = list(_start(look, row, root, plans[key])) if key in plans else []
        if deeds:
            found.setdefault(key, []).extend(deeds)
    return found


def plans_of(observed: Snapshot) -> dict[Key, Object]:
    """Namespace and run -> what submit left for falling back."""
    return {
        (str(meta(item).get("namespace")), str((meta(item).get("labels") or {}).get(RUN_LABEL))): item
        for item in observed.of(CONFIG_MAPS)
        if (meta(item).get("labels") or {}).get(PART_LABEL) == CLASSES
    }


def _start(look: WatchInput, row: RunSummary, root: Object, config_map: Object) -> Iterator[PlannedAction]:
    """Write down the intention and delete what waits."""
    classes, number = read_classes(config_map), class_number(root)
    if number >= len(classes) or meta(root).get("deletionTimestamp") or not _is_due(look, row, root):
        return
    following = classes[number]
    kind = _KINDS.get(str(root.get("kind")))
    if kind is None or _identity(following.workload) != _identity(root):
        return
    note = {"metadata": {"annotations": {FALLING_BACK: str(number + 1)}}}
    waited = duration(row.pending_seconds)
    sentence = line(f"{row.run} leaves {row.capacity or 'its class'} after {waited} for {following.capacity}")
    yield PlannedAction(
        FALL_BACK, row.namespace, row.name, row.uid, sentence,
        (patch(CONFIG_MAPS, config_map, note), remove(kind, root)), str(number + 1),
    )  # fmt: skip


def _identity(workload: Object) -> tuple[object, ...]:
    return (workload.get("kind"), meta(workload).get("namespace"), meta(workload).get("name"))


def _is_due(look: WatchInput, row: RunSummary, root: Object) -> bool:
    limit_seconds = look.thresholds.pending_limit(row.capacity)
    has_machine = any(row.pods.get(state) for state in ("running", "starting", "draining"))
    if has_machine or row.pending_seconds <= PATIENCE_FACTOR * limit_seconds:
        return False
    if row.phase is Phase.PENDING:
        return True
    # In a queue: only the wait for machines counts; whose turn it is to use the quota is somebody's decision.
    return row.phase is Phase.QUEUED and look.diagnoses.of(root).code in MACHINES_WAITED_FOR


def _finish(observed: Snapshot, config_map: Object, roots: list[Object], *, due: bool) -> Iterator[PlannedAction]:
    """Make the workload that was decided on, when the one before has gone; or forget the intention.

    ``due`` says that the one before still stands and is still to go.
    """
    wanted = annotation(config_map, FALLING_BACK)
    if not wanted or due or any(meta(root).get("deletionTimestamp") for root in roots):
        return
    classes = read_classes(config_map)
    number = int(wanted) if wanted.isdecimal() and len(wanted) < 4 else 0
    run = str((meta(config_map).get("labels") or {}).get(RUN_LABEL))
    namespace, uid = str(meta(config_map).get("namespace")), str(meta(config_map).get("uid"))
    forget = patch(CONFIG_MAPS, config_map, {"metadata": {"annotations": {FALLING_BACK: None}}})
    version = meta(config_map).get("resourceVersion")
    if roots or not 0 < number <= len(classes):
        done = bool(roots) and class_number(roots[0]) >= number
        words = line(f"{run} has fallen back" if done else f"{run} does not fall back to class {wanted} any more")
        yield PlannedAction(FALL_BACK, namespace, run, uid, words, (forget,), f"{wanted}:over@{version}")
        return
    chosen = classes[number - 1]
    if _is_known(observed, chosen) and not _holds_machines(observed, namespace, run):
        yield _make(config_map, chosen, run, forget, number)


def _make(config_map: Object, chosen: NextClass, run: str, forget: Step, number: int) -> PlannedAction:
    namespace, uid = str(meta(config_map).get("namespace")), str(meta(config_map).get("uid"))
    kind, name = _KINDS[str(chosen.workload["kind"])], str(meta(chosen.workload).get("name"))
    version = meta(config_map).get("resourceVersion")
    make = Step(Verb.CREATE, kind, namespace, name, chosen.workload)
    return PlannedAction(
        FALL_BACK, namespace, run, uid, line(f"{run} is made anew on {chosen.capacity}"), (make, forget),
        f"{number}:made@{version}",
    )  # fmt: skip


def _holds_machines(observed: Snapshot, namespace: str, run: str) -> bool:
    """A pod of the run that may still write: the next one waits for its end."""
    for pod in observed.of(PODS):
        same = meta(pod).get("namespace") == namespace and (meta(pod).get("labels") or {}).get(RUN_LABEL) == run
        if same and ending_of(pod) is None and spec_of(pod).get("nodeName"):
            return True
    return False


def _is_known(observed: Snapshot, chosen: NextClass) -> bool:
    """Not seeing Jobs is not the same as there being none."""
    return not {_KINDS[str(chosen.workload["kind"])].title, PODS.title} & observed.unseen.keys()


def read_classes(config_map: Object) -> list[NextClass]:
    """What submit wrote; anything else is as good as nothing."""
    try:
        rows = json.loads((config_map.get("data") or {}).get(CLASSES_KEY) or "[]")
    except (ValueError, RecursionError):
        return []
    found = []
    for row in rows if isinstance(rows, list) else []:
        workload = row.get("workload") if isinstance(row, dict) else None
        if not isinstance(workload, dict) or workload.get("kind") not in ("Job", "JobSet"):
            return []
        same_run = (meta(workload).get("labels") or {}).get(RUN_LABEL) == (meta(config_map).get("labels") or {}).get(
            RUN_LABEL
        )
        # Whoever may write the ConfigMap must not make the watch write elsewhere.
        if not same_run or meta(workload).get("namespace") != meta(config_map).get("namespace"):
            return []
        found.append(NextClass(str(row.get("capacity")), workload))
    return found


def class_number(workload: Object) -> int:
    """Which class of the plan it is on; the first is 0."""
    text = str((meta(workload).get("annotations") or {}).get(CLASS_NUMBER) or "")
    return int(text) if text.isdecimal() and len(text) < 4 else 0


ACTION = Action(
    FALL_BACK,
    "a run that waits twice too long and has no machine: the next class (submit --fall-back)",
    (
        (CONFIG_MAPS, Verb.PATCH),
        (JOBS, Verb.DELETE),
        (JOBS, Verb.CREATE),
        (JOB_SETS, Verb.DELETE),
        (JOB_SETS, Verb.CREATE),
    ),
    fall_back,
)
