"""Preflight and apply against the pretended server, with objects written by hand."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from cluster.scenarios import condition
from servers.api_server import ApiServer
from stayfast.clock import ManualClock
from stayfast.cluster.kubernetes.client import Client
from stayfast.cluster.kubernetes.resources import CLAIMS, CONFIG_MAPS, JOBS, NAMESPACES, NODES, PODS, QUOTAS
from stayfast.cluster.observed.bucket_location import check_region
from stayfast.cluster.observed.problem import ProblemSeverity
from stayfast.cluster.submission.apply import Action, apply_all, check_update, decide
from stayfast.cluster.submission.preflight import (
    TargetedObject,
    check_dependencies,
    dry_run_objects,
    missing_namespaces,
    pod_spec,
    resolve_resources,
)
from stayfast.errors import ClusterUnreachableError, ObjectRefusedError

POD: dict[str, Any] = {
    "restartPolicy": "Never",
    "serviceAccountName": "train",
    "priorityClassName": "train-low",
    "nodeSelector": {"cloud.google.com/gke-spot": "true"},
    "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "train-data"}}],
    "containers": [
        {"name": "main", "image": "x", "resources": {"limits": {"nvidia.com/gpu": "8"}, "requests": {"cpu": "4"}}}
    ],
}


def bundle(digest: str = "one", **pod: Any) -> list[dict[str, Any]]:
    def made(kind: str, version: str, name: str, **more: Any) -> dict[str, Any]:
        metadata = {"name": name, "annotations": {"stayfast.dev/spec-sha256": digest}}
        if kind not in ("PriorityClass", "Namespace"):
            metadata["namespace"] = "ml"
        return {"apiVersion": version, "kind": kind, "metadata": metadata, **more}

    template = {"spec": {**POD, **pod}}
    return [
        made("Namespace", "v1", "ml"),
        made("ServiceAccount", "v1", "train"),
        made("PriorityClass", "scheduling.k8s.io/v1", "train-low", value=-5),
        made("ConfigMap", "v1", "train", data={"a": "1"}),
        made("PersistentVolumeClaim", "v1", "train-data", spec={"accessModes": ["ReadWriteMany"],
             "resources": {"requests": {"storage": "1Ti"}}}),
        made("Job", "batch/v1", "train", spec={"parallelism": 2, "completions": 2, "template": template}),
    ]  # fmt: skip


@pytest.fixture
def spot_node(server: ApiServer) -> None:
    labels = {"cloud.google.com/gke-spot": "true", "topology.kubernetes.io/region": "us-central1"}
    server.add(NODES, {"metadata": {"name": "n1", "labels": labels}})


def placed_in(client: Client, objects: list[dict[str, Any]]) -> tuple[list[TargetedObject], TargetedObject]:
    placed, problems = resolve_resources(client, objects, "ml")
    assert problems == []
    return placed, placed[-1]


def submit(
    client: Client, objects: list[dict[str, Any]], *, replace: bool = False
) -> tuple[Action, list[tuple[str, str]]]:
    placed, workload = placed_in(client, objects)
    decision = decide(client, workload, replace=replace)
    check_update(client, workload, decision, force=False)
    return decision.action, apply_all(client, placed, workload, decision, clock=ManualClock())


class TestApply:
    def test_created_then_unchanged(self, server: ApiServer, client: Client) -> None:
        action, done = submit(client, bundle())
        assert action is Action.CREATE
        assert {result for _, result in done} == {"created"}
        before = server.objects.version
        action, done = submit(client, bundle())
        assert action is Action.NOTHING
        assert {result for _, result in done} == {"unchanged"}
        assert server.objects.version == before

    def test_settings_change_in_place_and_pods_do_not(self, server: ApiServer, client: Client) -> None:
        submit(client, bundle())
        objects = bundle("two")
        objects[3]["data"] = {"a": "2"}
        action, done = submit(client, objects)
        assert action is Action.UPDATE
        assert ("ConfigMap/ml/train", "updated") in done
        changed = bundle("three", terminationGracePeriodSeconds=15)
        with pytest.raises(
            ObjectRefusedError, match=r"is running, and its pods cannot be changed in place; add --replace"
        ):
            submit(client, changed)
        assert server.objects.table(CONFIG_MAPS)["ml", "train"]["data"] == {"a": "2"}
        action, _ = submit(client, changed, replace=True)
        assert action is Action.REPLACE
        job = server.objects.table(JOBS)["ml", "train"]
        assert job["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] == 15

    @pytest.mark.parametrize(
        ("kind", "digest", "action"),
        [("Failed", "one", Action.REPLACE), ("Complete", "one", Action.NOTHING), ("Complete", "two", Action.REPLACE)],
    )
    def test_what_has_ended(self, server: ApiServer, client: Client, kind: str, digest: str, action: Action) -> None:
        submit(client, bundle())
        server.objects.merge(JOBS, "ml", "train", {"status": {"conditions": [condition(kind)]}}, {})
        assert submit(client, bundle(digest))[0] is action

    def test_replacing_waits_for_the_old_pods_and_asks_for_that(self, server: ApiServer, client: Client) -> None:
        submit(client, bundle())
        uid = server.objects.table(JOBS)["ml", "train"]["metadata"]["uid"]
        metadata = {"name": "p", "ownerReferences": [{"uid": uid, "kind": "Job"}]}
        server.add(PODS, {"metadata": metadata}, "ml")
        submit(client, bundle("two"), replace=True)
        assert server.objects.table(PODS) == {}
        assert server.objects.table(JOBS)["ml", "train"]["metadata"]["uid"] != uid
        assert server.deletions[-1] == (
            "train",
            {
                "apiVersion": "v1",
                "kind": "DeleteOptions",
                "propagationPolicy": "Foreground",
                "preconditions": {"uid": uid},
            },
        )

    def test_one_that_does_not_go_is_given_up(
        self, server: ApiServer, client: Client, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        submit(client, bundle())
        monkeypatch.setattr(server.objects, "delete", lambda *_, **__: {})
        with pytest.raises(ClusterUnreachableError, match="is still there 900 s after it was deleted"):
            submit(client, bundle("two"), replace=True)


class TestPreflight:
    def test_all_refusals_at_once(self, server: ApiServer, client: Client) -> None:
        server.add(CONFIG_MAPS, {"metadata": {"name": "x"}}, "ml")
        objects = bundle()
        objects[3]["dta"] = {}
        objects[5]["spec"]["maxParallelism"] = 2
        placed, _ = placed_in(client, objects)
        problems = dry_run_objects(client, placed, force=False, absent=set())
        assert [problem.object for problem in problems] == ["ConfigMap/ml/train", "Job/ml/train"]
        assert 'unknown field "spec.maxParallelism"' in problems[1].sentence
        assert ("ml", "train") not in server.objects.table(JOBS)

    def test_a_kind_that_is_not_installed(self) -> None:
        from stayfast.cluster.kubernetes.endpoint import Endpoint

        queue = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "LocalQueue", "metadata": {"name": "q"}}
        with ApiServer(crds=False) as server, Client(Endpoint(server.url)) as client:
            placed, [problem] = resolve_resources(client, [queue], "ml")
            assert placed == []
            assert "no LocalQueue of kueue.x-k8s.io/v1beta2" in problem.sentence
        with ApiServer() as server, Client(Endpoint(server.url)) as client:
            [found], problems = resolve_resources(client, [queue], "ml")
            assert (found.resource.plural, found.namespace, problems) == ("localqueues", "ml", [])

    def test_a_namespace_that_is_new(self, server: ApiServer, client: Client) -> None:
        placed, _ = placed_in(client, bundle())
        absent = missing_namespaces(client, placed)
        assert absent == {"ml"}
        assert dry_run_objects(client, placed, force=False, absent=absent) == []
        [problem] = dry_run_objects(client, placed[1:], force=False, absent=absent)
        assert "kubectl create namespace ml" in problem.fix

    def needs(self, client: Client, objects: list[dict[str, Any]], only: list[int] | None = None) -> dict[str, str]:
        placed, workload = placed_in(client, objects)
        written = placed if only is None else [placed[index] for index in only]
        return {
            problem.object: problem.weight.value
            for problem in check_dependencies(client, written, workload.value, "ml")
        }

    def test_everything_is_there(self, server: ApiServer, client: Client, spot_node: None) -> None:
        assert self.needs(client, bundle()) == {}

    def test_what_the_server_does_not_look_at(self, server: ApiServer, client: Client, spot_node: None) -> None:
        assert self.needs(client, bundle(), only=[]) == {
            "PriorityClass/train-low": "error",
            "ServiceAccount/train": "error",
            "PersistentVolumeClaim/train-data": "error",
        }

    def test_claims_bound_bindable_and_lost(self, server: ApiServer, client: Client, spot_node: None) -> None:
        server.add(CLAIMS, {"metadata": {"name": "train-data"}, "spec": {}, "status": {"phase": "Bound"}}, "ml")
        assert self.needs(client, bundle(), only=[0, 1, 2]) == {}
        server.objects.merge(CLAIMS, "ml", "train-data", {"status": {"phase": "Lost"}}, {})
        assert self.needs(client, bundle(), only=[0, 1, 2]) == {"PersistentVolumeClaim/train-data": "error"}
        waiting = {"status": {"phase": "Pending"}, "spec": {"storageClassName": "none-such"}}
        server.objects.merge(CLAIMS, "ml", "train-data", waiting, {})
        assert self.needs(client, bundle(), only=[0, 1, 2]) == {"PersistentVolumeClaim/train-data": "error"}

    @pytest.mark.parametrize(
        ("hard", "used", "weight"),
        [("32", "0", None), ("16", "0", None), ("16", "1", "warning"), ("15", "0", "error")],
    )
    def test_quota_counts_all_pods(
        self, server: ApiServer, client: Client, spot_node: None, hard: str, used: str, weight: str | None
    ) -> None:
        name = "requests.nvidia.com/gpu"
        server.add(QUOTAS, {"metadata": {"name": "gpus"}, "status": {"hard": {name: hard}, "used": {name: used}}}, "ml")
        assert self.needs(client, bundle()) == ({"ResourceQuota/gpus": weight} if weight else {})

    def test_no_node_is_only_a_warning(self, server: ApiServer, client: Client) -> None:
        assert self.needs(client, bundle()) == {"Node": "warning"}

    def test_rights_that_are_missing_are_said(self, server: ApiServer, client: Client) -> None:
        server.allowed = set()
        _, workload = placed_in(client, bundle())
        problems = check_dependencies(client, [], workload.value, "ml")
        assert {problem.weight for problem in problems} == {ProblemSeverity.WARNING}
        assert len(problems) == 5

    def test_a_bucket_elsewhere(self, server: ApiServer, client: Client, spot_node: None) -> None:
        assert check_region(client, [], "us-central1") == []
        assert check_region(client, [], None) == []
        [problem] = check_region(client, ["s3://bucket/x"], "europe-west4")
        assert "the cluster's nodes are in us-central1" in problem.sentence

    def test_pods_of_a_gang(self) -> None:
        job = {"spec": {"parallelism": 4, "template": {"spec": POD}}}
        gang = {"kind": "JobSet", "spec": {"replicatedJobs": [{"replicas": 2, "template": job}]}}
        assert pod_spec(gang) == (POD, 8)


def test_the_namespace_of_the_bundle_is_made_first(server: ApiServer, client: Client) -> None:
    objects = copy.deepcopy(bundle())
    placed, workload = placed_in(client, objects)
    decision = decide(client, workload, replace=False)
    done = apply_all(client, placed, workload, decision, clock=ManualClock())
    assert done[0] == ("Namespace/ml", "created")
    assert ("", "ml") in server.objects.table(NAMESPACES)
