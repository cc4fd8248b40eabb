"""Deployments in status, explain and watch; objects by kind and name; and queues that can be counted, or not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cluster.scenarios import NOW, at, condition, job, pod, queued_job, request, unschedulable, workload
from servers.api_server import ApiServer
from stayfast.cli.main import main
from stayfast.clock import SystemClock
from stayfast.cluster.diagnosis.diagnose import diagnose, find_root
from stayfast.cluster.kubernetes.resources import (
    CONFIG_MAPS,
    DEPLOYMENTS,
    JOB_SETS,
    JOBS,
    PODS,
    PROVISIONING_REQUESTS,
    WORKLOADS,
    Resource,
)
from stayfast.cluster.observed.runs import summarize
from stayfast.cluster.observed.snapshot import Snapshot
from stayfast.cluster.watch.alerts import find_alerts


def endpoint(name: str = "api", *, replicas: int | None = 2, conditions: list[Any] | None = None) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "ml", "uid": f"d-{name}", "creationTimestamp": at(3600)}
    spec: dict[str, Any] = {"selector": {"matchLabels": {"stayfast.dev/run": name}}}
    if replicas is not None:
        spec["replicas"] = replicas
    labels = {"stayfast.dev/run": name}
    return {"kind": "Deployment", "metadata": {**metadata, "labels": labels}, "spec": spec,
            "status": {"conditions": conditions or []}}  # fmt: skip


def replica(name: str, **more: Any) -> dict[str, Any]:
    found = pod(name, run="api", **more)
    found["metadata"]["ownerReferences"] = [{"kind": "ReplicaSet", "uid": "rs-1"}]
    return found


def world(deployment: dict[str, Any], *pods: dict[str, Any]) -> Snapshot:
    return Snapshot(NOW).add(DEPLOYMENTS, deployment).add(PODS, *pods)


@pytest.mark.parametrize(
    ("replicas", "pods", "phase", "code"),
    [
        (2, [replica("a", phase="Running", node="n"), replica("b", phase="Running", node="n")], "running", "running"),
        (2, [replica("a", phase="Running", node="n"), replica("b", node="n", ago=5)], "starting", "not-seen-yet"),
        (
            2,
            [replica("a", conditions=unschedulable("0/1 nodes are available: 1 Insufficient nvidia.com/gpu."))],
            "pending",
            "not-enough-resources",
        ),
        (0, [], "suspended", "scaled-to-zero"),
        (None, [], "pending", "no-pods"),
    ],
)
def test_phases_and_reasons(replicas: int | None, pods: list[Any], phase: str, code: str) -> None:
    observed = world(endpoint(replicas=replicas), *pods, pod("other", run="api"))
    [row] = summarize(observed)
    assert (row.kind, row.run, row.phase.value) == ("Deployment", "api", phase)
    assert row.pods["wanted"] == (1 if replicas is None else replicas)
    root = find_root(observed, "api", "ml")
    assert root is not None
    assert diagnose(observed, root).code == code


def test_pods_that_are_refused_say_why() -> None:
    text = 'pods "api-1" is forbidden: no PriorityClass with name low was found'
    observed = world(endpoint(conditions=[condition("ReplicaFailure", reason="FailedCreate", message=text)]))
    found = diagnose(observed, observed.of(DEPLOYMENTS)[0])
    assert (found.code, found.verdict.value) == ("priority-class-missing", "act")
    assert "FailedCreate" in found.evidence[0]


def test_an_endpoint_that_waits_too_long_is_an_alert() -> None:
    [alert] = find_alerts(world(endpoint(), replica("a", ago=99_999)))
    assert (alert.code, alert.run) == ("pending", "api")


def test_selectors_without_labels_select_nothing() -> None:
    bare = endpoint()
    bare["spec"]["selector"] = {}
    assert world(bare, replica("a")).selected_by(bare) == []


@pytest.mark.parametrize(
    ("asked", "kind", "code"),
    [
        ("job/same", "Job", "queued"),
        ("jobs.batch/same", "Job", "queued"),
        ("deploy/same", "Deployment", "scaled-to-zero"),
        ("pod/same", "Pod", "not-seen-yet"),
        ("jobset/same", "JobSet", "jobset-without-jobs"),
        ("wl/same", "Workload", "queued"),
        ("provisioningrequest/same", "ProvisioningRequest", "waiting-for-capacity"),
        ("same", "JobSet", "jobset-without-jobs"),
    ],
)
def test_one_name_many_kinds(asked: str, kind: str, code: str) -> None:
    def named(resource: Resource, value: dict[str, Any]) -> None:
        value["metadata"] |= {"name": "same"}
        observed.add(resource, value)

    observed = Snapshot(NOW)
    named(JOBS, queued_job())
    named(JOB_SETS, {**job(uid="js"), "kind": "JobSet", "spec": {}})
    named(DEPLOYMENTS, endpoint(replicas=0))
    named(PODS, pod(ago=1))
    named(WORKLOADS, workload(condition("QuotaReserved", "False")))
    named(PROVISIONING_REQUESTS, request(condition("Accepted")))
    root = find_root(observed, asked, "ml")
    assert root is not None
    assert (root["kind"], diagnose(observed, root).code) == (kind, code)
    assert find_root(observed, "secret/same", "ml") is None


def test_machines_that_came() -> None:
    observed = Snapshot(NOW).add(PROVISIONING_REQUESTS, request(condition("Accepted"), condition("Provisioned")))
    assert diagnose(observed, observed.of(PROVISIONING_REQUESTS)[0]).code == "provisioned"


class TestQueues:
    @pytest.fixture(autouse=True)
    def _now(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(SystemClock, "wall", lambda self: NOW)

    def status(self, server: ApiServer, capsys: Any, **urls: str) -> dict[str, Any]:
        server.add(JOBS, job(), "ml")
        labels = {"stayfast.dev/run": "train"}
        server.add(CONFIG_MAPS, {"metadata": {"name": "train", "labels": labels}, "data": urls}, "ml")
        assert main(["status", "train", "-n", "ml", "--json"]) == 0
        [found] = json.loads(capsys.readouterr().out)["runs"]
        return dict(found)

    @pytest.mark.parametrize(
        ("queue", "sink", "words"),
        [
            ("sqlite:///data/work.db?queue=a", "", "file inside the pods"),
            ("pubsub://p/s", "sqlite:///data/out.db", "ledger is a file inside the pods"),
            ("pubsub://p/s", "", "ledger is a file inside the pods"),
            ("postgresql://127.0.0.1:9/q?queue=a", "", "127.0.0.1"),
            ("nonsense://x", "", "no known scheme"),
        ],
    )
    def test_what_cannot_be_seen_is_said(
        self, server: ApiServer, kubeconfig: Any, capsys: Any, queue: str, sink: str, words: str
    ) -> None:
        kubeconfig()
        found = self.status(server, capsys, STAYFAST_QUEUE=queue, STAYFAST_SINK=sink)
        assert "queue" not in found
        assert words in found["notes"][0]

    def test_the_ledger_of_a_topic_is_counted_in_its_bucket(
        self, server: ApiServer, kubeconfig: Any, capsys: Any, bucket_server: Any, cloud_environment: Any
    ) -> None:
        from stayfast.batch.queue.pubsub_ledger import open_ledger
        from stayfast.batch.sink.open_sink import open_sink
        from stayfast.cluster.observed import run_records

        cloud_environment("gs", bucket_server.url)
        kubeconfig()
        sink_url = "gs://bucket/labels"
        ledger, sink = open_ledger(sink_url, "s"), open_sink(sink_url)
        ledger.add([(f"k{number}", "1") for number in range(5)], replace=False)
        ledger.fail("k0", "broken", most=1, final=True)
        sink.record("k1", b"done")
        urls = {"STAYFAST_QUEUE": "pubsub://p/s?topic=t", "STAYFAST_SINK": sink_url}
        found = self.status(server, capsys, **urls)
        assert found["queue"] == {"ready": 3, "delayed": 0, "leased": 0, "done": 1, "dead": 1}
        run_records.MOST_OBJECTS, before = 3, run_records.MOST_OBJECTS
        try:
            found = self.status(server, capsys, **urls)
        finally:
            run_records.MOST_OBJECTS = before
        assert "more than 3 items" in found["notes"][0]
        bucket_server.shutdown()


def test_a_name_that_is_nowhere(server: ApiServer, kubeconfig: Any, capsys: Any, tmp_path: Path) -> None:
    kubeconfig()
    assert main(["explain", "deployment/\x1b[31mred"]) == 2
    err = capsys.readouterr().err
    assert "\x1b" not in err
    assert "there is no run, Job, JobSet, Deployment or pod" in err
