"""The reference page, the README of a bundle and the alerts say what is there, and nothing that is not."""

from __future__ import annotations

import argparse
import itertools
import re
import shlex
from pathlib import Path

import pytest
from render_cases import CASES, GANG, TRAIN, case, on, planned, rendered

from stayfast.cli import render as command
from stayfast.cli.commands import COMMANDS
from stayfast.render.objects.monitoring import pending_seconds

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "reference" / "render.md").read_text(encoding="utf-8")
ALL = sorted(CASES)


def test_every_option_is_documented():
    parser = argparse.ArgumentParser()
    command.configure(parser)
    options = {option for action in parser._actions for option in action.option_strings}
    for option in options - {"-h", "--help", "--file", "--directory", "-o", "--json"}:
        assert option in PAGE, option


def test_every_file_is_documented():
    for name in ALL:
        for file in case(name).files:
            folder = file.partition("/")[0] + "/"
            assert f"`{file}`" in PAGE or f"`{folder}`" in PAGE, file


def test_the_example_of_the_page_runs():
    program = PAGE.split("```python\n", 1)[1].split("```", 1)[0]
    spec, plan = planned(CASES["train-spot"].text)
    values = {"spec": spec, "plan": plan}
    exec(compile(program, "render.md", "exec"), values)
    assert values["bundle"].workload["kind"] == "Job"
    assert values["findings"](values["bundle"]) == []


@pytest.mark.parametrize("name", ALL)
def test_the_readme_lists_the_files_and_only_those(name):
    bundle = case(name)
    listed = re.findall(r"^\| `([^`]+)` \|", bundle.files["README.md"], re.MULTILINE)
    assert listed == [file for file in bundle.files if file != "README.md"]


def commands(readme):
    """The lines of the code blocks, continued lines joined, comments dropped."""
    blocks = re.findall(r"```\n(.*?)```", readme, re.DOTALL)
    text = "".join(blocks).replace("\\\n", " ")
    return [shlex.split(line, comments=True) for line in text.splitlines() if line.strip()]


@pytest.mark.parametrize("name", ALL)
def test_the_commands_of_the_readme_name_what_exists(name):
    bundle = case(name)
    known = {entry.name for entry in COMMANDS}
    for words in commands(bundle.files["README.md"]):
        if words[0] == "stayfast":
            assert words[1] in known, words
        for flag, value in itertools.pairwise(words):
            if flag in ("-f", "--patch-file") and value != ".":
                assert value in bundle.files, value
            if flag == "-n" and words[1] != "patch":
                assert value == bundle.outline.namespace


@pytest.mark.parametrize("name", ALL)
def test_removing_a_run_leaves_what_others_need(name):
    (delete,) = [words for words in commands(case(name).files["README.md"]) if words[:2] == ["kubectl", "delete"]]
    named = set(delete[3::2])
    top = {file for file in case(name).files if file.endswith(".yaml") and "/" not in file}
    assert named == top - {"00-namespace.yaml", "30-storage.yaml"}


def test_the_run_is_granted_what_it_opens_and_nothing_else():
    words = [" ".join(line) for line in commands(case("batch-spot").files["README.md"])]
    (bucket,) = [line for line in words if "storage buckets" in line]
    assert bucket.startswith(
        "gcloud storage buckets add-iam-policy-binding gs://bucket --role=roles/storage.objectUser"
    )
    assert bucket.endswith("/subject/ns/ml/sa/labels")
    (queue,) = [line for line in words if "pubsub" in line and line.startswith("gcloud")]
    assert "subscriptions add-iam-policy-binding images --project=project --role=roles/pubsub.subscriber" in queue
    assert not any("add-iam-policy-binding" in line for line in case("serve-one").files["README.md"].splitlines())


def test_the_namespace_comes_before_what_is_put_into_it():
    words = commands(case("batch-flex-secret").files["README.md"])
    namespace = words.index(["kubectl", "apply", "--server-side", "-f", "00-namespace.yaml"])
    secret = next(index for index, line in enumerate(words) if line[:3] == ["kubectl", "create", "secret"])
    assert namespace < secret


# --- alerts --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ALL)
def test_alerts_look_at_this_run_and_no_other(name):
    bundle = case(name)
    operator, managed = bundle.optional[-2:]
    assert operator["kind"] == "PrometheusRule"
    assert managed["kind"] == "ClusterRules"
    assert "namespace" not in managed["metadata"]
    assert operator["spec"] == managed["spec"]
    (group,) = operator["spec"]["groups"]
    alerts = {rule["alert"]: rule for rule in group["rules"]}
    assert f'namespace="{bundle.outline.namespace}"' in alerts["StayfastPending"]["expr"]
    pattern = re.search(r'pod=~"([^"]+)"', alerts["StayfastPending"]["expr"])[1]
    assert re.fullmatch(pattern, f"{bundle.outline.name}-abcde")
    assert not re.fullmatch(pattern, f"x{bundle.outline.name}-abcde")
    assert ("StayfastQueued" in alerts) == bundle.outline.is_queued
    assert ("StayfastFailed" in alerts) == (bundle.workload["kind"] != "Deployment")
    for rule in group["rules"]:
        assert rule["expr"].count("(") == rule["expr"].count(")")
        assert rule["expr"].count("{") == rule["expr"].count("}")
        assert re.fullmatch(r"\d+m", rule["for"])
        assert rule["annotations"]["summary"]
        assert rule["annotations"]["action"]


def test_patience_follows_the_spec_and_the_capacity():
    assert pending_seconds(case("train-spot").outline) < pending_seconds(case("train-flex").outline)
    asked = rendered(on(TRAIN, "flex-start", "tolerance: {longest_wait: 12h}\n"))
    assert pending_seconds(asked.outline) == 43_200
    assert pending_seconds(rendered(on(TRAIN, "on-demand", "tolerance: {longest_wait: 1m}\n")).outline) == 300


# --- advice --------------------------------------------------------------------------------------------------------


def test_what_a_person_must_know_is_said():
    assert any("CapacityRevoked" in sentence for sentence in case("train-queued-gang").advice)
    assert any("1.35.0-gke.1171000" in sentence for sentence in case("train-spot-long-grace").advice)
    assert any("gcloud 528.0.0" in sentence for sentence in case("train-spot-long-grace").advice)
    assert any("not confirmed" in sentence for sentence in case("train-spot-autopilot-long").advice)
    unused = rendered(on(GANG, "hybrid", "cluster: {pools: [a]}\n"))
    assert any("cluster.pools is not used" in sentence for sentence in unused.advice)


@pytest.mark.parametrize("name", ALL)
def test_advice_stands_in_the_readme(name):
    for sentence in case(name).advice:
        assert f"- {sentence}\n" in case(name).files["README.md"]
