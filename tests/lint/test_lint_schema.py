"""Strict validation: what the API server refuses, with the version it depends on, and what was meant."""

from __future__ import annotations

import pytest
from lint_cases import MAIN, fired, good_job, lint, put

from stayfast.lint.schema.validator import validate, versions
from stayfast.text.suggest import closest, distance, field_like
from stayfast.text.units import quantity


def faults(value, version="1.36"):
    return [(fault.path, fault.kind) for fault in validate(value, value["apiVersion"], value["kind"], version)]


def test_the_good_job_is_valid_in_every_version():
    for version in versions():
        assert faults(good_job(), version) == []


def test_versions_reach_from_1_30_to_1_37():
    assert versions()[0] == "1.30"
    assert versions()[-1] == "1.37"


@pytest.mark.parametrize(
    ("path", "value", "expected"),
    [
        (("spec", "maxParallelism"), 8, (("spec", "maxParallelism"), "unknown")),
        (("spec", "parallelism"), "8", (("spec", "parallelism"), "type")),
        (("spec", "parallelism"), True, (("spec", "parallelism"), "type")),
        (("spec", "suspend"), "true", (("spec", "suspend"), "type")),
        (("spec", "template"), [], (("spec", "template"), "type")),
        ((*MAIN, "env"), {"A": "b"}, ((*MAIN, "env"), "type")),
        ((*MAIN, "env"), [{"name": "A", "value": 5}], ((*MAIN, "env", 0, "value"), "type")),
        ((*MAIN, "resources", "limits"), {"cpu": []}, ((*MAIN, "resources", "limits", "cpu"), "type")),
        (("metadata", "labels"), {"a": 1}, (("metadata", "labels", "a"), "type")),
        (("spec", "template", "spec"), {"restartPolicy": "Never"}, (("spec", "template", "spec"), "missing")),
    ],
)
def test_faults_are_found_where_they_are(path, value, expected):
    assert expected in faults(put(good_job(), path, value))


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("spec", "parallelism"), "${N}"),
        (("spec", "parallelism"), None),
        (("spec", "parallelism"), 2.0),
        ((*MAIN, "resources", "limits"), {"cpu": "500m", "memory": 1024, "x.io/y": 1.5}),
        ((*MAIN, "ports"), [{"containerPort": 80}]),
        (("status",), {"whatever": 1}),
        (("metadata", "managedFields"), [{"x": 1}]),
    ],
)
def test_what_the_server_takes_passes(path, value):
    assert faults(put(good_job(), path, value)) == []


def test_fields_belong_to_versions():
    job = put(good_job(), ("spec", "scheduling"), {})
    assert faults(job, "1.37") == []
    assert faults(job, "1.36") == [(("spec", "scheduling"), "version")]


@pytest.mark.parametrize(
    ("api", "kind", "use"),
    [
        ("policy/v1beta1", "PodDisruptionBudget", "policy/v1"),
        ("autoscaling/v2beta1", "HorizontalPodAutoscaler", "autoscaling/v2"),
        ("extensions/v1beta1", "Deployment", None),
        ("apps/v1beta1", "StatefulSet", "apps/v1"),
        ("batch/v1beta1", "CronJob", "batch/v1"),
    ],
)
def test_versions_that_are_gone(api, kind, use):
    found = list(validate({"apiVersion": api, "kind": kind}, api, kind, "1.36"))
    if use is None:
        assert found == []  # a group that no version has: nobody can say
    else:
        assert [fault.suggestion for fault in found] == [use]


def test_unknown_kinds_of_other_groups_pass_and_those_of_ours_do_not():
    assert list(validate({}, "example.com/v1", "Widget", "1.36")) == []
    assert [fault.kind for fault in validate({}, "batch/v1", "Jbo", "1.36")] == ["version"]


@pytest.mark.parametrize(
    "text",
    [
        "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nresources: [a.yaml]\n",
        "kind: Kustomization\nresources: [a.yaml]\n",
        "apiVersion: v1\nkind: Config\nclusters: []\n",
        "apiVersion: kind.x-k8s.io/v1alpha4\nkind: Cluster\nnodes: []\n",
        "apiVersion: config.kueue.x-k8s.io/v1beta1\nkind: Configuration\n",
        "kind: pipeline\nname: ci\n",
        "apiVersion: skaffold/v4beta6\nkind: Config\nbuild: {}\n",
        "kind: 5\napiVersion: []\n",
    ],
)
def test_files_that_only_look_like_manifests_are_left_alone(text):
    assert fired(text) <= {"SF601"}
    assert not [f for f in lint(text).findings if f.severity == "error"]


def test_a_manifest_without_its_version_is_not():
    assert fired("kind: Job\nspec: {}\n") == {"SF601"}


def custom(kind, api, spec):
    return {"apiVersion": api, "kind": kind, "metadata": {"name": "x"}, "spec": spec}


def test_custom_resources_misspellings_are_certain_and_unknown_fields_are_not():
    queue = custom("ClusterQueue", "kueue.x-k8s.io/v1beta1", {"resourceGroup": [], "brandNew": 1})
    found = {fault.path[-1]: fault for fault in validate(queue, queue["apiVersion"], queue["kind"], "1.36")}
    assert found["resourceGroup"].suggestion == "resourceGroups"
    assert found["resourceGroup"].is_certain
    assert not found["brandNew"].is_certain


def test_jobset_templates_are_checked_down_to_the_container():
    jobs = [{"name": "w", "template": {"spec": put(good_job(), (*MAIN, "imagee"), "x")["spec"]}}]
    value = custom("JobSet", "jobset.x-k8s.io/v1alpha2", {"replicatedJobs": jobs})
    (fault,) = validate(value, value["apiVersion"], value["kind"], "1.36")
    assert fault.path[-1] == "imagee"
    assert fault.suggestion == "image"
    assert fault.is_certain


@pytest.mark.parametrize(
    ("word", "meant"),
    [
        ("maxParallelism", "parallelism"),
        ("paralelism", "parallelism"),
        ("backofLimit", "backoffLimit"),
        ("Completions", "completions"),
        ("activeDeadlineSecond", "activeDeadlineSeconds"),
        ("zzz", None),
        ("x", None),
    ],
)
def test_did_you_mean(word, meant):
    assert field_like(word, ["parallelism", "completions", "backoffLimit", "activeDeadlineSeconds"]) == meant


def test_distance():
    assert distance("spot", "sopt", 2) == 1
    assert distance("abc", "abc", 1) == 0
    assert distance("abc", "xyz", 2) == 3
    assert distance("", "ab", 2) == 2
    assert closest("gke-spto", ["gke-spot", "gke-flex-start"]) == "gke-spot"
    assert closest("nothing", ["gke-spot"]) is None


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("500m", 0.5),
        ("2", 2.0),
        (3, 3.0),
        ("1Gi", 2.0**30),
        ("1e3", 1000.0),
        (".5", 0.5),
        ("1k", 1000.0),
        (1.5, 1.5),
        ("", None),
        ("abc", None),
        (None, None),
        (True, None),
        ([], None),
        ("${X}", None),
        ("1" * 100, None),
        ("1e9999", None),
    ],
)
def test_quantities(written, value):
    assert quantity(written) == value
