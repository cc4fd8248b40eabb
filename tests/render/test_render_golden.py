"""What is rendered, byte for byte, and that nothing can be said against it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from render_cases import CASES, GOLDEN, as_golden, case

from stayfast.cluster.submission.prepare import findings, settings_for
from stayfast.documents import load_documents
from stayfast.lint.engine import lint_bundle
from stayfast.lint.objects.bundle import LintSettings
from stayfast.lint.schema.validator import has_schema, validate, versions
from stayfast.lint.sources import Source
from stayfast.render.bundle import MARKER

ALL = sorted(CASES)


@pytest.mark.parametrize("name", ALL)
def test_the_golden_file_is_what_is_rendered(name):
    expected = (GOLDEN / f"{name}.txt").read_text(encoding="utf-8")
    assert as_golden(name) == expected, "if it is meant: python tests/render/render_cases.py"


def test_no_golden_file_is_left_over():
    assert {path.stem for path in GOLDEN.glob("*.txt")} == set(CASES)


def test_the_matrix_is_wide_enough():
    kinds = {case(name).outline.spec.kind for name in ALL}
    capacities = {case(name).outline.capacity_text for name in ALL}
    modes = {case(name).outline.spec.cluster_mode for name in ALL}
    volumes = {case(name).outline.spec.volume_kind for name in ALL}
    assert len(ALL) >= 14
    assert len(kinds) == 4
    assert len(capacities) == 5
    assert len(modes) == 2
    assert volumes == {None, "filestore", "gcsfuse", "regional-disk"}


@pytest.mark.parametrize("name", ALL)
def test_our_own_linter_finds_nothing(name):
    assert findings(case(name)) == []


@pytest.mark.parametrize("name", ALL)
def test_nor_does_it_when_it_knows_nothing_of_the_cluster(name):
    sources = [Source(file, text) for file, text in case(name).files.items() if not file.endswith(".md")]
    report = lint_bundle(sources, LintSettings())
    assert report.findings == []
    assert report.objects == len(case(name).objects) + len(case(name).optional)


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("version", versions())
def test_every_version_of_kubernetes_accepts_the_fields(name, version):
    for item in case(name).objects:
        faults = list(validate(item, item["apiVersion"], item["kind"], version))
        assert faults == [], item["kind"]
        assert has_schema(item["apiVersion"], item["kind"])


@pytest.mark.parametrize("name", ALL)
def test_what_was_meant_is_what_a_reader_gets(name):
    bundle = case(name)
    read = [item for item in yaml.safe_load_all(bundle.manifests) if item is not None]
    assert read == bundle.objects
    ours = [document.value for document in load_documents(bundle.manifests, "all.yaml")]
    assert ours == bundle.objects  # and the gate, which reads as Kubernetes does


@pytest.mark.parametrize("name", ALL)
def test_every_file_carries_the_marker(name):
    for file, text in case(name).files.items():
        assert any(MARKER in line for line in text.split("\n")[:3]), file
        assert text.endswith("\n")
        assert "\t" not in text


@pytest.mark.parametrize("name", ALL)
def test_every_object_says_whose_it_is(name):
    bundle = case(name)
    run = bundle.outline.name
    for item in [*bundle.objects, *bundle.optional]:
        labels = item["metadata"]["labels"]
        assert labels["app.kubernetes.io/name"] == run
        assert labels["app.kubernetes.io/managed-by"] == "stayfast"
        assert labels["stayfast.dev/run"] == run
        assert item["metadata"]["annotations"]["stayfast.dev/spec-sha256"] == bundle.outline.digest
        assert len(item["metadata"]["name"]) <= 63


def test_the_settings_follow_the_cluster():
    assert settings_for(case("train-spot-long-grace").outline.spec).kubernetes == "1.35"
    assert settings_for(case("train-spot-autopilot").outline.spec).cluster_mode == "autopilot"
    assert settings_for(case("train-spot").outline.spec).kubernetes == LintSettings().kubernetes


def test_another_process_renders_the_same_bytes():
    """No set order, no hash seed, no clock."""
    program = "import render_cases as c; print(c.as_golden('train-queued-gang'), end='')"
    here = Path(__file__).resolve().parent
    for seed in ("0", "12345"):
        ended = subprocess.run(
            [sys.executable, "-c", program],
            env={"PYTHONPATH": f"{here}:{here.parents[1] / 'src'}", "PYTHONHASHSEED": seed, "PATH": "/usr/bin"},
            capture_output=True,
            text=True,
            timeout=120,
            check=True,
        )
        assert ended.stdout == as_golden("train-queued-gang")
