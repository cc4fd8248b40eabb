"""``stayfast lint --cluster``: files judged against what is live, and what is live judged itself."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from servers.api_server import ApiServer, Fault
from stayfast.cli.lint_cluster import gather_live, written
from stayfast.cli.main import main
from stayfast.cluster.kubernetes.client import Client
from stayfast.cluster.kubernetes.resources import CLAIMS, JOBS, PRIORITY_CLASSES
from stayfast.lint.sources import Source

Write = Callable[..., Path]
POD: dict[str, Any] = {
    "restartPolicy": "Never",
    "priorityClassName": "low",
    "terminationGracePeriodSeconds": 15,
    "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}],
    "containers": [
        {"name": "main", "image": "us-docker.pkg.dev/p/r/i:v1", "volumeMounts": [{"name": "data", "mountPath": "/d"}]}
    ],
}
JOB: dict[str, Any] = {
    "apiVersion": "batch/v1",
    "kind": "Job",
    "metadata": {"name": "train", "namespace": "ml"},
    "spec": {"template": {"spec": POD}},
}


@pytest.fixture
def lint(kubeconfig: Write, tmp_path: Path, capsys: Any) -> Callable[..., tuple[int, dict[str, set[str]], str]]:
    kubeconfig(namespace="ml")
    path = tmp_path / "job.json"
    path.write_text(json.dumps(JOB))

    def call(*arguments: str) -> tuple[int, dict[str, set[str]], str]:
        names = [str(path) if name == "FILE" else name for name in arguments]
        code = main(["lint", "--format", "json", *names])
        out, err = capsys.readouterr()
        found: dict[str, set[str]] = {}
        for finding in json.loads(out)["findings"] if out else []:
            found.setdefault(finding["rule"], set()).add(finding["file"])
        return code, found, err

    return call


def test_what_the_cluster_has_is_not_missing(server: ApiServer, lint: Callable[..., Any]) -> None:
    _, found, _ = lint("--cluster", "FILE")
    assert "SF803" in found  # in neither place: certainly missing
    server.add(PRIORITY_CLASSES, {"metadata": {"name": "low"}, "value": -5})
    server.add(CLAIMS, {"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteMany"]}}, "ml")
    _, found, err = lint("--cluster", "FILE")
    assert err == ""
    assert not found.keys() & {"SF803", "SF404"}


def test_without_files_the_live_objects_are_judged(server: ApiServer, lint: Callable[..., Any]) -> None:
    value = {**JOB, "spec": {**JOB["spec"], "activeDeadlineSeconds": 3600}, "status": {"active": 1}}
    server.add(JOBS, value, "ml")
    child = json.loads(json.dumps(value))
    child["metadata"] |= {"name": "child", "ownerReferences": [{"controller": True, "uid": "x", "kind": "JobSet"}]}
    server.add(JOBS, child, "ml")
    server.add(JOBS, {**value, "metadata": {"name": "elsewhere"}}, "other")
    _, found, _ = lint("--cluster")
    assert found["SF803"] == {"cluster/test"}
    _, everywhere, _ = lint("--cluster", "-A")
    assert found.keys() <= everywhere.keys()


def test_the_file_stands_for_the_object_it_replaces(server: ApiServer, lint: Callable[..., Any]) -> None:
    server.add(PRIORITY_CLASSES, {"metadata": {"name": "low"}, "value": -5})
    server.add(JOBS, {**JOB, "spec": {**JOB["spec"], "maxParallelism": 3}}, "ml")
    _, found, _ = lint("--cluster", "FILE")
    assert "SF601" not in found
    assert all(not name.startswith("cluster/") for names in found.values() for name in names)


def test_a_kind_that_may_not_be_read_proves_nothing(server: ApiServer, lint: Callable[..., Any]) -> None:
    assert lint("--cluster", "--select", "SF803,SF404", "FILE")[0] == 1  # errors: everything was read
    server.allowed = {("list", "jobs.batch")}
    code, found, err = lint("--cluster", "--select", "SF803,SF404", "FILE")
    assert (code, found.keys()) == (0, {"SF803", "SF404"})  # still said, no longer as errors
    assert "priorityclasses.scheduling.k8s.io cannot be read, so its absence is not judged" in err


def test_it_only_looks_and_says_what_is_wrong(server: ApiServer, lint: Callable[..., Any], capsys: Any) -> None:
    assert lint("--cluster", "--fix", "FILE")[0] == 2
    server.faults.append(Fault("drop", times=99))
    code, found, err = lint("--cluster")
    assert (code, found, "cannot be reached" in err) == (3, {}, True)
    assert {method for method, _, _ in server.seen} == {"GET"}


def test_what_a_server_adds_is_not_linted(server: ApiServer, client: Client) -> None:
    metadata = {"name": "train", "managedFields": [{"manager": "x"}], "annotations": {
        "kubectl.kubernetes.io/last-applied-configuration": "{}"}}  # fmt: skip
    server.add(JOBS, {**JOB, "metadata": metadata, "status": {"active": 1}}, "ml")
    [item] = [item for item in gather_live(client, "ml").objects if item["kind"] == "Job"]
    assert item["metadata"] == {"name": "train", "namespace": "ml"}
    assert "status" not in item


def test_many_objects_are_cut_into_texts_that_can_be_read(server: ApiServer, client: Client) -> None:
    for number in range(30):
        spec = {"template": {"spec": {**POD, "containers": [{"name": "main", "image": "x", "args": ["y" * 90_000]}]}}}
        server.add(JOBS, {**JOB, "metadata": {"name": f"j{number:02d}"}, "spec": spec}, "ml")
    sources = gather_live(client, "ml").sources()
    assert len(sources) > 1
    assert len({source.name for source in sources}) == len(sources)
    assert all(len(source.text) < 2_000_000 for source in sources)


def test_names_in_files() -> None:
    text = "kind: Job\nmetadata: {name: a}\n---\nkind: PriorityClass\nmetadata: {name: b}\n"
    found = written(
        [Source("x.yaml", text), Source("p.tf", "resource"), Source("bad.yaml", "a: ["), Source("no", "", "gone")]
    )
    assert ("Job", "default", "a") in found
    assert ("PriorityClass", "", "b") in found
