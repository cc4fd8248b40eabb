"""Where buckets are and what a region's quota allows: from Cloud Storage, from gcloud, or said to be unseen."""

from __future__ import annotations

import json
import stat
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from servers.api_server import ApiServer
from stayfast.cli.main import main
from stayfast.cluster.kubernetes.client import Client
from stayfast.cluster.kubernetes.endpoint import Endpoint
from stayfast.cluster.kubernetes.resources import NODES
from stayfast.cluster.observed import google_cloud
from stayfast.cluster.observed.bucket_location import Location, check_region, cluster_regions, locate
from stayfast.cluster.observed.capabilities import ClusterDescription, check_capabilities
from stayfast.cluster.observed.google_cloud import gcloud_json, region_of
from stayfast.errors import ClusterError

QUOTAS = [
    {"metric": "PREEMPTIBLE_NVIDIA_L4_GPUS", "limit": 16.0, "usage": 4.0},
    {"metric": "PREEMPTIBLE_NVIDIA_H100_GPUS", "limit": 0.0, "usage": 0.0},
    {"metric": "NVIDIA_L4_GPUS", "limit": 8.0, "usage": 0.0},
    {"metric": "PREEMPTIBLE_CPUS", "limit": 8.0, "usage": 0.0},
]


@pytest.fixture
def fake_gcloud(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """A gcloud on the PATH that does what a test says, and writes down how it was called."""
    folder = tmp_path / "sdk"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))

    def write(code: str) -> Path:
        calls = folder / "calls"
        program = folder / "gcloud"
        program.write_text(
            f"#!{sys.executable}\nimport json, sys, time\n"
            f"open({str(calls)!r}, 'a').write(json.dumps(sys.argv[1:]) + '\\n')\n{code}\n"
        )
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
        return calls

    return write


@pytest.fixture
def no_credentials(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("STORAGE_EMULATOR_HOST", raising=False)
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "none.json"))


class TestBuckets:
    @pytest.mark.parametrize(
        ("row", "region", "holds"),
        [
            ({"location": "US-CENTRAL1"}, "us-central1", True),
            ({"location": "EUROPE-WEST4"}, "us-central1", False),
            ({"location": "US"}, "us-central1", True),
            ({"location": "EU"}, "us-central1", False),
            ({"location": "NAM4"}, "us-east1", True),
            ({"location": "NAM4"}, "us-west1", False),
            (
                {"location": "US", "customPlacementConfig": {"dataLocations": ["US-WEST1", "US-EAST1"]}},
                "us-west1",
                True,
            ),
            ({"location": "US", "customPlacementConfig": {"dataLocations": ["US-WEST1"]}}, "us-central1", False),
            ({"location": "MARS4"}, "us-central1", None),
        ],
    )
    def test_cloud_storage_tells(
        self, bucket_server: Any, cloud_environment: Any, row: dict[str, Any], region: str, holds: bool | None
    ) -> None:
        cloud_environment("gs", bucket_server.url)
        bucket_server.places["b"] = row
        found, why = locate("b")
        assert found is not None, why
        assert found.contains_region(region) is holds

    def test_gcloud_is_asked_when_the_bucket_may_not_be(
        self, no_credentials: None, fake_gcloud: Callable[[str], Path]
    ) -> None:
        calls = fake_gcloud('print(json.dumps({"location": "US-EAST1", "location_type": "region"}))')
        assert locate("b; rm -rf /") == (Location("us-east1"), "")
        assert json.loads(calls.read_text())[:4] == ["storage", "buckets", "describe", "gs://b; rm -rf /"]

    def test_nobody_tells(self, server: ApiServer, client: Client, no_credentials: None, fake_gcloud: Any) -> None:
        fake_gcloud("sys.stderr.write('\\x1b[31mERROR: ya29.abcdefghijklmnopqrst expired\\n'); sys.exit(1)")
        [problem] = check_region(client, ["gs://b/runs", "gs://b/other", None], None)
        assert problem.weight.value == "warning"
        assert problem.sentence.startswith("could not see where gs://b is: ")
        assert "ya29" not in problem.sentence
        assert "\x1b" not in problem.sentence
        assert "gcloud storage buckets describe gs://b" in problem.fix
        assert check_region(client, ["s3://b/runs", "file:///x"], None) == []

    def test_against_the_nodes_and_against_the_file(
        self, server: ApiServer, client: Client, bucket_server: Any, cloud_environment: Any
    ) -> None:
        cloud_environment("gs", bucket_server.url)
        bucket_server.places["b"] = {"location": "US-CENTRAL1"}
        server.add(NODES, {"metadata": {"name": "n", "labels": {"topology.kubernetes.io/region": "us-central1"}}})
        assert check_region(client, ["gs://b/x"], "us-central1") == []
        [wrong] = check_region(client, ["gs://b/x"], "us-east1")
        assert "the file says us-east1" in wrong.sentence
        bucket_server.places["b"] = {"location": "ASIA-EAST1"}
        [far] = check_region(client, ["gs://b/x"], None)
        assert far.sentence == "it is in asia-east1, the cluster's nodes are in us-central1"

    def test_without_nodes_the_context_tells(self, server: ApiServer) -> None:
        with Client(Endpoint(server.url, context="gke_p_us-central1-a_prod")) as client:
            assert cluster_regions(client) == {"us-central1"}
        with Client(Endpoint(server.url, context="kind")) as client:
            assert cluster_regions(client) == set()
        assert [region_of(name) for name in ("us-central1", "us-central1-f")] == ["us-central1"] * 2


class TestGcloud:
    @pytest.mark.parametrize(
        ("code", "words"),
        [
            ("sys.exit(2)", "gcloud a b failed"),
            ("print('no json')", "no JSON"),
            ("print('[' * 100000)", "no JSON"),
            ("time.sleep(9)", "did not answer"),
        ],
    )
    def test_trouble_is_one_sentence(
        self, fake_gcloud: Any, monkeypatch: pytest.MonkeyPatch, code: str, words: str
    ) -> None:
        monkeypatch.setattr(google_cloud, "GCLOUD_SECONDS", 2.0)
        fake_gcloud(code)
        with pytest.raises(ClusterError, match=words):
            gcloud_json("a", "b")

    def test_not_installed(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("PATH", str(tmp_path))
        with pytest.raises(ClusterError, match="gcloud is not installed"):
            gcloud_json("a")


class TestQuota:
    def check(self, facts: ClusterDescription) -> Any:
        return next(check for check in check_capabilities(facts) if check.name == "preemptible-quota")

    def test_what_is_there(self) -> None:
        found = self.check(ClusterDescription(region={"name": "us-central1", "quotas": QUOTAS}))
        assert (found.state.value, found.evidence) == (
            "yes",
            "us-central1: PREEMPTIBLE_NVIDIA_L4_GPUS 4 of 16 used",
        )
        found = self.check(ClusterDescription(region={"name": "r", "quotas": QUOTAS[1:]}))
        assert (found.state.value, "is 0" in found.evidence) == ("no", True)

    @pytest.mark.parametrize(
        "rows", [None, 3, [None], [{"metric": 3}], [{"metric": "PREEMPTIBLE_X_GPUS", "limit": "9"}]]
    )
    def test_junk(self, rows: Any) -> None:
        assert self.check(ClusterDescription(region={"quotas": rows})).state.value == "no"

    def test_from_a_file(self, tmp_path: Path, capsys: Any) -> None:
        cluster, region = tmp_path / "c.json", tmp_path / "r.json"
        cluster.write_text(json.dumps({"currentMasterVersion": "1.35.2-gke.1500000", "nodePools": []}))
        region.write_text(json.dumps([{"name": "us-east4", "quotas": QUOTAS}]))
        files = ["--offline", "--describe", str(cluster), "--region-quota", str(region)]
        assert main(["check-cluster", *files, "--require", "preemptible-quota"]) == 0
        assert "us-east4: PREEMPTIBLE_NVIDIA_L4_GPUS 4 of 16 used" in capsys.readouterr().out
        region.write_text("{}")
        assert main(["check-cluster", *files]) == 2
        assert "is no description of a region" in capsys.readouterr().err

    def test_gcloud_is_asked_by_the_contexts_name(
        self, server: ApiServer, kubeconfig: Any, fake_gcloud: Any, capsys: Any
    ) -> None:
        path = kubeconfig()
        path.write_text(path.read_text().replace("test", "gke_proj_us-central1-a_prod"))
        calls = fake_gcloud(
            "print(json.dumps({'name': 'us-central1', 'quotas': "
            f"{QUOTAS!r}}} if sys.argv[1] == 'compute' else {{'autopilot': {{'enabled': True}}}}))"
        )
        assert main(["check-cluster", "--gcloud", "--json"]) == 0
        states = {row["name"]: row["state"] for row in json.loads(capsys.readouterr().out)["checks"]}
        assert (states["auto-provisioning"], states["preemptible-quota"]) == ("yes", "yes")
        asked = [json.loads(line) for line in calls.read_text().splitlines()]
        assert asked[0][:6] == ["container", "clusters", "describe", "prod", "--location", "us-central1-a"]
        assert asked[1][:6] == ["compute", "regions", "describe", "us-central1", "--project", "proj"]
        fake_gcloud("sys.stderr.write('not logged in\\n'); sys.exit(1)")
        assert main(["check-cluster", "--gcloud"]) == 0
        assert "gcloud container clusters describe failed: not logged in" in capsys.readouterr().out

    def test_another_context_does_not_tell(self, kubeconfig: Any, capsys: Any) -> None:
        kubeconfig()
        assert main(["check-cluster", "--gcloud"]) == 2
        assert "get-credentials" in capsys.readouterr().err
