"""``stayfast submit`` from the file to the objects on the server."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cluster.scenarios import condition
from render.render_cases import BATCH, CASES, GANG, SERVE, SWEEP, TRAIN, case
from servers.api_server import ApiServer, Fault
from stayfast.capacity.plan.assumptions import Assumptions
from stayfast.capacity.plan.planner import make_plan
from stayfast.cli.main import main
from stayfast.clock import SystemClock
from stayfast.cluster.kubernetes.client import Client
from stayfast.cluster.kubernetes.endpoint import Endpoint
from stayfast.cluster.kubernetes.resources import CONFIG_MAPS, DEPLOYMENTS, JOB_SETS, JOBS, NAMESPACES, NODES, PODS
from stayfast.cluster.observed import bucket_location
from stayfast.cluster.submission import prepare
from stayfast.cluster.submission.preflight import dry_run_objects, resolve_resources
from stayfast.cluster.watch.actions.fall_back import read_classes

Write = Callable[..., Path]


@pytest.fixture(autouse=True)
def _quick_plans(monkeypatch: pytest.MonkeyPatch) -> None:
    """The plan's own tests replay thousands; here any plan will do."""
    few = Assumptions(windows=40, most_ticks=60)
    monkeypatch.setattr(prepare, "make_plan", lambda spec, catalogue: make_plan(spec, catalogue, assumptions=few))


@pytest.fixture(autouse=True)
def _buckets_are_near(monkeypatch: pytest.MonkeyPatch) -> None:
    """``test_places`` asks servers where buckets are."""
    monkeypatch.setattr(bucket_location, "locate", lambda bucket: (bucket_location.Location("us-central1"), ""))


@pytest.fixture
def submit(server: ApiServer, kubeconfig: Write, tmp_path: Path, capsys: Any) -> Callable[..., Any]:
    kubeconfig()
    labels = {"topology.kubernetes.io/region": "us-central1", "cloud.google.com/gke-spot": "true"}
    server.add(NODES, {"metadata": {"name": "n1", "labels": labels}})

    def call(text: str, *arguments: str) -> tuple[int, dict[str, Any], str]:
        path = tmp_path / "stayfast.yaml"
        path.write_text(text)
        code = main(["submit", "-f", str(path), "--json", *arguments])
        out, err = capsys.readouterr()
        return code, json.loads(out) if out else {}, err

    return call


SPOT = TRAIN + "capacity: spot\n"


def test_the_first_submit_makes_everything_and_the_second_nothing(
    server: ApiServer, submit: Callable[..., Any]
) -> None:
    code, found, err = submit(SPOT)
    assert (code, err) == (0, "")
    assert (found["action"], found["workload"], found["capacity"]) == ("create", "Job/ml/llm-7", "spot")
    assert {row["result"] for row in found["objects"]} == {"created"}
    assert ("", "ml") in server.objects.table(NAMESPACES)
    assert found["cost_usd"]["p50"] > 0
    before = server.objects.version
    code, found, _ = submit(SPOT)
    assert (code, found["action"]) == (0, "nothing")
    assert {row["result"] for row in found["objects"]} == {"unchanged"}
    assert server.objects.version == before
    writes = [query for method, _, query in server.seen if method in ("PATCH", "POST")]
    assert all(query["fieldValidation"] == "Strict" and query["fieldManager"] == "stayfast" for query in writes)


@pytest.mark.parametrize("way", ["", "=client", "=server"])
def test_a_dry_run_keeps_nothing(server: ApiServer, submit: Callable[..., Any], way: str) -> None:
    before = server.objects.version
    code, found, _ = submit(SPOT, f"--dry-run{way}")
    assert code == 0
    assert server.objects.version == before
    assert len(found["objects"]) >= 4
    if way != "=server":
        assert server.seen == []


def test_a_changed_file_needs_replace_while_it_runs(server: ApiServer, submit: Callable[..., Any]) -> None:
    submit(SPOT)
    changed = SPOT.replace("trainer:v1", "trainer:v2")
    code, found, err = submit(changed)
    assert (code, found) == (1, {})
    assert "cannot be changed in place; add --replace" in err
    code, found, _ = submit(changed, "--replace")
    assert (code, found["action"]) == (0, "replace")
    pod = server.objects.table(JOBS)["ml", "llm-7"]["spec"]["template"]["spec"]
    assert pod["containers"][0]["image"].endswith("trainer:v2")


def test_a_failed_run_is_started_again(server: ApiServer, submit: Callable[..., Any]) -> None:
    submit(SPOT)
    server.objects.merge(JOBS, "ml", "llm-7", {"status": {"conditions": [condition("Failed")]}}, {})
    assert submit(SPOT)[1]["action"] == "replace"


def test_a_gang_goes_as_one_set(server: ApiServer, submit: Callable[..., Any]) -> None:
    code, found, _ = submit(GANG + "capacity: spot\n")
    assert (code, found["workload"]) == (0, "JobSet/ml/llm-7")
    assert ("ml", "llm-7") in server.objects.table(JOB_SETS)


def test_without_the_crds_it_says_what_is_missing_and_applies_nothing(
    kubeconfig: Write, tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ApiServer(crds=False) as server:
        config = kubeconfig()
        config.write_text(
            config.read_text().replace(config.read_text().split('server: "')[1].split('"')[0], server.url)
        )
        path = tmp_path / "stayfast.yaml"
        path.write_text(GANG + "capacity: spot\n")
        before = server.objects.version
        assert main(["submit", "-f", str(path)]) == 1
        err = capsys.readouterr().err
        assert "this cluster has no JobSet of jobset.x-k8s.io/v1alpha2; run: stayfast check-cluster" in err
        assert "nothing was applied" in err
        assert server.objects.version == before


def test_fields_of_others_are_not_taken_without_being_asked(server: ApiServer, submit: Callable[..., Any]) -> None:
    submit(SPOT)
    name = next(name for namespace, name in server.objects.table(CONFIG_MAPS) if namespace == "ml")
    query = {"fieldManager": "argocd"}
    server.objects.merge(CONFIG_MAPS, "ml", name, {"data": {"STAYFAST_CAPACITY": "theirs"}}, query)
    code, _, err = submit(SPOT)
    assert (code, "nothing was applied" in err) == (1, True)
    assert submit(SPOT, "--force-conflicts")[0] == 0
    assert server.objects.table(CONFIG_MAPS)["ml", name]["data"]["STAYFAST_CAPACITY"] == "spot"


def test_a_bucket_elsewhere_is_a_warning(server: ApiServer, submit: Callable[..., Any]) -> None:
    text = SPOT.replace("runs/llm-7}", "runs/llm-7, region: europe-west4}")
    code, found, _ = submit(text)
    assert code == 0
    [problem] = [problem for problem in found["problems"] if problem["object"] == "gs://bucket"]
    assert "the file says europe-west4" in problem["sentence"]


class TestClasses:
    """``--fall-back``: what the watch makes the run anew from."""

    def test_they_are_kept_beside_the_run_and_go_with_it(
        self, server: ApiServer, submit: Callable[..., Any], capsys: Any
    ) -> None:
        code, found, _ = submit(TRAIN, "--fall-back")
        assert code == 0
        names = [row["object"] for row in found["objects"]]
        assert names.index("ConfigMap/ml/llm-7-classes") < names.index(found["workload"])
        kept = server.objects.table(CONFIG_MAPS)["ml", "llm-7-classes"]
        rows = json.loads(kept["data"]["classes.json"])
        assert found["capacity"] not in [row["capacity"] for row in rows]
        assert rows[-1]["capacity"] == "on-demand"
        first = server.objects.table(JOBS)["ml", "llm-7"]
        for number, row in enumerate(rows, 1):
            marks = row["workload"]["metadata"]["annotations"]
            assert marks["stayfast.dev/class"] == str(number)
            assert marks["stayfast.dev/capacity"] == row["capacity"]
            assert marks["stayfast.dev/spec-sha256"] == first["metadata"]["annotations"]["stayfast.dev/spec-sha256"]
            variables = row["workload"]["spec"]["template"]["spec"]["containers"][0]["env"]
            assert {"name": "STAYFAST_CAPACITY", "value": row["capacity"]} in variables
        assert submit(TRAIN, "--fall-back")[1]["action"] == "nothing"
        assert main(["cancel", "llm-7", "-n", "ml", "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["deleted"] == ["ConfigMap/llm-7-classes", "Job/llm-7"]

    @pytest.mark.parametrize("text", [TRAIN, GANG, BATCH, SWEEP])
    def test_the_server_takes_what_is_kept(
        self, server: ApiServer, client: Client, submit: Callable[..., Any], text: str
    ) -> None:
        _, found, _ = submit(text, "--fall-back")
        place_of = found["namespace"]
        kept = next(item for (_, name), item in server.objects.table(CONFIG_MAPS).items() if name.endswith("-classes"))
        objects = [later.workload for later in read_classes(kept)]
        assert len(objects) >= 1
        for item in objects:
            item["metadata"]["name"] += "-tried"
        placed, problems = resolve_resources(client, objects, place_of)
        assert problems + dry_run_objects(client, placed, force=False, absent=set()) == []

    def test_the_same_file_after_a_fall_back_changes_nothing(
        self, server: ApiServer, client: Client, submit: Callable[..., Any]
    ) -> None:
        submit(TRAIN, "--fall-back")
        later = read_classes(server.objects.table(CONFIG_MAPS)["ml", "llm-7-classes"])[0]
        server.objects.delete(JOBS, "ml", "llm-7", None)
        client.field_manager = "stayfast-watch"
        client.create(JOBS, "ml", later.workload)
        code, found, err = submit(TRAIN, "--fall-back")
        assert (code, found["action"], err) == (0, "nothing", "")

    def test_a_file_that_names_its_class_has_none_to_fall_back_to(
        self, server: ApiServer, submit: Callable[..., Any]
    ) -> None:
        code, found, _ = submit(SPOT, "--fall-back")
        assert code == 0
        assert not any("classes" in row["object"] for row in found["objects"])


def test_waiting_ends_when_it_runs(
    server: ApiServer, submit: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    submit(SPOT)
    uid = server.objects.table(JOBS)["ml", "llm-7"]["metadata"]["uid"]
    metadata = {"name": "p", "labels": {"stayfast.dev/run": "llm-7"}, "ownerReferences": [{"kind": "Job", "uid": uid}]}
    server.add(PODS, {"metadata": metadata, "status": {"phase": "Pending"}}, "ml")
    pauses = []

    def start(_clock: Any, seconds: float) -> None:
        pauses.append(seconds)
        server.objects.merge(PODS, "ml", "p", {"status": {"phase": "Running"}}, {})

    monkeypatch.setattr(SystemClock, "sleep", start)
    code, found, err = submit(SPOT, "--wait")
    assert (code, found["explanation"]["code"], len(pauses)) == (0, "running", 1)
    assert "[not-seen-yet]" in err


def test_waiting_ends_when_somebody_has_to_act(server: ApiServer, submit: Callable[..., Any]) -> None:
    submit(SPOT)
    server.objects.merge(JOBS, "ml", "llm-7", {"metadata": {"creationTimestamp": "2026-01-01T00:00:00Z"}}, {})
    code, found, _ = submit(SPOT, "--wait")
    assert (code, found["explanation"]["code"]) == (1, "no-pods")


@pytest.mark.parametrize(
    ("text", "arguments", "code", "words"),
    [
        ("name: x\n", (), 2, "is missing"),
        (SPOT, ("-n", "other"), 2, "says namespace ml"),
        (SPOT.replace("project/repository/trainer", "trainer"), (), 1, "SF802"),
        (TRAIN + "deadline: 1h\n", (), 4, "nothing fits"),
    ],
)  # fmt: skip
def test_bad_files(
    submit: Callable[..., Any], server: ApiServer, text: str, arguments: Any, code: int, words: str
) -> None:
    before = server.objects.version
    found, _, err = submit(text, *arguments)
    assert (found, words in err) == (code, True), err
    assert server.objects.version == before


def test_a_server_that_goes_away_in_the_middle_is_resumed_by_the_next_submit(
    server: ApiServer, submit: Callable[..., Any]
) -> None:
    """Applied in part: the second submit does the rest."""
    server.faults.append(Fault("drop", "patch", "/jobs/", times=99))
    code, _, err = submit(SPOT)
    assert (code, "cannot be reached" in err) == (3, True)
    server.faults.clear()
    code, found, _ = submit(SPOT)
    results = {row["object"]: row["result"] for row in found["objects"]}
    assert (code, results["Job/ml/llm-7"]) == (0, "created")


def test_without_a_file(capsys: Any) -> None:
    assert main(["submit"]) == 2
    assert "add -f stayfast.yaml" in capsys.readouterr().err


@pytest.mark.parametrize("name", sorted(CASES))
def test_every_rendered_object_passes_strict_validation(server: ApiServer, client: Client, name: str) -> None:
    objects = case(name).objects
    placed, problems = resolve_resources(client, objects, "ml")
    assert problems == []
    for item in placed:
        if item.namespace and ("", item.namespace) not in server.objects.table(NAMESPACES):
            server.objects.create(NAMESPACES, "", {"metadata": {"name": item.namespace}})
    assert dry_run_objects(client, placed, force=False, absent=set()) == []
    assert len(placed) == len(objects)


def test_clients_share_nothing() -> None:
    assert Endpoint("https://a").credential is not Endpoint("https://a").credential


def test_an_endpoint_is_a_deployment_that_can_be_submitted_and_cancelled(
    server: ApiServer, submit: Callable[..., Any], capsys: Any
) -> None:
    code, found, err = submit(SERVE)
    assert (code, found["workload"]) == (0, "Deployment/serving/endpoint"), err
    assert submit(SERVE)[1]["action"] == "nothing"
    pod = {"metadata": {"name": "e-1", "labels": {"stayfast.dev/run": "endpoint"}}, "status": {"phase": "Running"}}
    pod["metadata"]["ownerReferences"] = [{"kind": "ReplicaSet", "uid": "rs"}]
    server.add(PODS, {**pod, "spec": {"nodeName": "n1"}}, "serving")
    code, found, err = submit(SERVE, "--wait")
    assert (code, found["explanation"]["code"]) == (0, "running"), err
    assert main(["cancel", "endpoint", "-n", "serving"]) == 0
    assert server.objects.table(DEPLOYMENTS) == {}
    capsys.readouterr()


def test_metrics_are_collected_where_the_cluster_knows_how(server: ApiServer, submit: Callable[..., Any]) -> None:
    code, found, _ = submit(SPOT)
    assert (code, found["objects"][-1]) == (0, {"object": "PodMonitoring/ml/llm-7", "result": "created"})
    assert submit(SPOT)[1]["objects"][-1]["result"] == "unchanged"
    server.resources[:] = [kind for kind in server.resources if kind.kind != "PodMonitoring"]
    code, found, err = submit(SPOT)
    assert (code, err) == (0, "")
    assert "PodMonitoring" not in str(found["objects"])


def test_a_run_starts_although_its_metrics_may_not_be_collected(server: ApiServer, submit: Callable[..., Any]) -> None:
    server.faults = [Fault("403", path="podmonitorings", times=10)]
    code, found, _ = submit(SPOT)
    assert (code, found["action"]) == (0, "create")
    assert "PodMonitoring" not in str(found["objects"])
