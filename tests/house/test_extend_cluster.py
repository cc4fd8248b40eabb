"""A cause and an action of another package: an entry point each, and the commands know them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster.scenarios import TEMPLATE, job, seen_at
from servers.api_server import ApiServer
from stayfast.cluster.kubernetes.resources import JOBS

TOY = '''
from stayfast.cluster.diagnosis.diagnosis import Diagnosis, Verdict
from stayfast.cluster.kubernetes.resources import JOBS
from stayfast.cluster.observed.objects import meta, title
from stayfast.cluster.watch.actions.action import Action, PlannedAction, Verb, annotation, patch


def explain_license(observed, view):
    """A cause that only this package knows."""
    if annotation(view.root, "example.dev/license") != "none":
        return None
    return Diagnosis("license-missing", Verdict.ACT, "the licence server has no seat", (title(view.root),), "buy")


def ask(look):
    """Written into the Job once."""
    for row, root in look.roots():
        if look.diagnoses.of(root).code == "license-missing" and not annotation(root, "example.dev/asked"):
            step = patch(JOBS, root, {"metadata": {"annotations": {"example.dev/asked": "yes"}}})
            yield PlannedAction("ask-license", row.namespace, row.name, row.uid, f"{row.run} asks for a seat", (step,))


ASK = Action("ask-license", "ask for a seat", ((JOBS, Verb.PATCH),), ask)
'''
ENTRY_POINTS = """\
[stayfast.diagnosers]
license = toy_license:explain_license
[stayfast.actions]
ask-license = toy_license:ASK
"""


@pytest.fixture
def server() -> Iterator[ApiServer]:
    with ApiServer() as running, seen_at(time.time()):
        root = job(template=TEMPLATE)
        root["metadata"]["annotations"] = {"example.dev/license": "none"}
        running.add(JOBS, root, "ml")
        yield running


@pytest.fixture
def environment(server: ApiServer, tmp_path: Path) -> dict[str, str]:
    """A package outside ours, and the way to the cluster."""
    (tmp_path / "toy_license.py").write_text(TOY)
    metadata = tmp_path / "toy_license-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: toy-license\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(ENTRY_POINTS)
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "test",
        "contexts": [{"name": "test", "context": {"cluster": "c", "user": "u", "namespace": "ml"}}],
        "clusters": [{"name": "c", "cluster": {"server": server.url}}],
        "users": [{"name": "u", "user": {}}],
    }
    (tmp_path / "config").write_text(json.dumps(config))
    kept = {name: value for name, value in os.environ.items() if "PROXY" not in name.upper()}
    return kept | {"KUBECONFIG": str(tmp_path / "config"), "PYTHONPATH": str(tmp_path)}


def stayfast(environment: dict[str, str], *arguments: str) -> tuple[int, str, str]:
    command = [sys.executable, "-m", "stayfast", *arguments]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    return ended.returncode, ended.stdout, ended.stderr


def test_explain_gives_the_answer_of_an_installed_diagnoser(environment: dict[str, str]) -> None:
    code, out, err = stayfast(environment, "explain", "train", "--json")
    assert (code, json.loads(out)["code"]) == (1, "license-missing"), err


def test_a_watch_takes_an_installed_action_once(environment: dict[str, str], server: ApiServer) -> None:
    watch = ("watch", "--once", "--json", "--act", "ask-license")
    _, out, err = stayfast(environment, *watch)
    assert json.loads(out)["actions"] == [{"action": "ask-license", "object": "train", "result": "done"}], err
    assert server.objects.table(JOBS)["ml", "train"]["metadata"]["annotations"]["example.dev/asked"] == "yes"
    _, out, err = stayfast(environment, *watch)
    assert json.loads(out)["actions"] == [], err


def test_the_rights_of_an_installed_action_are_granted(environment: dict[str, str]) -> None:
    arguments = ("--manifests", "--image", "image:v1", "--json", "--act")
    rules = {}
    for name in ("copy-lease", "ask-license"):
        [role] = [
            item
            for item in json.loads(stayfast(environment, "watch", *arguments, name)[1])
            if item["kind"] == "ClusterRole"
        ]
        rules[name] = {rule["resources"][0]: rule["verbs"] for rule in role["rules"]}
    assert (rules["copy-lease"]["jobs"], rules["ask-license"]["jobs"]) == (
        ["list", "watch"],
        ["list", "patch", "watch"],
    )


def test_an_action_that_no_package_has_is_refused_with_those_there_are(environment: dict[str, str]) -> None:
    code, _, err = stayfast(environment, "watch", "--once", "--act", "buy-license")
    assert code == 2
    assert "there is no action 'buy-license'" in err
    assert "fall-back, ask-license" in err
