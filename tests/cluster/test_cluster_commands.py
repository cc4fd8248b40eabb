"""The commands against the pretended server: what they print, with which exit code, and what they ask for."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cluster.scenarios import (
    at,
    condition,
    ended,
    interrupted,
    job,
    local_queue,
    node,
    pod,
    queued_job,
    unschedulable,
    workload,
)
from servers.api_server import ApiServer, Fault
from stayfast.cli.main import main
from stayfast.cluster.kubernetes.resources import (
    CONFIG_MAPS,
    EVENTS,
    JOB_SETS,
    JOBS,
    LOCAL_QUEUES,
    NODES,
    PODS,
    WORKLOADS,
)

Write = Callable[..., Path]


@pytest.fixture(autouse=True)
def _present(monkeypatch: pytest.MonkeyPatch) -> None:
    """The scenarios' moment is now."""
    from cluster import scenarios
    from stayfast.clock import SystemClock

    monkeypatch.setattr(SystemClock, "wall", lambda self: scenarios.NOW)


@pytest.fixture
def fill(server: ApiServer, kubeconfig: Write) -> Callable[..., None]:
    kubeconfig(namespace="ml")
    kinds = {"Job": JOBS, "Pod": PODS, "Event": EVENTS, "Node": NODES, "ConfigMap": CONFIG_MAPS, "JobSet": JOB_SETS}

    def put(*values: dict[str, Any]) -> None:
        for value in values:
            server.add(kinds[value["kind"]], value, value["metadata"].get("namespace", "ml"))

    return put


def call(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = main(list(arguments))
    out, err = capsys.readouterr()
    return code, out, err


def answer(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    code, out, err = call(capsys, *arguments, "--json")
    assert err == ""
    return code, json.loads(out)


SETTINGS = {
    "kind": "ConfigMap",
    "metadata": {"name": "train", "labels": {"stayfast.dev/run": "train"}},
    "data": {"STAYFAST_CAPACITY": "spot", "STAYFAST_USD_PER_HOUR": "3.6", "RUN_URL": "gs://bucket/runs/train"},
}


class TestExplain:
    def test_unschedulable(self, fill: Callable[..., None], capsys: pytest.CaptureFixture[str]) -> None:
        message = "0/3 nodes are available: 3 node(s) had untolerated taint {cloud.google.com/gke-spot: true}."
        fill(job(), pod(conditions=unschedulable(message)), node())
        code, out, _ = call(capsys, "explain", "train")
        assert code == 1
        assert out.startswith("job/train: nodes are there, and the pod does not tolerate their taint")
        assert message in out
        assert "  do:    the pod does not tolerate Spot nodes" in out
        code, found = answer(capsys, "explain", "job/train", "-n", "ml")
        assert (code, found["code"], found["namespace"]) == (1, "untolerated-taint", "ml")

    def test_running_is_0_and_unknown_is_2(self, fill: Callable[..., None], capsys: pytest.CaptureFixture[str]) -> None:
        fill(job(), pod(phase="Running", node="n1"))
        assert call(capsys, "explain", "train")[0] == 0
        code, _, err = call(capsys, "explain", "nothing")
        assert code == 2
        assert "there is no run, Job, JobSet, Deployment or pod nothing in namespace ml; run: stayfast status -A" in err

    def test_half_the_evidence_is_said_to_be_half(
        self, server: ApiServer, fill: Callable[..., None], capsys: pytest.CaptureFixture[str]
    ) -> None:
        fill(job())
        server.allowed = {("list", "jobs.batch"), ("list", "pods")}
        code, found = answer(capsys, "explain", "train")
        assert (code, found["code"]) == (1, "no-pods")
        assert any("events could not be read: not allowed to list events" in note for note in found["also"])

    def test_no_request_per_object(
        self, server: ApiServer, fill: Callable[..., None], capsys: pytest.CaptureFixture[str]
    ) -> None:
        fill(job(), *(pod(f"p{number}", phase="Running", node="n1") for number in range(40)))
        call(capsys, "explain", "train")
        assert len(server.seen) == 14  # thirteen kinds, and one question which of them there are

    def test_kueue_in_an_older_version_is_read_all_the_same(
        self, server: ApiServer, fill: Callable[..., None], capsys: pytest.CaptureFixture[str]
    ) -> None:
        server.resources[:] = [
            item._replace(version="v1beta1") if item.group == "kueue.x-k8s.io" else item for item in server.resources
        ]
        text = "couldn't assign flavors to pod set main: insufficient unused quota for cpu in flavor a, 1 more needed"
        fill(queued_job())
        server.add(LOCAL_QUEUES._replace(version="v1beta1"), local_queue(), "ml")
        server.add(
            WORKLOADS._replace(version="v1beta1"), workload(condition("QuotaReserved", "False", "Pending", text)), "ml"
        )
        assert answer(capsys, "explain", "train")[1]["code"] == "quota-in-use"


class TestStatus:
    def test_a_table_of_runs(self, fill: Callable[..., None], capsys: pytest.CaptureFixture[str]) -> None:
        fill(
            job(),
            interrupted("a", ago=50),
            interrupted("b", "EvictionByEvictionAPI", ago=40),
            pod("c", phase="Running", node="n1"),
        )
        fill(job("idle", uid="j2", suspend=True), SETTINGS)
        code, out, err = call(capsys, "status")
        assert (code, err) == (0, "")
        header, *lines = [line.split() for line in out.splitlines()]
        assert header[:3] == ["RUN", "PHASE", "PODS"]
        assert {line[0]: line[1] for line in lines} == {"train": "running", "idle": "suspended"}
        assert "1 preemption, 1 eviction" in out

    def test_json_counts_causes_time_and_money(
        self, fill: Callable[..., None], capsys: pytest.CaptureFixture[str]
    ) -> None:
        fill(job(), interrupted("a", ago=100), pod("c", phase="Running", node="n1", ago=500), SETTINGS)
        code, found = answer(capsys, "status", "-A")
        [run] = found["runs"]
        assert (code, run["phase"], run["interruptions"], run["attempts"]) == (0, "running", {"preemption": 1}, 2)
        assert run["pod_seconds"] == 1000.0  # the first lived 500 s, the second lives for 500 s
        assert run["estimated_usd"] == 1.0
        assert run["capacity"] == "spot"

    @pytest.mark.parametrize(
        ("values", "phase"),
        [
            ([job(status={"conditions": [condition("Complete")]})], "finished"),
            ([job(status={"conditions": [condition("Failed")]})], "failed"),
            ([job(), pod()], "pending"),
            ([job(), pod(node="n1")], "starting"),
            ([job(), pod(phase="Running", node="n1", metadata={"deletionTimestamp": at(0)})], "draining"),
            ([job(), interrupted("a")], "restarting"),
            ([job(suspend=True, labels={"kueue.x-k8s.io/queue-name": "q"})], "queued"),
        ],
    )
    def test_phases(
        self, fill: Callable[..., None], capsys: pytest.CaptureFixture[str], values: list[Any], phase: str
    ) -> None:
        fill(*values)
        assert answer(capsys, "status")[1]["runs"][0]["phase"] == phase

    def test_a_gang_is_one_run(self, fill: Callable[..., None], capsys: pytest.CaptureFixture[str]) -> None:
        whole = {**job("gang", uid="js"), "kind": "JobSet", "spec": {}, "status": {"restarts": 3}}
        child = job("gang-workers-0", uid="c1", parallelism=2, labels={"stayfast.dev/run": "gang"})
        child["metadata"]["ownerReferences"] = [{"kind": "JobSet", "uid": "js"}]
        fill(
            whole,
            child,
            pod("g0", owner="c1", phase="Running", node="n1", run="gang"),
            pod("g1", owner="c1", run="gang"),
        )
        [run] = answer(capsys, "status")[1]["runs"]
        assert (run["run"], run["kind"], run["attempts"], run["phase"]) == ("gang", "JobSet", 4, "pending")
        assert run["pods"] == {"wanted": 2, "pending": 1, "running": 1}

    def test_one_run_with_its_ledger(
        self, fill: Callable[..., None], capsys: pytest.CaptureFixture[str], bucket_server: Any, cloud_environment: Any
    ) -> None:
        from stayfast.runtime.run_record.record import AttemptRecord, CheckpointRecord, RunRecord, encode

        cloud_environment("gs", bucket_server.url)
        from stayfast.storage.stores.open_store import open_store

        row = AttemptRecord(7, at(500), ended_at=at(100), useful_seconds=300, lost_seconds=20, usd_per_hour=9.0)
        head = RunRecord("train", 7, "token", (CheckpointRecord(4100, 7, at(90)),), (row,))
        store = open_store("gs://bucket/runs/train")
        store.put("HEAD.json", encode(head))
        store.close()
        fill(job(), pod(phase="Running", node="n1"), SETTINGS)
        [run] = answer(capsys, "status", "train")[1]["runs"]
        assert run["attempts"] == 7
        assert run["checkpoint"]["step"] == 4100
        assert run["checkpoint"]["age_seconds"] == pytest.approx(90, abs=1)
        assert run["goodput"] == 0.75
        assert run["usd"] == 1.0
        _, out, _ = call(capsys, "status", "train")
        assert "checkpoint   step 4100, 90 s ago" in out
        bucket_server.shutdown()

    def test_a_bucket_that_does_not_answer_is_a_note(
        self, fill: Callable[..., None], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        from stayfast.cluster.observed import run_records
        from stayfast.errors import AccessDeniedError

        def refuse(_url: str) -> dict[str, Any]:
            raise AccessDeniedError("the bucket is not readable")

        monkeypatch.setattr(run_records, "_read_run", refuse)
        fill(job(), pod(phase="Running", node="n1"), SETTINGS)
        assert answer(capsys, "status", "train")[1]["runs"][0]["notes"] == ["the bucket is not readable"]

    def test_the_last_step_comes_from_our_own_message(
        self, fill: Callable[..., None], capsys: pytest.CaptureFixture[str]
    ) -> None:
        message = json.dumps({"outcome": "interrupted", "cause": "preemption", "step": 812})
        fill(job(), pod(phase="Failed", containerStatuses=ended(75, message=message)))
        assert answer(capsys, "status")[1]["runs"][0]["last_step"] == 812

    def test_nothing_there(self, fill: Callable[..., None], capsys: pytest.CaptureFixture[str]) -> None:
        fill()
        assert call(capsys, "status") == (0, "", "stayfast: no runs in ml\n")
        assert call(capsys, "status", "gone")[0] == 2
        code, _, err = call(capsys, "status", "a,b=c")
        assert (code, err) == (2, "stayfast: 'a,b=c' is no name of a run; run: stayfast status -A\n")


class TestLogs:
    def test_the_newest_that_has_spoken(self, server: ApiServer, fill: Callable[..., None], capsys: Any) -> None:
        fill(
            job(),
            pod("old", phase="Failed", ago=900),
            pod("new", phase="Running", ago=100, node="n"),
            pod("next", ago=5),
        )
        server.logs |= {("ml", "old"): "from old\n", ("ml", "new"): "step 1\nstep 2"}
        assert call(capsys, "logs", "train")[:2] == (0, "step 1\nstep 2\n")
        query = server.seen[-1][2]
        assert query == {"container": "main"}
        call(capsys, "logs", "train", "--tail", "5", "--previous", "-c", "side", "-f")
        assert server.seen[-1][2] == {"container": "side", "tailLines": "5", "previous": "true", "follow": "true"}

    def test_all_pods_with_their_names(self, server: ApiServer, fill: Callable[..., None], capsys: Any) -> None:
        fill(job(), pod("a", phase="Failed", ago=900), pod("b", phase="Running", ago=100, node="n"))
        server.logs |= {("ml", "a"): "one\n", ("ml", "b"): "two\n"}
        assert call(capsys, "logs", "train", "--all")[1] == "[a] one\n[b] two\n"
        assert sorted(call(capsys, "logs", "train", "--all", "-f")[1].splitlines()) == ["[a] one", "[b] two"]
        lines = call(capsys, "logs", "train", "--all", "--json")[1].splitlines()
        assert [json.loads(line) for line in lines] == [{"pod": "a", "line": "one"}, {"pod": "b", "line": "two"}]

    def test_no_pods(self, fill: Callable[..., None], capsys: Any) -> None:
        fill(job())
        code, _, err = call(capsys, "logs", "train")
        assert (code, "stayfast explain train" in err) == (2, True)


class TestCancel:
    def test_it_deletes_the_workload_and_its_pods_by_uid(
        self, server: ApiServer, fill: Callable[..., None], capsys: Any
    ) -> None:
        fill(job(), pod(), job("other", uid="o"), pod("other-x", owner="o", run="other"), SETTINGS)
        code, found = answer(capsys, "cancel", "train", "--dry-run")
        assert (code, found["deleted"], len(server.objects.table(JOBS))) == (0, ["Job/train"], 2)
        code, out, err = call(capsys, "cancel", "train")
        assert (code, out) == (0, "deleted Job/train in namespace ml\n")
        assert "submit again to resume" in err
        assert list(server.objects.table(JOBS)) == [("ml", "other")]
        assert list(server.objects.table(PODS)) == [("ml", "other-x")]
        assert list(server.objects.table(CONFIG_MAPS)) == [("ml", "train")]
        assert call(capsys, "cancel", "train")[0] == 2

    def test_jobs_of_a_set_go_with_the_set(self, server: ApiServer, fill: Callable[..., None], capsys: Any) -> None:
        child = job("gang-0", uid="c", labels={"stayfast.dev/run": "gang"})
        child["metadata"]["ownerReferences"] = [{"kind": "JobSet", "uid": "js"}]
        fill({**job("gang", uid="js"), "kind": "JobSet", "spec": {}}, child)
        assert answer(capsys, "cancel", "gang")[1]["deleted"] == ["JobSet/gang"]
        assert server.objects.table(JOBS) == {}


DESCRIPTION = {
    "name": "prod",
    "currentMasterVersion": "1.35.2-gke.1500000",
    "autopilot": {},
    "autoscaling": {"enableNodeAutoprovisioning": False},
    "nodePools": [
        {
            "name": "spot-l4",
            "config": {
                "spot": True,
                "accelerators": [{"acceleratorType": "nvidia-l4"}],
                "kubeletConfig": {"shutdownGracePeriodSeconds": 120},
            },
            "locations": ["us-central1-a"],
        },
        {"name": "flex", "config": {"flexStart": True}, "queuedProvisioning": {"enabled": True}},
    ],
}


class TestCheckCluster:
    def states(self, found: Any) -> dict[str, str]:
        return {check["name"]: check["state"] for check in found["checks"]}

    def test_a_plain_cluster(self, server: ApiServer, fill: Callable[..., None], capsys: Any) -> None:
        fill()
        code, found = answer(capsys, "check-cluster")
        states = self.states(found)
        assert code == 0
        assert states["version"] == "yes"
        assert (states["gke"], states["flex-start"], states["long-grace"]) == ("no", "no", "no")
        assert (states["kueue"], states["jobset"]) == ("yes", "yes")
        assert states["preemptible-quota"] == "unknown"

    @pytest.mark.parametrize(
        ("version", "flex", "grace"),
        [
            ("v1.32.1-gke.1652000", "no", "no"),
            ("v1.32.2-gke.1652000", "unknown", "no"),
            ("v1.35.0-gke.1170999", "unknown", "no"),
            ("v1.35.0-gke.1171000", "unknown", "yes"),
        ],
    )
    def test_versions(
        self, server: ApiServer, fill: Callable[..., None], capsys: Any, version: str, flex: str, grace: str
    ) -> None:
        fill()
        server.git_version = version
        states = self.states(answer(capsys, "check-cluster")[1])
        assert (states["flex-start"], states["long-grace"], states["gke"]) == (flex, grace, "yes")

    def test_a_description_without_a_cluster(self, tmp_path: Path, capsys: Any) -> None:
        path = tmp_path / "c.json"
        path.write_text(json.dumps(DESCRIPTION))
        code, found = answer(
            capsys, "check-cluster", "--offline", "--describe", str(path), "--require", "spot,flex-start,kueue"
        )
        states = self.states(found)
        assert (states["spot"], states["flex-start"], states["long-grace"], states["auto-provisioning"]) == (
            "yes",
            "yes",
            "yes",
            "no",
        )
        assert (code, found["missing"]) == (1, ["kueue"])
        code, out, _ = call(capsys, "check-cluster", "--offline", "--describe", str(path))
        assert code == 0
        assert "pool spot-l4: nvidia-l4 in us-central1-a" in out
        assert "spot-l4=120 s" in out

    def test_nodes_show_accelerators_and_a_forbidden_list_is_said(
        self, server: ApiServer, fill: Callable[..., None], capsys: Any
    ) -> None:
        labels = {"cloud.google.com/gke-accelerator": "nvidia-l4", "topology.kubernetes.io/zone": "us-central1-a"}
        fill(node(metadata={"labels": {**labels, "cloud.google.com/gke-spot": "true"}}))
        found = answer(capsys, "check-cluster")[1]
        evidence = {check["name"]: check["evidence"] for check in found["checks"]}
        assert evidence["accelerators"] == "1 × nvidia-l4 in us-central1-a"
        assert evidence["spot"].startswith("1 Spot nodes now")
        server.allowed = set()
        evidence = {check["name"]: check["evidence"] for check in answer(capsys, "check-cluster")[1]["checks"]}
        assert "not allowed to list nodes" in evidence["accelerators"]

    @pytest.mark.parametrize("text", ["", "{}", "[" * 100_000, "[1]", "null"])
    def test_files_that_are_no_description(self, tmp_path: Path, capsys: Any, text: str) -> None:
        path = tmp_path / "c.json"
        path.write_text(text)
        code, _, err = call(capsys, "check-cluster", "--offline", "--describe", str(path))
        assert (code, "no description of a cluster" in err) == (2, True)

    def test_misspelt_requirements(self, capsys: Any) -> None:
        assert call(capsys, "check-cluster", "--require", "flexstart")[0] == 2
        assert call(capsys, "check-cluster", "--offline")[0] == 2


COMMANDS = (["explain", "x"], ["status"], ["logs", "x"], ["cancel", "x"], ["check-cluster"])


class TestBadInput:
    @pytest.mark.parametrize("arguments", COMMANDS, ids=lambda arguments: arguments[0])
    def test_no_kubeconfig(
        self, arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
    ) -> None:
        monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
        monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
        code, out, err = call(capsys, *arguments)
        assert (code, out) == (3, "")
        assert err.count("\n") == 1
        assert "get-credentials" in err

    @pytest.mark.parametrize("arguments", COMMANDS, ids=lambda arguments: arguments[0])
    def test_expired_credentials(self, server: ApiServer, kubeconfig: Write, arguments: list[str], capsys: Any) -> None:
        server.tokens = {"fresh"}
        kubeconfig(user="{token: stale-secret}")
        code, out, err = call(capsys, *arguments)
        assert (code, out) == (3, "")
        assert "does not accept these credentials (401)" in err
        assert "stale-secret" not in err

    @pytest.mark.parametrize("arguments", COMMANDS, ids=lambda arguments: arguments[0])
    def test_a_wrong_context(self, kubeconfig: Write, arguments: list[str], capsys: Any) -> None:
        kubeconfig()
        code, _, err = call(capsys, *arguments, "--context", "prod")
        assert (code, "it has: test" in err) == (3, True)

    @pytest.mark.parametrize("arguments", COMMANDS, ids=lambda arguments: arguments[0])
    def test_a_server_that_hangs_up(
        self, server: ApiServer, kubeconfig: Write, arguments: list[str], capsys: Any
    ) -> None:
        kubeconfig()
        server.faults.append(Fault("drop", times=99))
        code, _, err = call(capsys, *arguments)
        assert (code, err.count("\n"), "cannot be reached" in err) == (3, 1, True)

    def test_a_forbidden_verb(self, server: ApiServer, kubeconfig: Write, capsys: Any) -> None:
        kubeconfig()
        server.allowed = set()
        code, _, err = call(capsys, "status")
        assert (code, "not allowed to list jobs.batch" in err) == (3, True)


def test_every_read_command_only_reads(server: ApiServer, fill: Callable[..., None], capsys: Any) -> None:
    fill(job(), pod(phase="Running", node="n1"))
    for arguments in (
        ["explain", "train"],
        ["status"],
        ["logs", "train"],
        ["check-cluster"],
        ["cancel", "train", "--dry-run"],
    ):
        call(capsys, *arguments)
    assert {verb for verb, _ in server.used} <= {"get", "list"}
    assert not any(resource.startswith("secrets") for _, resource in server.used)


def test_hostile_names_stay_data(server: ApiServer, fill: Callable[..., None], capsys: Any, tmp_path: Path) -> None:
    marker = tmp_path / "pwned"
    for name in (f"$(touch {marker})", "../../secrets", "a;b", "a%2f", "-n", "\x1b[31m"):
        for command in ("explain", "logs", "cancel", "status"):
            with pytest.raises(SystemExit) if name == "-n" else _nothing():
                assert call(capsys, command, name)[0] == 2
    assert not marker.exists()


class _nothing:
    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        pass
