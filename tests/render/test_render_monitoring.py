"""Metrics of the pods: the port in the workload, the PodMonitoring beside it, and neither where nobody wants them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from render_cases import CASES, GANG, SERVE, TRAIN, case, container, environment, on, rendered, template

from stayfast.cluster.submission.prepare import findings
from stayfast.errors import UsageError
from stayfast.lint.engine import lint_bundle
from stayfast.lint.objects.bundle import LintSettings
from stayfast.lint.sources import Source
from stayfast.render.bundle import Bundle
from stayfast.render.directory import compare, write
from stayfast.render.objects.monitoring import METRICS_PORT, MONITORING_FILE
from stayfast.settings import read_settings

DOCS = Path(__file__).resolve().parents[2] / "docs"


def monitoring(bundle: Bundle) -> list[dict[str, Any]]:
    return [item for item in bundle.optional if item["kind"] == "PodMonitoring"]


@pytest.mark.parametrize("name", [name for name in CASES if not name.startswith("serve")])
def test_port_variable_and_scrape_agree(name: str) -> None:
    bundle = case(name)
    (item,) = monitoring(bundle)
    (endpoint,) = item["spec"]["endpoints"]
    (port,) = container(bundle)["ports"]
    assert (port["name"], port["containerPort"]) == (endpoint["port"], METRICS_PORT)
    assert len(port["name"]) <= 15  # what Kubernetes allows
    assert environment(bundle)["STAYFAST_METRICS_PORT"] == str(METRICS_PORT)
    assert read_settings(environment(bundle)).metrics_port == METRICS_PORT
    wanted = dict(item["spec"]["selector"]["matchLabels"])
    labels = template(bundle)["metadata"]["labels"]
    index = wanted.pop("batch.kubernetes.io/job-completion-index", None)
    assert wanted.items() <= labels.items()
    assert (index == "0") == bundle.outline.is_gang
    assert item["metadata"]["namespace"] == bundle.outline.namespace


def test_it_stands_beside_the_bundle_and_is_clean() -> None:
    bundle = case("train-spot")
    assert MONITORING_FILE in bundle.files
    assert "PodMonitoring" not in {item["kind"] for item in bundle.objects}  # `kubectl apply -f .` needs no such kind
    assert MONITORING_FILE in bundle.files["README.md"]
    assert findings(bundle) == []


def test_a_wrong_field_would_be_found() -> None:
    """So that the clean bundle above says something."""
    text = case("train-spot").files[MONITORING_FILE].replace("endpoints:", "endpoint:")
    found = lint_bundle([Source("pod-monitoring.yaml", text)], LintSettings()).findings
    assert any("endpoint" in item.message for item in found)


@pytest.mark.parametrize(
    "text", [on(TRAIN, "spot", "monitoring: none\n"), on(GANG, "spot", "monitoring: none\n"), SERVE]
)
def test_none_means_none(text: str) -> None:
    bundle = rendered(text)
    assert monitoring(bundle) == []
    assert MONITORING_FILE not in bundle.files
    assert "ports" not in container(bundle)
    assert "STAYFAST_METRICS_PORT" not in environment(bundle)
    assert "monitoring/" not in bundle.files["README.md"]


def test_none_removes_what_was_written_before(tmp_path: Path) -> None:
    """The file of a spec that was monitored is no longer generated, and an old one would still be applied."""
    before, after = rendered(TRAIN).files, rendered(on(TRAIN, "spot", "monitoring: none\n")).files
    write(str(tmp_path), before, compare(str(tmp_path), before), force=False)
    difference = compare(str(tmp_path), after)
    assert difference.extra == [MONITORING_FILE]
    write(str(tmp_path), after, difference, force=False)
    assert not (tmp_path / "monitoring").exists()
    assert compare(str(tmp_path), after).is_none


def test_another_word_is_refused() -> None:
    with pytest.raises(UsageError, match="monitoring"):
        rendered(on(TRAIN, "spot", "monitoring: datadog\n"))


def test_the_choice_is_part_of_the_digest() -> None:
    managed, none = rendered(on(TRAIN, "spot")), rendered(on(TRAIN, "spot", "monitoring: none\n"))
    assert managed.outline.digest != none.outline.digest


def test_the_documented_pod_monitoring_names_a_port_that_kubernetes_takes() -> None:
    text = (DOCS / "monitoring/pod-monitoring.yaml").read_text()
    named = re.search(r"containerPort (\d+), name ([a-z-]+)", text)
    assert named is not None
    assert f"port: {named[2]}" in text
    assert len(named[2]) <= 15
