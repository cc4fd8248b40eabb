"""Independent workers that wait for more machines than there are: fewer at a time.

``parallelism`` is one of the few fields of a live Job that may change, and the Job controller ends waiting pods before
running ones. Only pods that say ``stayfast.dev/coupled: "false"`` are touched: the ranks of a gang count each other.
"""

from __future__ import annotations

from collections.abc import Iterator

from stayfast.capacity.machines.gke_keys import QUEUE_LABEL
from stayfast.clock import seconds_at, to_rfc3339
from stayfast.cluster.kubernetes.client import Object
from stayfast.cluster.kubernetes.resources import JOBS, PODS
from stayfast.cluster.observed.kueue_workload import is_suspended
from stayfast.cluster.observed.objects import meta, spec_of
from stayfast.cluster.observed.pod_endings import ending_of
from stayfast.cluster.observed.runs import RunSummary
from stayfast.cluster.observed.snapshot import Snapshot
from stayfast.cluster.watch.actions.action import (
    MACHINES_WAITED_FOR,
    Action,
    PlannedAction,
    Verb,
    WatchInput,
    annotation,
    patch,
)
from stayfast.cluster.watch.actions.fall_back import FALL_BACK, starts
from stayfast.documents.lookup import mapping, number, texts
from stayfast.model.labels import COUPLED, SPLIT_AT
from stayfast.text.safe import line
from stayfast.text.units import duration

SPLIT = "split-parallelism"


def split(look: WatchInput) -> Iterator[PlannedAction]:
    """Runs that do not leave their class in this look: not both at once to one run."""
    leaving = starts(look).keys() if FALL_BACK in look.allowed else ()
    for row, job in look.roots():
        if (row.namespace, row.run) not in leaving:
            yield from _split(look, row, job)


def _split(look: WatchInput, row: RunSummary, job: Object) -> Iterator[PlannedAction]:
    """To what has machines; an all-or-nothing request to half."""
    observed, limit_seconds = look.observed, look.thresholds.pending_limit(row.capacity)
    labels = texts(mapping(mapping(spec_of(job).get("template")).get("metadata")).get("labels"))
    width = number(spec_of(job).get("parallelism"), 1)
    since = seconds_at(annotation(job, SPLIT_AT))
    if job.get("kind") != "Job" or labels.get(COUPLED) != "false" or width < 2:
        return
    if row.pending_seconds <= limit_seconds or (since is not None and observed.now - since <= limit_seconds):
        return
    if is_suspended(job):
        target = width // 2 if look.diagnoses.of(job).code in MACHINES_WAITED_FOR else 0
    else:
        alive = [pod for pod in observed.owned_by(PODS, job) if ending_of(pod) is None]
        target = sum(1 for pod in alive if spec_of(pod).get("nodeName") and not meta(pod).get("deletionTimestamp"))
        if QUEUE_LABEL in (meta(job).get("labels") or {}):
            target = 0  # Kueue has admitted this width: another one would end what runs
    if 0 < target < width:
        yield _narrow(observed, row, job, width, target)


def _narrow(observed: Snapshot, row: RunSummary, job: Object, width: int, target: int) -> PlannedAction:
    name, namespace = str(meta(job).get("name")), str(meta(job).get("namespace"))
    change = {
        "metadata": {"annotations": {SPLIT_AT: to_rfc3339(observed.now)}},
        "spec": {"parallelism": target},
    }
    waited = duration(row.pending_seconds)
    sentence = line(f"{row.run} goes on with {target} of {width} workers at a time: the others have waited {waited}")
    value = f"{target}@{meta(job).get('resourceVersion')}"
    return PlannedAction(SPLIT, namespace, name, row.uid, sentence, (patch(JOBS, job, change),), value)


ACTION = Action(
    SPLIT,
    "independent workers that wait too long: no more of them at a time than have machines",
    ((JOBS, Verb.PATCH),),
    split,
)
