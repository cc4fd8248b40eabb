"""Anything may stand anywhere: rules must judge or stay silent, never fail."""

from __future__ import annotations

import json
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lint_cases import SHARED, dump, good_job, lint

from stayfast.lint import rule_pages
from stayfast.lint.engine import lint_bundle
from stayfast.lint.objects.bundle import LintSettings
from stayfast.lint.sources import Source

GARBAGE = [
    None,
    True,
    0,
    -1,
    2**63,
    1.5,
    "",
    "x",
    "0",
    "${X}",
    [],
    {},
    [None],
    [[]],
    [{}],
    {"a": None},
    ["x", 1],
    {"kind": []},
]


def places(value, here=()):
    yield here
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from places(inner, (*here, key))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from places(inner, (*here, index))


def plant(value, path, garbage):
    if not path:
        return garbage
    place = value
    for part in path[:-1]:
        place = place[part]
    place[path[-1]] = garbage
    return value


def objects_of_all_pages():
    import yaml

    for code in rule_pages.codes():
        for kind, text in rule_pages.page(code).code_blocks("Example"):
            if kind == "yaml":
                yield from (value for value in yaml.safe_load_all(text) if value)


ZOO = [
    {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": "s"},
        "spec": {
            "failurePolicy": {
                "maxRestarts": 1,
                "rules": [{"action": "FailJobSet", "onJobFailureReasons": ["PodFailurePolicy"]}],
            },
            "replicatedJobs": [{"name": "w", "replicas": 2, "template": {"spec": good_job()["spec"]}}],
        },
    },
    {
        "apiVersion": "ray.io/v1",
        "kind": "RayCluster",
        "metadata": {"name": "r"},
        "spec": {
            "headGroupSpec": {"template": good_job()["spec"]["template"]},
            "workerGroupSpecs": [{"numOfHosts": 2, "replicas": 1, "template": good_job()["spec"]["template"]}],
        },
    },
    {
        "apiVersion": "leaderworkerset.x-k8s.io/v1",
        "kind": "LeaderWorkerSet",
        "metadata": {"name": "l"},
        "spec": {
            "replicas": 2,
            "leaderWorkerTemplate": {
                "size": 3,
                "leaderTemplate": good_job()["spec"]["template"],
                "workerTemplate": good_job()["spec"]["template"],
            },
        },
    },
    {
        "apiVersion": "kubeflow.org/v1",
        "kind": "MPIJob",
        "metadata": {"name": "m"},
        "spec": {
            "mpiReplicaSpecs": {
                "Launcher": {"replicas": 1, "template": good_job()["spec"]["template"]},
                "Worker": {"replicas": 2, "template": good_job()["spec"]["template"]},
            }
        },
    },
    {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": {"name": "v"},
        "spec": {"tasks": [{"replicas": 2, "template": good_job()["spec"]["template"]}]},
    },
    {
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "metadata": {"name": "c"},
        "spec": {"schedule": "0 0 * * *", "jobTemplate": {"spec": good_job()["spec"]}},
    },
    good_job(),
    *objects_of_all_pages(),
]


@pytest.mark.parametrize("seed", range(4))
def test_garbage_at_every_place_of_every_kind(seed):
    chooser = random.Random(seed)
    for value in ZOO:
        text = json.dumps(value)
        for path in chooser.sample(list(places(value)), k=min(12, len(list(places(value))))):
            planted = plant(json.loads(text), path, chooser.choice(GARBAGE))
            report = lint(json.dumps(planted))
            for finding in report.findings:
                assert finding.line >= 1
                json.dumps(finding.message)


def test_every_place_of_the_good_job_with_every_garbage():
    text = json.dumps(good_job())
    for path in places(good_job()):
        for garbage in GARBAGE[::3]:
            lint(json.dumps(plant(json.loads(text), path, garbage)))


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=10),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(
                ["kind", "apiVersion", "metadata", "spec", "template", "containers", "name", "items", "labels"]
            ),
            inner,
            max_size=5,
        )
    ),
    max_leaves=30,
)
_KINDS = st.sampled_from(
    ["Job", "Pod", "JobSet", "RayCluster", "PodDisruptionBudget", "ComputeClass", "List", "ClusterQueue"]
)


@settings(max_examples=150, deadline=None)
@given(_JSON, _KINDS)
def test_random_objects_never_crash(value, kind):
    lint(json.dumps({"apiVersion": "batch/v1", "kind": kind, "spec": value, "metadata": value, "items": value}))


@settings(max_examples=200, deadline=None)
@given(st.text(alphabet="kind: JobPodspec-\n #{}[]&*!|>'\"%@\t0", max_size=150))
def test_random_text_never_crashes(text):
    lint(text)


@settings(max_examples=100, deadline=None)
@given(st.text(alphabet='resource "google_container_node_pool" {}=\n[]1a#', max_size=200), st.text(max_size=80))
def test_random_terraform_shell_and_python_never_crash(terraform, other):
    create = f"gcloud container node-pools create {other}"
    lint(a__tf=f'resource "google_container_node_pool" "x" {{{terraform}', b__sh=create, c__py=f"SIGTERM\n{other}")


def test_findings_are_the_same_twice_and_sorted():
    texts = [dump(*ZOO[:6]), dump(*ZOO[6:])]
    first, second = lint(*texts).findings, lint(*texts).findings
    assert first == second
    assert [(f.file, f.line) for f in first] == sorted((f.file, f.line) for f in first)


# ---- the public corpus --------------------------------------------------------------------------------------------


def corpus():
    if not (SHARED / "corpus").is_dir():
        pytest.skip("the corpus of public manifests is not here")
    return sorted(path for path in (SHARED / "corpus").rglob("*") if path.suffix in (".yaml", ".yml"))


def test_labels():
    if not SHARED.is_dir():
        pytest.skip("the labels are not here")
    wrong = []
    for entry in json.loads((SHARED / "labels.json").read_text())["labels"]:
        names = entry.get("bundle") or [entry["file"]]
        report = lint_bundle([Source(name, (SHARED / name).read_text()) for name in names], LintSettings())
        found = {finding.rule for finding in report.findings}
        wrong += [(names[0], code, "missed") for code in entry["must_fire"] if code not in found]
        wrong += [(names[0], code, "false") for code in entry["must_not_fire"] if code in found]
    assert wrong == []


def test_the_corpus_is_read_without_a_crash_and_with_few_errors():
    """Errors are for what is certainly wrong; files of public projects mostly work."""
    with_errors = 0
    files = corpus()
    for path in files:
        report = lint_bundle([Source(str(path), path.read_text())], LintSettings())
        with_errors += any(finding.severity == "error" for finding in report.findings)
    assert with_errors / len(files) < 0.08


def test_broken_copies_of_the_corpus_never_crash():
    chooser = random.Random(11)
    for path in chooser.sample(corpus(), k=60):
        text = path.read_text()
        for _ in range(3):
            at = chooser.randrange(len(text))
            width = chooser.choice([1, 5, 80])
            lint(text[:at] + chooser.choice(["", "\t", "{", "- ", ": ", "'", "\n"]) + text[at + width :])
