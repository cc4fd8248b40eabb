"""Alerts: each fires at its threshold, not before, and keeps its key while the reason stays."""

from __future__ import annotations

from typing import Any

import pytest

from cluster.scenarios import NOW, at, condition, ended, interrupted, job, node, pod, queued_job, request, workload
from servers.api_server import ApiServer
from stayfast.clock import SystemClock
from stayfast.cluster.kubernetes.client import Client
from stayfast.cluster.kubernetes.resources import CONFIG_MAPS, JOBS, NODES, PODS, PROVISIONING_REQUESTS, WORKLOADS
from stayfast.cluster.observed.live_snapshot import LiveSnapshot
from stayfast.cluster.observed.run_records import CheckpointAge
from stayfast.cluster.observed.snapshot import Snapshot
from stayfast.cluster.watch.alerts import Alert, Thresholds, find_alerts, pending_pods

KINDS = {
    "Job": JOBS,
    "Pod": PODS,
    "Node": NODES,
    "Workload": WORKLOADS,
    "ProvisioningRequest": PROVISIONING_REQUESTS,
    "ConfigMap": CONFIG_MAPS,
}


def alerts(*values: dict[str, Any], **options: Any) -> list[Alert]:
    observed = Snapshot(NOW)
    for value in values:
        observed.add(KINDS[value["kind"]], value)
    return find_alerts(observed, **options)


def settings(capacity: str) -> dict[str, Any]:
    metadata = {"name": "train", "namespace": "ml", "labels": {"stayfast.dev/run": "train"}}
    return {"kind": "ConfigMap", "metadata": metadata, "data": {"STAYFAST_CAPACITY": capacity}}


def codes(*values: dict[str, Any], **options: Any) -> list[str]:
    return [alert.code for alert in alerts(*values, **options)]


@pytest.mark.parametrize(("capacity", "limit"), [("spot", 900), ("flex-start", 21_600), ("other", 1800)])
def test_waiting_too_long_for_its_class(capacity: str, limit: int) -> None:
    assert codes(job(), pod(ago=limit - 1), settings(capacity)) == []
    [alert] = alerts(job(), pod(ago=limit + 1), settings(capacity))
    assert alert.code == "pending"
    assert "stayfast explain train" in alert.evidence


def test_waiting_in_the_queue_counts_too() -> None:
    assert codes(queued_job(ago=30_000), workload(), settings("flex-start")) == ["pending"]


def test_stuck_terminating() -> None:
    old = pod(phase="Running", node="n1", metadata={"deletionTimestamp": at(299)})
    assert codes(job(), old) == []
    old["metadata"]["deletionTimestamp"] = at(301)
    assert codes(job(), old) == ["stuck-terminating"]


def test_a_retry_storm_is_failures_not_interruptions() -> None:
    failures = [pod(f"f{number}", phase="Failed", containerStatuses=ended(1, ago=60)) for number in range(5)]
    assert codes(job(), *failures[:4]) == []
    assert codes(job(), *failures) == ["retry-storm"]
    assert codes(job(), *(interrupted(f"i{number}", ago=60) for number in range(9))) == []
    old = [pod(f"f{number}", phase="Failed", containerStatuses=ended(1, ago=9999)) for number in range(9)]
    assert codes(job(), *old) == []


def lease(name: str, in_seconds: float) -> dict[str, Any]:
    return node(name, metadata={"annotations": {"node.gke.io/machine-termination-datetime": at(-in_seconds)}})


def test_a_lease_that_ends_soon() -> None:
    running = pod(phase="Running", node="n1")
    assert codes(job(), running, lease("n1", 3601)) == []
    assert codes(job(), running, lease("n1", 3599)) == ["lease-ending"]
    assert codes(job(), running, lease("other", 60)) == []


def test_a_gang_whose_machines_end_together() -> None:
    pods = [pod(f"p{number}", phase="Running", node=f"n{number}") for number in range(3)]
    together = [lease(f"n{number}", 3000 + number) for number in range(3)]
    assert codes(job(), *pods, *together) == ["gang-lease-ending"]
    apart = [lease(f"n{number}", 3000 + number * 86_400) for number in range(3)]
    assert codes(job(), *pods, *apart) == ["lease-ending"]


def test_no_checkpoint_for_some_intervals() -> None:
    running = (job(), pod(phase="Running", node="n1"))
    late = {("ml", "train"): CheckpointAge(301.0, 100.0)}
    assert codes(*running, checkpoints=late) == ["no-checkpoint"]
    assert codes(*running, checkpoints=late, thresholds=Thresholds(checkpoint_intervals=4)) == []
    assert codes(job(), pod(), checkpoints=late) == []  # nothing runs: nothing can be saved


def test_a_wrong_success() -> None:
    target = condition("DisruptionTarget", "True", "TerminationByKubelet")
    bad = pod(phase="Succeeded", conditions=[target], containerStatuses=ended(0))
    assert codes(job(status={"conditions": [condition("Complete")]}), bad) == ["wrong-success"]


def test_a_request_that_is_stuck() -> None:
    waiting = [condition("Accepted", ago=86_000), condition("Provisioned", "False")]
    assert codes(queued_job(ago=60), workload(), request(*waiting)) == []
    waiting[0] = condition("Accepted", ago=86_500)
    [alert] = alerts(queued_job(ago=60), workload(), request(*waiting))
    assert (alert.code, alert.namespace, alert.run) == ("provisioning-stuck", "ml", "train")


def test_the_key_stays_while_the_reason_does() -> None:
    first = alerts(job(), pod(ago=2000))
    later = alerts(job(), pod(ago=3000))
    assert first != later
    assert [alert.key for alert in first] == [alert.key for alert in later]
    again = alerts(job(uid="job-2"), pod(ago=3000, owner="job-2"))
    assert [alert.key for alert in again] != [alert.key for alert in later]


def test_the_oldest_waiting_pod() -> None:
    observed = Snapshot(NOW).add(PODS, pod("a", ago=10), pod("b", ago=90), pod("c", phase="Running", ago=900))
    assert pending_pods(observed) == {"ml": 90.0}


def test_a_model_that_follows_the_cluster(server: ApiServer, client: Client) -> None:
    server.add(JOBS, job(), "ml")
    server.add(PODS, pod(), "ml")
    server.add(PODS, {"metadata": {"name": "foreign"}}, "ml")
    following = LiveSnapshot(client, "ml", (JOBS, PODS, NODES), labels="stayfast.dev/run")
    assert following.start()
    assert [row["metadata"]["name"] for row in following.snapshot().of(PODS)] == ["train-x"]
    server.objects.merge(PODS, "ml", "train-x", {"status": {"phase": "Running"}}, {})
    wait_for(following, lambda seen: seen.of(PODS)[0]["status"]["phase"] == "Running")
    server.objects.delete(JOBS, "ml", "train", None)
    wait_for(following, lambda seen: not seen.of(JOBS) and not seen.of(PODS))
    following.stop()


def test_a_kind_that_may_not_be_read_is_written_down(server: ApiServer, client: Client) -> None:
    server.allowed = {("list", "pods"), ("watch", "pods")}
    following = LiveSnapshot(client, "ml", (JOBS, PODS))
    assert following.start()
    assert "not allowed to list jobs.batch" in following.snapshot().unseen["jobs.batch"]
    following.stop()


def wait_for(following: LiveSnapshot, holds: Any) -> None:
    for _ in range(600):
        if holds(following.snapshot()):
            return
        following.changed.clear()
        SystemClock().wait(following.changed, 0.05)
    raise AssertionError("the model never got there")
