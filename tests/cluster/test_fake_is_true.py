"""The pretended API server against the real ``kubectl``: if that works, our client was not tested on our own fancy."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from servers.api_server import ApiServer
from stayfast.cluster.kubernetes.resources import JOBS, PODS

KUBECTL = shutil.which("kubectl")
pytestmark = pytest.mark.skipif(KUBECTL is None and not os.environ.get("CI"), reason="kubectl is not installed")

JOB = {
    "apiVersion": "batch/v1",
    "kind": "Job",
    "metadata": {"name": "train", "namespace": "default"},
    "spec": {
        "backoffLimit": 3,
        "template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "x"}]}},
    },
}


@pytest.fixture
def kubectl(
    server: ApiServer, kubeconfig: Callable[..., Path], tmp_path: Path
) -> Callable[..., subprocess.CompletedProcess[str]]:
    config = kubeconfig()

    def call(*arguments: str, stdin: object = None) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "HOME": str(tmp_path), "KUBECONFIG": str(config)}
        text = None if stdin is None else json.dumps(stdin)
        assert KUBECTL is not None
        return subprocess.run(
            [KUBECTL, *arguments], env=environment, input=text, capture_output=True, text=True, timeout=60
        )

    return call


def test_get_and_describe_what_is_there(
    server: ApiServer, kubectl: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    server.add(PODS, {"metadata": {"name": "a"}, "status": {"phase": "Running"}})
    found = kubectl("get", "pods", "-o", "json")
    assert found.returncode == 0, found.stderr
    assert [item["metadata"]["name"] for item in json.loads(found.stdout)["items"]] == ["a"]
    missing = kubectl("get", "pod", "b")
    assert 'pods "b" not found' in missing.stderr


def test_server_side_apply_conflicts_and_strict_fields(
    server: ApiServer, kubectl: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    applied = kubectl("apply", "--server-side", "-f", "-", stdin=JOB)
    assert applied.returncode == 0, applied.stderr
    assert "serverside-applied" in applied.stdout
    again = {**JOB, "spec": {**JOB["spec"], "backoffLimit": 5}}  # type: ignore[dict-item]
    other = kubectl("apply", "--server-side", "--field-manager=someone", "-f", "-", stdin=again)
    assert other.returncode != 0
    assert 'conflict with "kubectl"' in other.stderr
    assert ".spec.backoffLimit" in other.stderr
    forced = kubectl("apply", "--server-side", "--field-manager=someone", "--force-conflicts", "-f", "-", stdin=again)
    assert forced.returncode == 0, forced.stderr
    bad = {**JOB, "metadata": {"name": "bad"}, "spec": {**JOB["spec"], "maxParallelism": 1}}  # type: ignore[dict-item]
    created = kubectl("create", "-f", "-", stdin=bad)
    assert 'unknown field "spec.maxParallelism"' in created.stderr
    assert list(server.objects.table(JOBS)) == [("default", "train")]


def test_logs_delete_and_refusals(server: ApiServer, kubectl: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    server.add(PODS, {"metadata": {"name": "a"}, "spec": {"containers": [{"name": "main", "image": "x"}]}})
    server.logs["default", "a"] = "hello\n"
    assert kubectl("logs", "a").stdout == "hello\n"
    server.allowed = {("get", "pods")}
    refused = kubectl("delete", "pod", "a", "--wait=false")
    assert 'cannot delete resource "pods"' in refused.stderr
    server.allowed = None
    assert kubectl("delete", "pod", "a", "--wait=false").returncode == 0
    assert server.objects.table(PODS) == {}
