"""The client over real sockets: what it sends, what it survives, what it says."""

from __future__ import annotations

import json
import os
import threading
from typing import Any

import pytest

from servers.api_server import ApiServer, Fault
from stayfast.clock import ManualClock
from stayfast.cluster.kubernetes.client import Client
from stayfast.cluster.kubernetes.endpoint import Endpoint
from stayfast.cluster.kubernetes.resources import BUDGETS, CONFIG_MAPS, JOBS, NODES, PODS, WORKLOADS
from stayfast.cluster.kubernetes.transport import parse
from stayfast.errors import (
    ClusterAccessError,
    ClusterUnreachableError,
    ObjectConflictError,
    ObjectMissingError,
    ObjectRefusedError,
    UsageError,
)

POD: dict[str, Any] = {"spec": {"containers": [{"name": "main", "image": "x"}], "restartPolicy": "Never"}}
JOB: dict[str, Any] = {
    "apiVersion": "batch/v1",
    "kind": "Job",
    "metadata": {"name": "train", "namespace": "default"},
    "spec": {"backoffLimit": 3, "template": POD},
}


def config_map(name: str, **data: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


def patient(server: ApiServer) -> tuple[Client, ManualClock]:
    clock = ManualClock()
    return Client(Endpoint(server.url, context="test"), clock=clock, silence_seconds=5.0), clock


class TestReading:
    def test_a_list_comes_in_pages(self, server: ApiServer, client: Client) -> None:
        for number in range(23):
            server.add(PODS, {"metadata": {"name": f"p{number:02d}"}})
        pages = list(client.pages(PODS, "default", limit=10))
        assert [len(page.items) for page in pages] == [10, 10, 3]
        names = [item["metadata"]["name"] for page in pages for item in page.items]
        assert names == [f"p{number:02d}" for number in range(23)]
        assert len({page.resource_version for page in pages}) == 1

    def test_a_list_that_outlives_its_version_goes_on(self, server: ApiServer, client: Client) -> None:
        for number in range(23):
            server.add(PODS, {"metadata": {"name": f"p{number:02d}"}})
        pages = client.pages(PODS, "default", limit=10)
        found = next(pages).items
        server.objects.forget_history()
        for page in pages:
            found += page.items
        assert len({item["metadata"]["name"] for item in found}) == len(found) == 23

    def test_selectors_narrow_it_on_the_server(self, server: ApiServer, client: Client) -> None:
        server.add(PODS, {"metadata": {"name": "a", "labels": {"stayfast.dev/run": "x"}}})
        server.add(PODS, {"metadata": {"name": "b"}, "status": {"phase": "Failed"}})
        assert [item["metadata"]["name"] for item in client.list(PODS, "default", labels="stayfast.dev/run")] == ["a"]
        assert [item["metadata"]["name"] for item in client.list(PODS, fields="status.phase=Failed")] == ["b"]

    def test_large_answers_come_compressed(self, server: ApiServer, client: Client) -> None:
        server.add(CONFIG_MAPS, config_map("big", text="x" * 300_000))
        assert client.get(CONFIG_MAPS, "default", "big")["data"]["text"] == "x" * 300_000

    def test_names_are_quoted_and_never_lead_elsewhere(self, server: ApiServer, client: Client) -> None:
        with pytest.raises(ObjectMissingError):
            client.get(PODS, "default", "a/../../secrets")
        assert server.seen[-1][1] == "/api/v1/namespaces/default/pods/a%2F..%2F..%2Fsecrets"
        for name in ("..", ".", ""):
            with pytest.raises(UsageError):
                client.get(PODS, "default", name)
        with pytest.raises(UsageError):
            client.get(PODS, "..", "a")

    def test_logs(self, server: ApiServer, client: Client) -> None:
        server.add(PODS, {"metadata": {"name": "a"}})
        server.logs["default", "a"] = "one\ntwo\n"
        assert list(client.log("default", "a", tail=10)) == [b"one\n", b"two\n"]


class TestWriting:
    def test_apply_creates_then_changes_and_owns_its_fields(self, server: ApiServer, client: Client) -> None:
        client.apply(CONFIG_MAPS, "default", config_map("a", one="1", two="2"))
        stored = client.apply(CONFIG_MAPS, "default", config_map("a", one="1"))
        assert stored["data"] == {"one": "1"}
        assert server.seen[-1][2] == {"fieldManager": "stayfast", "fieldValidation": "Strict"}

    def test_a_dry_run_changes_nothing(self, server: ApiServer, client: Client) -> None:
        client.apply(CONFIG_MAPS, "default", config_map("a"), dry_run=True)
        client.create(CONFIG_MAPS, "default", config_map("b"), dry_run=True)
        assert client.list(CONFIG_MAPS, "default") == []

    def test_somebody_elses_field_is_a_conflict_with_its_owner(self, server: ApiServer, client: Client) -> None:
        server.objects.apply(CONFIG_MAPS, "default", config_map("a", one="theirs"), {"fieldManager": "argocd"})
        with pytest.raises(ObjectConflictError, match=r"argocd manages \.data\.one; add --force-conflicts"):
            client.apply(CONFIG_MAPS, "default", config_map("a", one="ours"))
        assert client.apply(CONFIG_MAPS, "default", config_map("a", one="ours"), force=True)["data"] == {"one": "ours"}

    @pytest.mark.parametrize("way", ["create", "apply"])
    def test_an_unknown_field_is_refused_by_name(self, client: Client, way: str) -> None:
        value = {**JOB, "spec": {**JOB["spec"], "maxParallelism": 2}}
        with pytest.raises(ObjectRefusedError, match=r'unknown field "spec\.maxParallelism"'):
            getattr(client, way)(JOBS, "default", value)
        assert client.list(JOBS) == []

    def test_invalid_values_are_told_in_the_servers_words(self, client: Client) -> None:
        rule = {"action": "Ignore", "onExitCodes": {"operator": "In", "values": [0]}}
        value = {**JOB, "spec": {**JOB["spec"], "podFailurePolicy": {"rules": [rule]}}}
        value["spec"]["template"] = {"spec": {**POD["spec"]}}
        with pytest.raises(ObjectRefusedError, match="must not be 0 for the In operator"):
            client.apply(JOBS, "default", value)

    def test_deleting_is_idempotent_and_guards_against_a_namesake(self, server: ApiServer, client: Client) -> None:
        uid = server.add(JOBS, JOB)["metadata"]["uid"]
        with pytest.raises(ObjectConflictError, match="precondition"):
            client.delete(JOBS, "default", "train", uid="another")
        assert client.delete(JOBS, "default", "train", uid=uid) is True
        assert client.delete(JOBS, "default", "train") is False

    def test_an_eviction_that_a_budget_refuses(self, server: ApiServer, client: Client) -> None:
        server.add(PODS, {"metadata": {"name": "a", "labels": {"app": "x"}}})
        status = {"disruptionsAllowed": 0, "desiredHealthy": 2, "currentHealthy": 2}
        server.add(
            BUDGETS,
            {"metadata": {"name": "pdb"}, "spec": {"selector": {"matchLabels": {"app": "x"}}}, "status": status},
        )
        with pytest.raises(ObjectRefusedError, match="disruption budget pdb needs 2 healthy pods and has 2 currently"):
            client.evict("default", "a")
        assert len([path for _, path, _ in server.seen if path.endswith("/eviction")]) == 1  # no use in hammering

    def test_a_namespace_that_is_not_there(self, client: Client) -> None:
        with pytest.raises(ObjectMissingError, match="there is no namespace ml; run: kubectl create namespace ml"):
            client.create(JOBS, "ml", JOB)


class TestTrouble:
    @pytest.mark.parametrize("kind", ["drop", "reset", "torn", "503", "429"])
    def test_reading_survives_one_fault(self, server: ApiServer, kind: str) -> None:
        client, _ = patient(server)
        server.add(PODS, {"metadata": {"name": "a"}})
        server.faults.append(Fault(kind, "get"))
        assert client.get(PODS, "default", "a")["metadata"]["name"] == "a"

    def test_a_lost_answer_to_apply_is_sent_again(self, server: ApiServer) -> None:
        client, _ = patient(server)
        server.faults.append(Fault("apply_drop", "patch"))
        client.apply(CONFIG_MAPS, "default", config_map("a", one="1"))
        assert [verb for verb, _, _ in server.seen] == ["PATCH", "PATCH"]

    def test_a_lost_answer_to_create_is_not_sent_again(self, server: ApiServer) -> None:
        client, _ = patient(server)
        server.faults.append(Fault("apply_drop", "create"))
        with pytest.raises(ClusterUnreachableError):
            client.create(CONFIG_MAPS, "default", config_map("a"))
        assert [verb for verb, _, _ in server.seen] == ["POST"]

    def test_retry_after_is_kept(self, server: ApiServer) -> None:
        client, clock = patient(server)
        started = clock.monotonic()
        server.faults.append(Fault("429", retry_after="7", times=2))
        client.create(CONFIG_MAPS, "default", config_map("a"))
        assert clock.monotonic() - started == 14

    def test_a_server_that_stays_busy_is_one_sentence(self, server: ApiServer) -> None:
        client, _ = patient(server)
        server.faults.append(Fault("429", retry_after="1", times=99))
        with pytest.raises(ClusterUnreachableError, match="too busy to list pods"):
            client.list(PODS)
        assert len(server.seen) == 4

    def test_a_silent_server_is_given_up(self, server: ApiServer) -> None:
        clock = ManualClock()
        client = Client(Endpoint(server.url), clock=clock, silence_seconds=0.2)
        server.faults.append(Fault("stall", seconds=0.6, times=9))
        with pytest.raises(ClusterUnreachableError, match="timed out"):
            client.list(PODS)

    def test_no_server_at_all(self) -> None:
        client = Client(Endpoint("http://127.0.0.1:9", context="gke_proj_us-central1_prod"), clock=ManualClock())
        with pytest.raises(ClusterUnreachableError) as caught:
            client.list(PODS)
        assert "get-credentials prod --location us-central1 --project proj" in str(caught.value)

    def test_something_that_is_no_api_server(self, server: ApiServer, client: Client) -> None:
        server.faults.append(Fault("garbage"))
        with pytest.raises(ClusterUnreachableError, match="no object"):
            client.list(PODS)

    def test_a_forbidden_verb_names_the_question_to_ask(self, server: ApiServer, client: Client) -> None:
        server.allowed = {("get", "pods")}
        with pytest.raises(ClusterAccessError, match=r"kubectl auth can-i list jobs\.batch -n ml"):
            client.list(JOBS, "ml")
        with pytest.raises(ClusterAccessError, match=r"can-i list nodes$"):
            client.list(NODES)

    def test_a_missing_crd_says_what_is_not_installed(self) -> None:
        with ApiServer(crds=False) as server, Client(Endpoint(server.url)) as client:
            with pytest.raises(ObjectMissingError, match=r"Kueue is not installed.*stayfast check-cluster"):
                client.list(WORKLOADS, "default")
            assert client.find(WORKLOADS, "default", "x") is None

    def test_many_threads_share_one_client(self, server: ApiServer, client: Client) -> None:
        server.add(PODS, {"metadata": {"name": "a"}})
        found: list[str] = []

        def read() -> None:
            for _ in range(10):
                found.append(client.get(PODS, "default", "a")["metadata"]["name"])

        threads = [threading.Thread(target=read) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        assert found == ["a"] * 40


def test_a_forked_child_does_not_talk_on_its_parents_connection(server: ApiServer, client: Client) -> None:
    server.add(PODS, {"metadata": {"name": "a"}})
    client.get(PODS, "default", "a")
    before = client._transport._connections._idle[0][1]
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:  # nothing of pytest may run in here
        try:
            client.get(PODS, "default", "a")
            now = client._transport._connections._idle[0][1]
            os.write(writer, b"own" if now is not before else b"shared")
        finally:
            os._exit(0)
    os.close(writer)
    os.waitpid(child, 0)
    assert os.read(reader, 10) == b"own"
    os.close(reader)
    assert client.get(PODS, "default", "a")["metadata"]["name"] == "a"
    assert client._transport._connections._idle[0][1] is before


@pytest.mark.parametrize(
    "name",
    ["f:data", 'k:{\\"type\\":\\"Ready\\"}', 'k:{\\"name\\":\\"}]\\"}', "}]", 'v:\\"managedFields\\":[{}]', "ü]}"],
)
def test_who_manages_which_field_is_cut_out_and_nothing_else(name: str) -> None:
    managed = [{"manager": "m", "fieldsV1": {name: {}, "f:x": {"f:y": {}}}}]
    text = 'looks "managedFields":[{"like"}] it'
    item = {
        "metadata": {"annotations": {"a": text}, "name": "a", "managedFields": managed},
        "spec": {"managedFields": [1, {"kept": True}]},
    }
    for value in (item, {"items": [item, item, {"metadata": {}}]}):
        found = parse(json.dumps(value, separators=(",", ":")).encode())
        for before, after in zip(value.get("items", [value]), found.get("items", [found]), strict=True):
            after["metadata"].pop("managedFields", None)
            expected = {**before, "metadata": {**before["metadata"]}}
            expected["metadata"].pop("managedFields", None)
            assert after == expected
