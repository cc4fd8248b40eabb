"""The runs of a cluster as the pages show them: phases in words, why something waits, what took it away, lease ends.

Everything comes from a few lists of the API server, never from a request per object; what those objects say was written
by anybody, so it is cut to size here and put into the page as text.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from stayfast.clock import Clock, SystemClock
from stayfast.cluster.diagnosis.diagnose import Diagnoses
from stayfast.cluster.diagnosis.diagnosis import Verdict
from stayfast.cluster.diagnosis.workload_view import pods_of
from stayfast.cluster.kubernetes.client import Client, Object
from stayfast.cluster.kubernetes.resources import JOB_SETS, JOBS, PODS
from stayfast.cluster.observed.runs import Phase, RunSummary, summarize
from stayfast.cluster.observed.snapshot import (
    CLUSTER_WIDE_FOR_EXPLAIN,
    FOR_EXPLAIN,
    FOR_STATUS,
    Snapshot,
    take_snapshot,
)
from stayfast.cluster.watch.alerts import Alert, find_alerts, lease_ends
from stayfast.dashboard.run_view import identify
from stayfast.errors import ClusterAccessError
from stayfast.model.labels import RUN_LABEL

KINDS = tuple(dict.fromkeys((*FOR_STATUS, *FOR_EXPLAIN, *CLUSTER_WIDE_FOR_EXPLAIN)))
MOST_RUNS = 500
MOST_EXPLAINED = 100
_LONGEST_TEXT = 500

WORDS = {
    Phase.QUEUED: "in the queue",
    Phase.SUSPENDED: "suspended",
    Phase.PENDING: "waiting for a machine",
    Phase.STARTING: "starting",
    Phase.RUNNING: "running",
    Phase.DRAINING: "being taken away",
    Phase.RESTARTING: "between attempts",
    Phase.FINISHED: "finished",
    Phase.FAILED: "failed",
}
_ENDED = (Phase.FINISHED, Phase.FAILED)


class ClusterFleet:
    """The runs of one namespace, or of all."""

    def __init__(self, client: Client, namespace: str | None, clock: Clock | None = None) -> None:
        self._client = client
        self._namespace = namespace
        self._clock = clock or SystemClock()
        self.name = client.access.context or client.access.server

    def look(self) -> dict[str, Any]:
        """One list per kind."""
        observed = take_snapshot(self._client, self._namespace, KINDS, now=self._clock.wall(), labels=RUN_LABEL)
        for resource in (JOBS, PODS):
            if resource.title in observed.unseen:
                raise ClusterAccessError(observed.unseen[resource.title], help="run: kubectl auth can-i --list")
        return {"namespace": self._namespace, **describe(observed)}

    def close(self) -> None:
        """Hang up."""
        self._client.close()


def describe(observed: Snapshot) -> dict[str, Any]:
    """Plain JSON from what was observed: living runs first, then the newest of those that ended."""
    rows = sorted(summarize(observed), key=lambda row: (row.phase in _ENDED, row.age_seconds))
    roots = observed.by_uid(JOB_SETS, JOBS)
    alerts: dict[tuple[str, str], list[Alert]] = {}
    diagnoses = Diagnoses(observed)
    for alert in find_alerts(observed, rows=rows, diagnoses=diagnoses):
        alerts.setdefault((alert.namespace, alert.run), []).append(alert)
    shown = []
    for number, row in enumerate(rows[:MOST_RUNS]):
        root = roots.get(row.uid) if number < MOST_EXPLAINED else None
        shown.append(_run(observed, diagnoses, row, root, alerts.get((row.namespace, row.run), ())))
    found = {"at": observed.now, "runs": shown, "more": len(rows) - len(shown), "unseen": observed.unseen}
    cleaned: dict[str, Any] = _clean(found)
    return cleaned


def _run(
    observed: Snapshot, diagnoses: Diagnoses, row: RunSummary, root: Object | None, alerts: Iterable[Alert]
) -> dict[str, Any]:
    ends = lease_ends(observed, pods_of(observed, root)) if root is not None and row.phase not in _ENDED else {}
    return {
        **row.to_json(),
        "words": WORDS[row.phase],
        "run_id": identify(row.run_url) if row.run_url else None,
        "why": _why(diagnoses, row, root),
        "lease_ends_at": min(ends.values(), default=None),
        "lease_last_at": max(ends.values(), default=None),
        "lease_machines": len(ends),
        "alerts": [{"code": alert.code, "sentence": alert.sentence} for alert in alerts],
    }


def _why(diagnoses: Diagnoses, row: RunSummary, root: Object | None) -> dict[str, Any] | None:
    """The cause, where somebody would ask: a run that runs, or has done its work, needs no explanation."""
    if root is None or row.phase is Phase.FINISHED:
        return None
    found = diagnoses.of(root)
    return None if found.verdict is Verdict.FINE else found.to_json()


def _clean(value: Any) -> Any:
    """Numbers that JSON does not have become nothing; texts are kept short."""
    if isinstance(value, dict):
        return {str(key)[:_LONGEST_TEXT]: _clean(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_clean(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, str) and len(value) > _LONGEST_TEXT:
        return value[: _LONGEST_TEXT - 1] + "…"
    return value
