"""The watch itself: look, compare with what was told before, tell, act, count. Time and cluster come from outside."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from stayfast.backoff import Backoff
from stayfast.clock import Clock, to_rfc3339
from stayfast.cluster.diagnosis.diagnose import Diagnoses
from stayfast.cluster.kubernetes.client import Client
from stayfast.cluster.kubernetes.discovery import resolve_served
from stayfast.cluster.kubernetes.resources import EVENTS, Resource
from stayfast.cluster.observed.run_records import CheckpointAge
from stayfast.cluster.observed.runs import RunSummary, summarize
from stayfast.cluster.observed.snapshot import Snapshot
from stayfast.cluster.watch.actions.action import PlannedAction, carry_out, plan_actions
from stayfast.cluster.watch.alert_store import AlertChanges, AlertState
from stayfast.cluster.watch.alerts import Alert, Thresholds, find_alerts
from stayfast.cluster.watch.metrics import exposition
from stayfast.cluster.watch.webhook import Webhook
from stayfast.errors import ClusterError

LONGEST_PAUSE_SECONDS = 600.0
MOST_REMEMBERED = 10_000


@dataclass(slots=True)
class WatchOptions:
    """What this watch does beside looking."""

    thresholds: Thresholds = field(default_factory=Thresholds)
    actions: set[str] = field(default_factory=set)
    dry_run: bool = False
    events: bool = False
    webhook: Webhook | None = None
    ledgers: Callable[[list[RunSummary], float], Mapping[tuple[str, str], CheckpointAge]] | None = None


class WatchResult(NamedTuple):
    """What one look has found and done."""

    rows: list[RunSummary]
    alerts: list[Alert]
    news: AlertChanges
    deeds: list[tuple[PlannedAction, str]]
    """With what came of each."""
    troubles: list[str]


class Watcher:
    """Looks once per call; the caller decides when."""

    def __init__(self, client: Client, state: AlertState, duties: WatchOptions, *, clock: Clock) -> None:
        self._client, self._state, self._duties, self._clock = client, state, duties, clock
        self._tried: dict[str, tuple[int, float]] = {}
        """Key of a deed -> failures, and when to try it again; what lasts is written in the objects themselves."""
        self._served: dict[str, Resource] = {}
        self.counters = dict.fromkeys(("looks", "alerts", "actions", "failed_sends"), 0)

    def look(self, observed: Snapshot) -> tuple[WatchResult, str]:
        """One round; the second value is the metrics page."""
        rows = summarize(observed)
        known = self._duties.ledgers(rows, observed.now) if self._duties.ledgers else {}
        diagnoses = Diagnoses(observed)
        alerts = find_alerts(observed, self._duties.thresholds, known, rows=rows, diagnoses=diagnoses)
        news = self._state.compare(alerts, observed.now)
        troubles = [trouble for alert in news.begun for trouble in self._tell(alert, rows)]
        deeds = self._act(observed, rows, diagnoses)
        self.counters["looks"] += 1
        self.counters["alerts"] += len(news.begun)
        return WatchResult(rows, alerts, news, deeds, troubles), exposition(observed, rows, alerts, self.counters)

    def _tell(self, alert: Alert, rows: list[RunSummary]) -> list[str]:
        troubles = []
        if self._duties.webhook is not None:
            why = self._duties.webhook.send(alert)
            if why is not None:
                self.counters["failed_sends"] += 1
                self._state.forget(alert)
                troubles.append(f"the webhook did not take the alert ({why}); it is sent again at the next look")
        if self._duties.events:
            row = next((row for row in rows if (row.namespace, row.run) == (alert.namespace, alert.run)), None)
            try:
                self._write_event(alert, row)
            except ClusterError as error:
                troubles.append(f"the event could not be written: {error.message}")
        return troubles

    def _write_event(self, alert: Alert, row: RunSummary | None) -> None:
        """A Kubernetes Event on the run's Job, where ``kubectl describe`` shows it."""
        now = to_rfc3339(self._clock.wall())[:19] + "Z"
        kind, name = (row.kind, row.name) if row else ("Namespace", alert.namespace)
        about = {"kind": kind, "name": name, "namespace": alert.namespace, "uid": row.uid if row else ""}
        about["apiVersion"] = {"Job": "batch/v1", "JobSet": "jobset.x-k8s.io/v1alpha2"}.get(kind, "v1")
        value = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"generateName": f"{name}.", "namespace": alert.namespace},
            "involvedObject": about,
            "reason": "".join(part.capitalize() for part in alert.code.split("-")),
            "message": alert.sentence[:1000],
            "type": "Warning",
            "source": {"component": "stayfast-watch"},
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
        }
        self._client.create(EVENTS, alert.namespace, value)

    def _act(self, observed: Snapshot, rows: list[RunSummary], diagnoses: Diagnoses) -> list[tuple[PlannedAction, str]]:
        results = []
        for deed in plan_actions(
            observed, self._duties.actions, self._duties.thresholds, rows=rows, diagnoses=diagnoses
        ):
            tries, again_at = self._tried.get(deed.key, (0, 0.0))
            if observed.now < again_at:
                continue
            if self._duties.dry_run:
                result = "would be done"
            else:
                why = carry_out(self._client, deed, self._resource)
                result = "done" if why is None else f"failed: {why}"
            self.counters["actions"] += result == "done"
            if result.startswith("failed"):  # once more at the next look, then less and less often
                pause = Backoff(10.0, LONGEST_PAUSE_SECONDS).seconds(tries) if tries else 0.0
                self._tried[deed.key] = (tries + 1, observed.now + pause)
            else:
                self._tried[deed.key] = (tries, math.inf)
            if len(self._tried) > MOST_REMEMBERED:
                self._tried.pop(next(iter(self._tried)))
            results.append((deed, result))
        return results

    def _resource(self, resource: Resource) -> Resource:
        if resource.title not in self._served:
            found, _ = resolve_served(self._client, [resource])
            self._served[resource.title] = found[0] if found else resource
        return self._served[resource.title]
