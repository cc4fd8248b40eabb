"""The pretended API server refuses what a real one refuses, in its words: else the scenarios would prove less."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from render.render_cases import CASES, case, template
from servers.api_admission import JOBSET_NAME
from servers.api_controllers import TRACKED
from servers.api_server import ApiServer
from stayfast.cluster.kubernetes.client import Client
from stayfast.cluster.kubernetes.resources import ACCOUNTS, CONFIG_MAPS, JOBS, NAMESPACES, PODS, PRIORITY_CLASSES
from stayfast.errors import ClusterAccessError, ObjectConflictError, ObjectMissingError, ObjectRefusedError

Change = Callable[[dict[str, Any]], Any]


def job(**spec: Any) -> dict[str, Any]:
    pod = {"restartPolicy": "Never", "containers": [{"name": "main", "image": "x"}]}
    rule = {"action": "Ignore", "onExitCodes": {"containerName": "main", "operator": "In", "values": [75, 143]}}
    body = {
        "parallelism": 4,
        "completions": 4,
        "podFailurePolicy": {"rules": [rule]},
        "template": {"spec": pod},
        **spec,
    }
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j"}, "spec": body}


def rule(**more: Any) -> dict[str, Any]:
    return {"podFailurePolicy": {"rules": [{"action": "Ignore", **more}]}}


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"template": {"spec": {"restartPolicy": "Never"}}}, "containers"),
        ({"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "main"}]}}}, "image"),
        ({"podFailurePolicy": None, "template": {"spec": {"containers": [{"name": "a", "image": "x"}]}}}, "OnFailure"),
        (rule(onExitCodes={"operator": "In", "values": [75, 0]}), "must not be 0"),
        (rule(onExitCodes={"operator": "In", "values": [143, 75]}), "ordered"),
        (rule(onExitCodes={"containerName": "gone", "operator": "In", "values": [75]}), "container"),
        (rule(), "one of OnExitCodes and OnPodConditions"),
        ({"backoffLimitPerIndex": 3}, "indexed"),
        ({"podReplacementPolicy": "TerminatingOrFailed"}, "Failed"),
    ],
)
def test_jobs_that_no_server_takes(client: Client, spec: dict[str, Any], words: str) -> None:
    with pytest.raises(ObjectRefusedError, match=words):
        client.create(JOBS, "default", job(**spec))


def test_what_may_change_on_a_job(client: Client) -> None:
    client.create(JOBS, "default", job())
    client.merge(JOBS, "default", "j", {"spec": {"parallelism": 2}})
    for change in (
        {"completions": 2},
        {"template": {"spec": {"nodeSelector": {"a": "b"}}}},
        {"podFailurePolicy": None},
    ):
        with pytest.raises(ObjectRefusedError, match="immutable"):
            client.merge(JOBS, "default", "j", {"spec": change})


@pytest.mark.parametrize(
    ("metadata", "words"),
    [
        ({"name": "Upper"}, "RFC 1123"),
        ({"name": "a", "labels": {"k": "not valid"}}, "label"),
        ({"name": "a/b"}, "1123"),
    ],
)
def test_names_and_labels(client: Client, metadata: dict[str, Any], words: str) -> None:
    with pytest.raises(ObjectRefusedError, match=words):
        client.create(CONFIG_MAPS, "default", {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata})


def restricted(client: Client) -> None:
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    client.apply(NAMESPACES, None, {"apiVersion": "v1", "kind": "Namespace",
                                    "metadata": {"name": "safe", "labels": labels}})  # fmt: skip


def pod() -> dict[str, Any]:
    found = copy.deepcopy(template(case("train-spot")))
    for name in ("serviceAccountName", "priorityClassName"):
        found["spec"].pop(name, None)
    return {**found, "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda spec: spec.pop("securityContext"), "runAsNonRoot"),
        (lambda spec: spec["securityContext"].pop("seccompProfile"), "seccompProfile"),
        (lambda spec: spec["containers"][0].pop("securityContext"), "allowPrivilegeEscalation"),
        (lambda spec: spec["containers"][0]["securityContext"]["capabilities"].pop("drop"), "capabilities"),
        (lambda spec: spec["volumes"].append({"name": "h", "hostPath": {"path": "/"}}), "hostPath"),
        (lambda spec: spec.update(hostNetwork=True), "host namespaces"),
        (lambda spec: spec["securityContext"].update(runAsUser=0), "runAsUser=0"),
    ],
)
def test_pod_security(client: Client, change: Change, words: str) -> None:
    restricted(client)
    good = pod()
    client.create(PODS, "safe", good, dry_run=True)
    change(good["spec"])
    with pytest.raises(ObjectRefusedError, match=words):
        client.create(PODS, "safe", good, dry_run=True)
    client.create(PODS, "default", good, dry_run=True)


def test_what_a_pod_needs_must_be_there(client: Client) -> None:
    for field, words in (("serviceAccountName", "service account"), ("priorityClassName", "no PriorityClass")):
        value = pod()
        value["spec"][field] = "none-such"
        with pytest.raises(ClusterAccessError, match=words):
            client.create(PODS, "default", value)


def test_the_status_has_a_way_of_its_own(server: ApiServer, client: Client) -> None:
    client.create(PODS, "default", {**pod(), "status": {"phase": "Succeeded"}})
    client.merge(PODS, "default", "p", {"status": {"phase": "Failed"}, "metadata": {"labels": {"a": "b"}}})
    found = client.get(PODS, "default", "p")
    assert (found["status"]["phase"], found["metadata"]["labels"]) == ("Pending", {"a": "b"})
    row = {"name": "main", "image": "x", "imageID": "x", "ready": False, "restartCount": 0}
    ended = {"phase": "Failed", "containerStatuses": [{**row, "state": {"terminated": {"exitCode": 75}}}]}
    client.merge(PODS, "default", "p", {"status": ended, "spec": {"nodeName": "n"}}, subresource="status")
    found = client.get(PODS, "default", "p")
    assert (found["status"]["phase"], "nodeName" in found["spec"]) == ("Failed", False)
    again = {"status": {"containerStatuses": [{**row, "state": {"running": {}}}]}}
    with pytest.raises(ObjectRefusedError, match="non-terminated"):
        client.merge(PODS, "default", "p", again, subresource="status")


def test_a_finalizer_holds_an_object_back(server: ApiServer, client: Client) -> None:
    server.add(PODS, {"metadata": {"name": "held", "finalizers": [TRACKED]}, "spec": {}})
    client.delete(PODS, "default", "held")
    found = client.get(PODS, "default", "held")
    assert found["metadata"]["deletionTimestamp"]
    server.objects.release(PODS, found, TRACKED)
    with pytest.raises(ObjectMissingError):
        client.get(PODS, "default", "held")


def test_budgets_do_not_count_what_does_not_run(server: ApiServer, client: Client) -> None:
    from stayfast.cluster.kubernetes.resources import BUDGETS

    budget = {"metadata": {"name": "b"}, "spec": {"selector": {"matchLabels": {"a": "b"}}}, "status": {}}
    server.add(BUDGETS, budget)
    for name, phase in (("waits", "Pending"), ("runs", "Running")):
        server.add(PODS, {"metadata": {"name": name, "labels": {"a": "b"}}, "status": {"phase": phase}, "spec": {}})
    client.evict("default", "waits")
    with pytest.raises(ObjectRefusedError, match="disruption budget"):
        client.evict("default", "runs")


def test_applying_something_new_needs_the_right_to_create(server: ApiServer, client: Client) -> None:
    value = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}}
    server.allowed = {("patch", "configmaps")}
    with pytest.raises(ClusterAccessError):
        client.apply(CONFIG_MAPS, "default", value)
    server.allowed |= {("create", "configmaps")}
    client.apply(CONFIG_MAPS, "default", value)
    server.allowed -= {("create", "configmaps")}
    seen = client.apply(CONFIG_MAPS, "default", {**value, "data": {"a": "b"}})["metadata"]["resourceVersion"]
    client.merge(CONFIG_MAPS, "default", "c", {"data": {"a": "c"}})
    with pytest.raises(ObjectConflictError, match="modified"):
        client.merge(CONFIG_MAPS, "default", "c", {"metadata": {"resourceVersion": seen}})


@pytest.mark.parametrize("name", [name for name in CASES if any(o["kind"] == "JobSet" for o in case(name).objects)])
def test_the_pods_of_rendered_job_sets_pass_its_webhook(client: Client, name: str) -> None:
    """All that is rendered, unchanged; a PriorityClass below 0 is what JobSet 0.11 and later refuse."""
    objects = copy.deepcopy(case(name).objects)
    for value in objects:
        if value["kind"] in ("Namespace", "ServiceAccount", "PriorityClass"):
            resource = {"Namespace": NAMESPACES, "ServiceAccount": ACCOUNTS}.get(value["kind"], PRIORITY_CLASSES)
            client.apply(resource, value["metadata"].get("namespace"), value)
    (job_set,) = (value for value in objects if value["kind"] == "JobSet")
    place = job_set["metadata"]["namespace"]
    for group in job_set["spec"]["replicatedJobs"]:
        pod = group["template"]["spec"]["template"]
        pod["metadata"] |= {"name": "rank-0", "annotations": {JOBSET_NAME: job_set["metadata"]["name"]}}
        made = client.create(PODS, place, {"apiVersion": "v1", "kind": "Pod", **pod})
        assert made["metadata"]["labels"]["jobset.sigs.k8s.io/priority"] == "0"
        below = {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": "low"},
            "value": -10,
        }
        client.apply(PRIORITY_CLASSES, None, below)
        pod["spec"]["priorityClassName"] = "low"
        pod["metadata"]["name"] = "rank-1"
        with pytest.raises(ObjectRefusedError, match=r"jobset.sigs.k8s.io/priority='-10': a valid label must be"):
            client.create(PODS, place, {"apiVersion": "v1", "kind": "Pod", **pod})
