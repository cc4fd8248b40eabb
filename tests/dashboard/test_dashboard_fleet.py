"""The cluster on its page: read when somebody looks, once for all, and never in anybody's way."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fleet_world
import pytest
from dashboard_server import Dashboard, write_run

from cluster.scenarios import job, pod
from servers.api_server import ApiServer, Fault
from stayfast.cli.main import main
from stayfast.clock import ManualClock
from stayfast.cluster.observed.runs import Phase
from stayfast.dashboard.fleet_cache import FleetCache
from stayfast.dashboard.fleet_view import MOST_EXPLAINED, MOST_RUNS, WORDS, describe
from stayfast.dashboard.run_cache import to_json
from stayfast.dashboard.run_view import identify
from stayfast.errors import ClusterUnreachableError

# -- what the page is told


def told() -> dict[str, dict[str, Any]]:
    return {row["run"]: row for row in json.loads(to_json(describe(fleet_world.observed())))["runs"]}


def test_every_phase_has_words() -> None:
    assert set(WORDS) == set(Phase)
    assert len(set(WORDS.values())) == len(WORDS)


def test_phases_causes_interruptions_and_leases() -> None:
    runs = told()
    assert {name: row["words"] for name, row in runs.items()} == {
        "eval": "starting",
        "labels": "waiting for a machine",
        "vision-flex": "in the queue",
        "llm-7": "running",
        "sweep": "running",
        "ablation": "failed",
        "warm-up": "finished",
    }
    assert list(runs)[-2:] == ["ablation", "warm-up"]  # what has ended comes last
    assert runs["llm-7"]["interruptions"] == {"preemption": 2}
    assert runs["llm-7"]["run_id"] == identify("gs://bucket/runs/llm-7")
    assert runs["llm-7"]["why"] is None
    assert runs["labels"]["why"]["cause"]
    assert "labels has waited 32 min for spot" in runs["labels"]["alerts"][0]["sentence"]
    assert [alert["code"] for alert in runs["sweep"]["alerts"]] == ["lease-ending"]
    assert runs["vision-flex"]["why"]["verdict"] == "wait"
    assert runs["eval"]["why"]["code"] == "image"
    assert runs["sweep"]["lease_ends_at"] == pytest.approx(time.time() + 2400, abs=60)
    assert runs["llm-7"]["lease_ends_at"] is None
    assert runs["warm-up"]["why"] is None


def test_what_anybody_may_write_becomes_json_of_bounded_size() -> None:
    evil = "<img src=x onerror=hacked=1>" * 4000
    rows = fleet_world.objects()
    for value in rows:
        value.setdefault("status", {})
        if value["kind"] == "ConfigMap":
            value["data"] |= {"STAYFAST_USD_PER_HOUR": "nan", "STAYFAST_CAPACITY": evil, "RUN_URL": "\ud800" + evil}
        if value["kind"] == "Pod":
            value["status"]["conditions"] = [{"type": "PodScheduled", "status": "False", "message": evil}, None, 7]
    data = to_json(describe(fleet_world.observed(*rows)))
    assert len(data) < 60_000
    assert all(row["estimated_usd"] is None for row in json.loads(data)["runs"])


def test_thousands_of_runs_are_cut_and_counted() -> None:
    rows = [job(f"run-{number}", uid=f"u{number}", ago=number) for number in range(MOST_RUNS + 40)]
    found = describe(fleet_world.observed(*rows))
    assert (len(found["runs"]), found["more"]) == (MOST_RUNS, 40)
    assert sum(row["why"] is not None for row in found["runs"]) <= MOST_EXPLAINED


# -- when it looks


class Slow:
    """A cluster that answers when it is let."""

    name = "slow"

    def __init__(self) -> None:
        self.looks, self.let = 0, threading.Event()
        self.error: Exception | None = None

    def look(self) -> dict[str, Any]:
        self.looks += 1
        assert self.let.wait(60)
        if self.error is not None:
            raise self.error
        return {"namespace": "ml", "at": 1.0, "runs": [{"run": self.looks}], "more": 0, "unseen": {}}

    def close(self) -> None:
        self.let.set()


def test_many_who_ask_are_one_look_and_nobody_waits_for_long() -> None:
    fleet = Slow()
    clock = ManualClock()
    lookout = FleetCache(fleet, clock)

    async def scenario() -> None:
        answers = await asyncio.gather(*(lookout.latest() for _ in range(50)))
        assert fleet.looks == 1
        assert {json.dumps(answer["runs"]) for answer in answers} == {"[]"}
        clock.advance(9)
        assert "has not answered for 9 s" in (await lookout.latest())["trouble"]
        fleet.let.set()
        found = await settled(lookout)
        assert (found["runs"], found["trouble"]) == ([{"run": 1}], None)
        await lookout.latest()
        assert fleet.looks == 1  # too soon
        clock.advance(125)  # it had taken 9 s: the next look waits for two minutes at most
        assert (await lookout.latest())["runs"] == [{"run": 2}]
        fleet.error = ClusterUnreachableError("the cluster is away", help="check the network")
        clock.advance(125)
        found = await lookout.latest()
        assert found["runs"] == [{"run": 2}]  # what was seen stays, with the sentence beside it
        assert "away" in found["trouble"]
        fleet.error = KeyError("metadata")
        clock.advance(5)
        assert "could not be understood" in (await lookout.latest())["trouble"]

    asyncio.run(scenario())


async def settled(lookout: FleetCache) -> dict[str, Any]:
    for _ in range(500):
        found = await lookout.latest()
        if found["runs"]:
            return found
        await asyncio.sleep(0.01)
    raise AssertionError("nothing was found")


# -- the whole of it


@pytest.fixture
def cluster() -> Iterator[ApiServer]:
    with ApiServer() as server:
        fleet_world.fill(server)
        yield server


def eventually(dashboard: Dashboard, seconds: float = 30.0) -> dict[str, Any]:
    end = time.monotonic() + seconds
    while True:
        found: dict[str, Any] = dashboard.get("/api/fleet")
        if found["at"] is not None or found["trouble"]:
            return found
        assert time.monotonic() < end, found
        time.sleep(0.1)


def test_from_a_kubeconfig_to_the_page(cluster: ApiServer, tmp_path: Path) -> None:
    config = fleet_world.write_kubeconfig(tmp_path, cluster.url)
    with Dashboard(tmp_path, "--kubeconfig", str(config)) as dashboard:
        overview = dashboard.get("/api/overview")
        assert overview["fleet"] is True
        assert cluster.seen == []  # nobody has looked at the fleet yet
        found = eventually(dashboard)
        assert (found["name"], found["namespace"], found["trouble"]) == ("gke-research", "ml", None)
        assert len(found["runs"]) == 7
        asked = [path for _, path, _ in cluster.seen]
        assert not [path for path in asked if path.rpartition("/")[2] in ("llm-7", "llm-7-3", "n1")]
        lists = [path for path in asked if path.startswith("/api/v1/") or "/namespaces/" in path]
        assert len(lists) == len(set(lists))  # each kind once
        before = len(cluster.seen)
        for _ in range(20):
            dashboard.get("/api/fleet")
        assert len(cluster.seen) <= before + len(lists) + 5  # at most one more look, however many ask
        dashboard.get("/api/overview")
        assert dashboard.end() == 0


def test_without_rights_it_says_so(cluster: ApiServer, tmp_path: Path) -> None:
    config = fleet_world.write_kubeconfig(tmp_path, cluster.url)
    cluster.allowed = {("list", "jobs.batch"), ("list", "pods"), ("list", "configmaps")}
    with Dashboard(tmp_path, "--kubeconfig", str(config)) as dashboard:
        found = eventually(dashboard)
        assert len(found["runs"]) == 7
        assert "nodes" in " ".join(found["unseen"])
    cluster.allowed = {("list", "jobs.batch")}
    with Dashboard(tmp_path, "--kubeconfig", str(config)) as dashboard:
        found = eventually(dashboard)
        assert found["runs"] == []
        assert "pods" in found["trouble"]


@pytest.mark.parametrize("kind", ["refused", "silent", "garbage"])
def test_a_cluster_that_is_away_disturbs_no_other_page(kind: str, tmp_path: Path) -> None:
    write_run(tmp_path / "runs" / "a")
    listener = socket.create_server(("127.0.0.1", 0))
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    if kind == "refused":
        listener.close()
    with ApiServer() as server:
        if kind == "garbage":
            server.faults = [Fault("garbage", times=1000)]
            url = server.url
        config = fleet_world.write_kubeconfig(tmp_path, url)
        dashboard = Dashboard(tmp_path, str(tmp_path / "runs"), "--kubeconfig", str(config))
        try:
            for _ in range(3):
                dashboard.get("/api/fleet")
                assert dashboard.get("/api/overview")["runs"][0]["name"] == "a"
            if kind != "silent":
                assert eventually(dashboard)["trouble"]
        finally:
            started = time.monotonic()
            assert dashboard.end() == 0  # and it ends while the cluster is still silent
            assert time.monotonic() - started < 15
        assert "Traceback" not in dashboard.log.read_text()
    listener.close()


def test_without_a_cluster_there_is_no_fleet(tmp_path: Path) -> None:
    write_run(tmp_path / "runs" / "a")
    with Dashboard(tmp_path, str(tmp_path / "runs")) as dashboard:
        assert dashboard.get("/api/overview")["fleet"] is False
        answer = dashboard.ask("GET", "/api/fleet")
        assert answer.status == 404
        assert b"--cluster" in answer.body


def test_a_kubeconfig_that_is_none_is_said_at_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "config").write_text("contexts: 7\n")
    assert main(["dashboard", "--kubeconfig", str(tmp_path / "config")]) == 3
    assert "contexts" in capsys.readouterr().err


def test_a_pod_of_no_run_is_not_shown() -> None:
    stray = pod("stray", owner="nobody")
    assert describe(fleet_world.observed(stray))["runs"] == []
