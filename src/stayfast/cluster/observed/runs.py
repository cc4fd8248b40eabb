"""Runs, not objects: everything that was observed about each run, added up, in words."""

from __future__ import annotations

import enum
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from stayfast.capacity.machines.gke_keys import QUEUE_LABEL
from stayfast.clock import seconds_at
from stayfast.cluster.kubernetes.client import Object
from stayfast.cluster.kubernetes.resources import CONFIG_MAPS, DEPLOYMENTS, JOB_SETS, JOBS, PODS
from stayfast.cluster.observed.kueue_workload import is_suspended, workload_of
from stayfast.cluster.observed.objects import age_seconds, condition, meta, owner_uids, spec_of, status_of
from stayfast.cluster.observed.pod_endings import ending_of
from stayfast.cluster.observed.snapshot import Snapshot
from stayfast.documents.lookup import number
from stayfast.model import variables
from stayfast.model.exit_codes import Outcome
from stayfast.model.labels import CAPACITY, PART_LABEL, RUN_LABEL, USD_PER_HOUR


class Phase(enum.StrEnum):
    """Where a run stands."""

    QUEUED = "queued"
    SUSPENDED = "suspended"
    PENDING = "pending"
    STARTING = "starting"
    RUNNING = "running"
    DRAINING = "draining"
    RESTARTING = "restarting"
    FINISHED = "finished"
    FAILED = "failed"


@dataclass(slots=True)
class RunSummary:
    """One run."""

    namespace: str
    run: str
    kind: str
    name: str
    """Of the Job, JobSet or Deployment."""
    phase: Phase
    age_seconds: float
    pods: dict[str, int] = field(default_factory=dict)
    """By state: wanted, running, pending, draining, ended."""
    attempts: int = 0
    interruptions: dict[str, int] = field(default_factory=dict)
    failures: int = 0
    pending_seconds: float = 0.0
    pod_seconds: float = 0.0
    """Time that its pods have had machines, as far as the pods still exist."""
    capacity: str | None = None
    usd_per_hour: float | None = None
    run_url: str | None = None
    queue_url: str | None = None
    sink_url: str | None = None
    last_step: int | None = None
    uid: str = ""

    @property
    def estimated_usd(self) -> float | None:
        """At the rendered price, for the pods that still exist."""
        return None if self.usd_per_hour is None else self.pod_seconds / 3600 * self.usd_per_hour

    def to_json(self) -> dict[str, Any]:
        """For ``--output json``."""
        return {
            "namespace": self.namespace,
            "run": self.run,
            "kind": self.kind,
            "name": self.name,
            "phase": self.phase.value,
            "age_seconds": round(self.age_seconds, 1),
            "pending_seconds": round(self.pending_seconds, 1),
            "attempts": self.attempts,
            "pods": self.pods,
            "interruptions": self.interruptions,
            "failures": self.failures,
            "last_step": self.last_step,
            "capacity": self.capacity,
            "pod_seconds": round(self.pod_seconds, 1),
            "estimated_usd": None if self.estimated_usd is None else round(self.estimated_usd, 4),
            "run_url": self.run_url,
        }


def summarize(observed: Snapshot) -> list[RunSummary]:
    """All runs, the newest last within each namespace."""
    roots = _roots(observed)
    settings = {
        (meta(item).get("namespace"), (meta(item).get("labels") or {}).get(RUN_LABEL)): item.get("data") or {}
        for item in observed.of(CONFIG_MAPS)
        if PART_LABEL not in (meta(item).get("labels") or {})
    }
    rows = [_row(observed, root, jobs, settings) for root, jobs in roots]
    return sorted(rows, key=lambda row: (row.namespace, -row.age_seconds, row.run))


def _roots(observed: Snapshot) -> list[tuple[Object, list[Object]]]:
    sets = {meta(item).get("uid"): item for item in observed.of(JOB_SETS)}
    children: dict[Any, list[Object]] = {uid: [] for uid in sets}
    alone = []
    for job in observed.of(JOBS):
        owner = next((uid for uid in owner_uids(job) if uid in sets), None)
        if owner is None:
            alone.append((job, [job]))
        else:
            children[owner].append(job)
    endpoints: list[tuple[Object, list[Object]]] = [(item, []) for item in observed.of(DEPLOYMENTS)]
    return [(item, children[uid]) for uid, item in sets.items()] + alone + endpoints


def _row(observed: Snapshot, root: Object, jobs: list[Object], settings: dict[Any, Any]) -> RunSummary:
    metadata = meta(root)
    run = str((metadata.get("labels") or {}).get(RUN_LABEL) or metadata.get("name", ""))
    pods = [pod for job in jobs for pod in observed.owned_by(PODS, job)]
    if root.get("kind") == "Deployment":
        pods = observed.selected_by(root)
    row = RunSummary(
        namespace=str(metadata.get("namespace", "")),
        run=run,
        kind=str(root.get("kind", "")),
        name=str(metadata.get("name", "")),
        phase=Phase.PENDING,
        age_seconds=age_seconds(root, observed.now),
        uid=str(metadata.get("uid", "")),
    )
    _count_pods(observed, row, root, jobs, pods)
    row.phase = _phase(observed, root, jobs, row)
    if row.phase in (Phase.QUEUED, Phase.SUSPENDED):
        row.pending_seconds = _suspended_seconds(observed, root, row)
    row.attempts = _attempts(root, jobs, pods)
    data = settings.get((metadata.get("namespace"), run)) or {}
    marks = metadata.get("annotations") or {}  # of a class that it has fallen back to
    row.capacity = marks.get(CAPACITY) or data.get(variables.CAPACITY)
    row.usd_per_hour = _number(marks.get(USD_PER_HOUR) or data.get(variables.USD_PER_HOUR))
    row.run_url, row.queue_url = data.get(variables.RUN_URL), data.get(variables.QUEUE)
    row.sink_url = data.get(variables.SINK)
    return row


def _count_pods(observed: Snapshot, row: RunSummary, root: Object, jobs: list[Object], pods: list[Object]) -> None:
    states: Counter[str] = Counter()
    causes: Counter[str] = Counter()
    for pod in pods:
        status = status_of(pod)
        end = ending_of(pod)
        started = seconds_at(status.get("startTime"))
        if started is not None:
            until = end.at if end is not None and end.at is not None else observed.now
            row.pod_seconds += max(0.0, until - started)
        if end is not None:
            states["ended"] += 1
            if end.outcome in (Outcome.INTERRUPTED, Outcome.LOST):
                causes[end.cause.value if end.cause else "unknown"] += 1
            elif end.outcome is Outcome.FAILED:
                row.failures += 1
            step = (end.report or {}).get("step")
            if isinstance(step, int) and not isinstance(step, bool):
                row.last_step = max(step, row.last_step if row.last_step is not None else step)
        elif meta(pod).get("deletionTimestamp"):
            states["draining"] += 1
        elif status.get("phase") == "Running":
            states["running"] += 1
        else:
            states["starting" if spec_of(pod).get("nodeName") else "pending"] += 1
            row.pending_seconds = max(row.pending_seconds, age_seconds(pod, observed.now))
    workload = workload_of(observed, root)
    evicted = condition(workload, "Evicted", None) if workload else None
    if evicted is not None and evicted.get("reason") == "Preempted":
        causes["queue-preemption"] += 1  # Kueue deletes the pods: nothing of them is left to ask
    wanted = sum(number(spec_of(job).get("parallelism"), 1) for job in jobs)
    if root.get("kind") == "Deployment":
        wanted = number(spec_of(root).get("replicas"), 1)
    row.pods = {"wanted": wanted, **{key: states[key] for key in sorted(states)}}
    row.interruptions = dict(causes.most_common())


def _phase(observed: Snapshot, root: Object, jobs: list[Object], row: RunSummary) -> Phase:
    if condition(root, "Complete") or condition(root, "Completed"):
        return Phase.FINISHED
    if condition(root, "Failed"):
        return Phase.FAILED
    if root.get("kind") == "Deployment" and row.pods["wanted"] == 0:
        return Phase.SUSPENDED
    if is_suspended(root):
        return Phase.QUEUED if workload_of(observed, root) or _has_queue(root) else Phase.SUSPENDED
    running, waiting = row.pods.get("running", 0), row.pods.get("pending", 0) + row.pods.get("starting", 0)
    if waiting:
        return Phase.PENDING if row.pods.get("pending") else Phase.STARTING
    if running:
        return Phase.RUNNING
    if row.pods.get("draining"):
        return Phase.DRAINING
    is_endpoint = root.get("kind") == "Deployment"
    return Phase.RESTARTING if row.pods.get("ended") or not (jobs or is_endpoint) else Phase.PENDING


def _suspended_seconds(observed: Snapshot, root: Object, row: RunSummary) -> float:
    """Since it was last put back into its queue; what ran for days has not waited for days."""
    since = seconds_at((condition(root, "Suspended") or {}).get("lastTransitionTime"))
    return row.age_seconds if since is None else min(row.age_seconds, max(0.0, observed.now - since))


def _has_queue(root: Object) -> bool:
    return QUEUE_LABEL in (meta(root).get("labels") or {})


def _attempts(root: Object, jobs: list[Object], pods: list[Object]) -> int:
    """Lives of the run: restarts of the set, or the most pods that one index has had."""
    if root.get("kind") == "Deployment":
        return 1 if pods else 0
    if root.get("kind") == "JobSet":
        restarts = status_of(root).get("restarts")
        return 1 + restarts if isinstance(restarts, int) else 1
    lives: Counter[str] = Counter()
    for pod in pods:
        index = (meta(pod).get("annotations") or {}).get("batch.kubernetes.io/job-completion-index")
        lives[str(index)] += 1
    if "None" in lives:  # without indexes: pods of one Job stand beside or after each other
        parallel = sum(number(spec_of(job).get("parallelism"), 1) for job in jobs) or 1
        return max(1, -(-lives["None"] // parallel)) if pods else 0
    return max(lives.values(), default=0)


def _number(value: Any) -> float | None:
    try:
        return float(value)
    except (TypeError, ValueError):
        return None
