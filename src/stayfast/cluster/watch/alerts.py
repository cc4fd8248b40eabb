"""What deserves to wake somebody: pure functions from what is observed, the moment and the thresholds to alerts.

An alert has a key that stays the same while its reason does; whoever sends alerts remembers keys, so that a restart
sends nothing twice.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from stayfast.clock import seconds_at
from stayfast.cluster.diagnosis.causes.provisioning import FAILURES, workload_behind
from stayfast.cluster.diagnosis.diagnose import Diagnoses
from stayfast.cluster.diagnosis.diagnosis import Verdict
from stayfast.cluster.diagnosis.workload_view import pods_of
from stayfast.cluster.kubernetes.client import Object
from stayfast.cluster.kubernetes.resources import (
    DEPLOYMENTS,
    JOB_SETS,
    JOBS,
    NODES,
    PODS,
    PROVISIONING_REQUESTS,
    WORKLOADS,
)
from stayfast.cluster.observed.kueue_workload import why_stopped
from stayfast.cluster.observed.objects import age_seconds, condition, meta, owner_uids, spec_of, title
from stayfast.cluster.observed.pod_endings import ending_of
from stayfast.cluster.observed.run_records import CheckpointAge
from stayfast.cluster.observed.runs import Phase, RunSummary, summarize
from stayfast.cluster.observed.snapshot import TERMINATION_AT, Snapshot
from stayfast.model.exit_codes import Outcome
from stayfast.model.labels import RUN_LABEL
from stayfast.text.safe import line
from stayfast.text.units import duration

ROOTS = (JOB_SETS, JOBS, DEPLOYMENTS)


@dataclass(frozen=True, slots=True)
class Thresholds:
    """When waiting stops being normal."""

    pending_seconds: Mapping[str, float] = field(
        default_factory=lambda: {"spot": 900.0, "on-demand": 900.0, "flex-start": 21_600.0, "hybrid": 1800.0}
    )
    """By capacity class."""
    pending_other_seconds: float = 1800.0
    terminating_seconds: float = 300.0
    """After the pod's own deadline."""
    storm_failures: int = 5
    storm_seconds: float = 1800.0
    lease_seconds: float = 3600.0
    gang_spread_seconds: float = 900.0
    checkpoint_intervals: float = 3.0

    def pending_limit(self, capacity: str | None) -> float:
        """For a run of that class."""
        return self.pending_seconds.get(capacity or "", self.pending_other_seconds)


class Alert(NamedTuple):
    """One reason to look."""

    code: str
    namespace: str
    run: str
    sentence: str
    evidence: str = ""
    subject: str = ""
    """The uid that the reason hangs on: a new pod is a new reason."""

    @property
    def key(self) -> str:
        """The same for as long as the reason is."""
        return "/".join((self.code, self.namespace, self.run, self.subject))


def find_alerts(
    observed: Snapshot,
    thresholds: Thresholds | None = None,
    checkpoints: Mapping[tuple[str, str], CheckpointAge] | None = None,
    *,
    rows: list[RunSummary] | None = None,
    diagnoses: Diagnoses | None = None,
) -> list[Alert]:
    """All alerts that hold at the observed moment; ``rows`` if they are added up already."""
    limits = thresholds or Thresholds()
    found: list[Alert] = []
    roots = observed.by_uid(*ROOTS)
    for row in summarize(observed) if rows is None else rows:
        root = roots.get(row.uid)
        if root is None:
            continue
        pods = pods_of(observed, root)
        found += _pending(row, limits)
        found += _terminating(observed, row, pods, limits)
        found += _storm(observed, row, pods, limits)
        found += _wrong_success(row, pods)
        found += _lease(observed, row, pods, limits)
        if checkpoints and (row.namespace, row.run) in checkpoints:
            found += _checkpoint(row, checkpoints[row.namespace, row.run], limits)
    found += _requests(observed, diagnoses or Diagnoses(observed))
    found += _stopped(observed)
    return sorted(set(found))


def _pending(row: RunSummary, limits: Thresholds) -> Iterator[Alert]:
    if row.phase not in (Phase.PENDING, Phase.QUEUED):
        return
    limit = limits.pending_limit(row.capacity)
    if row.pending_seconds > limit:
        kind = row.capacity or "its capacity"
        sentence = f"{row.run} has waited {duration(row.pending_seconds)} for {kind}; {duration(limit)} is the limit"
        yield Alert("pending", row.namespace, row.run, sentence, f"run: stayfast explain {row.run}", row.uid)


def _terminating(observed: Snapshot, row: RunSummary, pods: list[Object], limits: Thresholds) -> Iterator[Alert]:
    for pod in pods:
        deadline = seconds_at(meta(pod).get("deletionTimestamp"))
        if deadline is None or ending_of(pod) is not None or observed.now - deadline <= limits.terminating_seconds:
            continue
        late = duration(observed.now - deadline)
        sentence = f"a pod of {row.run} should have ended {late} ago and still holds its place"
        yield Alert("stuck-terminating", row.namespace, row.run, sentence, title(pod), str(meta(pod).get("uid")))


def _storm(observed: Snapshot, row: RunSummary, pods: list[Object], limits: Thresholds) -> Iterator[Alert]:
    recent = []
    for pod in pods:
        end = ending_of(pod)
        bad = end is not None and end.outcome in (Outcome.FAILED, Outcome.LOST)
        if end is not None and bad and end.at is not None and observed.now - end.at <= limits.storm_seconds:
            recent.append(end)
    if len(recent) >= limits.storm_failures:
        last = max(recent, key=lambda end: end.at or 0.0)
        sentence = f"{row.run} has failed {len(recent)} times within {duration(limits.storm_seconds)}"
        yield Alert("retry-storm", row.namespace, row.run, sentence, last.evidence, row.uid)


def _wrong_success(row: RunSummary, pods: list[Object]) -> Iterator[Alert]:
    for pod in pods:
        end = ending_of(pod)
        if end is not None and end.is_false_success:
            sentence = f"a pod of {row.run} was interrupted and left with exit 0: the rest of its work will not run"
            yield Alert("wrong-success", row.namespace, row.run, sentence, end.evidence, str(meta(pod).get("uid")))


def _lease(observed: Snapshot, row: RunSummary, pods: list[Object], limits: Thresholds) -> Iterator[Alert]:
    """Machines whose end is known: soon, or all of a gang's at once."""
    ends = lease_ends(observed, pods)
    if not ends:
        return
    first, last = min(ends.values()), max(ends.values())
    left = first - observed.now
    if 0 <= left <= limits.lease_seconds:
        name = min(ends, key=lambda node: ends[node])
        together = len(ends) > 1 and last - first <= limits.gang_spread_seconds
        code = "gang-lease-ending" if together else "lease-ending"
        what = f"all {len(ends)} machines of {row.run} end" if together else f"a machine of {row.run} ends"
        sentence = f"{what} in {duration(left)}"
        yield Alert(code, row.namespace, row.run, sentence, f"node/{name}", f"{row.uid}:{first:.0f}")


def lease_ends(observed: Snapshot, pods: list[Object]) -> dict[str, float]:
    """Node -> wall-clock second of its end, for the nodes under living pods."""
    names = {str(spec_of(pod).get("nodeName") or "") for pod in pods if ending_of(pod) is None} - {""}
    ends = {}
    for node in observed.of(NODES):
        name = str(meta(node).get("name"))
        ends_at = seconds_at((meta(node).get("annotations") or {}).get(TERMINATION_AT)) if name in names else None
        if ends_at is not None:
            ends[name] = ends_at
    return ends


def _checkpoint(row: RunSummary, known: CheckpointAge, limits: Thresholds) -> Iterator[Alert]:
    limit = known.interval_seconds * limits.checkpoint_intervals
    if row.phase is Phase.RUNNING and known.age_seconds > limit:
        sentence = (
            f"{row.run} has committed no checkpoint for {duration(known.age_seconds)}; "
            f"one is due every {duration(known.interval_seconds)}"
        )
        yield Alert("no-checkpoint", row.namespace, row.run, sentence, f"run: stayfast logs {row.run}", row.uid)


def _requests(observed: Snapshot, diagnoses: Diagnoses) -> Iterator[Alert]:
    owners = observed.by_uid(JOB_SETS, JOBS, WORKLOADS)
    for request in observed.of(PROVISIONING_REQUESTS):
        found = diagnoses.of(request)
        if found.verdict is Verdict.FINE or (found.verdict is Verdict.WAIT and found.code not in FAILURES):
            continue
        run = _run_of(owners, request)
        evidence = found.evidence[-1] if found.evidence else line(title(request))
        yield Alert(
            found.code, str(meta(request).get("namespace")), run, f"{run}: {found.cause}", evidence,
            str(meta(workload_behind(observed, request) or request).get("uid")),  # the next request is no other reason
        )  # fmt: skip


def _stopped(observed: Snapshot) -> Iterator[Alert]:
    """Kueue (0.17 and later) deletes the request when it stops the workload: only the workload says why."""
    owners = observed.by_uid(JOB_SETS, JOBS, WORKLOADS)
    for workload in observed.of(WORKLOADS):
        is_asking = bool(observed.owned_by(PROVISIONING_REQUESTS, workload))
        if not is_asking and why_stopped(observed, workload) == "CapacityRevoked":
            run = _run_of(owners, workload)
            words = f"{run}: the machines it was given have been taken back, and Kueue has stopped it"
            evicted = condition(workload, "Evicted") or {}
            evidence = line(title(workload), "Evicted", evicted.get("reason"), "·", evicted.get("message"))
            place, uid = str(meta(workload).get("namespace")), str(meta(workload).get("uid"))
            yield Alert("capacity-revoked", place, run, words, evidence, uid)


def _run_of(owners: dict[str, Object], item: Object) -> str:
    """The run that a request or a Workload belongs to, or its own name."""
    owner: Object | None = item
    for _ in range(4):  # request, Workload, Job, JobSet; anybody may write owners that go in a circle
        if owner is not None and RUN_LABEL not in (meta(owner).get("labels") or {}):
            owner = next((owners[uid] for uid in owner_uids(owner) if uid in owners), None)
    return str(((meta(owner).get("labels") or {}) if owner else {}).get(RUN_LABEL) or meta(item).get("name"))


def pending_pods(observed: Snapshot) -> dict[str, float]:
    """Oldest waiting pod per namespace, in seconds; for metrics."""
    found: dict[str, float] = {}
    for pod in observed.of(PODS):
        if (pod.get("status") or {}).get("phase") == "Pending":
            place = str(meta(pod).get("namespace"))
            found[place] = max(found.get(place, 0.0), age_seconds(pod, observed.now))
    return found
