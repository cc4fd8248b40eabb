"""What a user can meet is written down: every code of ``explain``, every alert, every right that is used."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cluster.scenarios import job, pod
from servers.api_server import ApiServer
from stayfast.cli.main import main
from stayfast.cluster.kubernetes.resources import JOBS, PODS
from stayfast.cluster.observed.snapshot import Snapshot
from stayfast.cluster.watch.actions.action import ACTIONS
from stayfast.cluster.watch.metrics import exposition

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "reference" / "cluster.md").read_text()
SOURCES = [
    *(ROOT / "src/stayfast/cluster/diagnosis/causes").glob("*.py"),
    ROOT / "src/stayfast/cluster/diagnosis/diagnose.py",
]


def codes() -> set[str]:
    """First arguments of ``Diagnosis``, and codes in the tables beside them."""
    found = set()
    for path in SOURCES:
        text = path.read_text()
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "Diagnosis" and node.args:
                first = node.args[0]
                if isinstance(first, ast.Constant):
                    found.add(str(first.value))
            if isinstance(node, ast.Tuple):
                texts = [
                    item.value for item in node.elts if isinstance(item, ast.Constant) and isinstance(item.value, str)
                ]
                found |= {text for text in texts[:2] if re.fullmatch(r"[a-z]+(-[a-z]+)+|failed|deadline", text)}
    return found - {"flex-start"}  # a value, not a code


def test_every_code_is_documented() -> None:
    rows = PAGE.split("## Codes of explain", 1)[1].split("\n## ", 1)[0]
    documented = set(re.findall(r"`([a-z-]+)`", rows)) - {"completions"}
    assert codes() - documented == set()
    assert documented - codes() - {"out-of-memory", "interruptions-counted"} == set()


@pytest.mark.parametrize(
    ("arguments", "rights"),
    [
        (
            ["status"],
            {("list", kind) for kind in ("jobs", "jobsets", "deployments", "pods", "workloads", "configmaps")},
        ),
        (
            ["explain", "train"],
            {
                ("list", kind)
                for kind in (
                    "jobs", "jobsets", "deployments", "pods", "workloads", "provisioningrequests", "localqueues",
                    "events", "poddisruptionbudgets", "persistentvolumeclaims", "resourcequotas", "clusterqueues",
                    "nodes",
                )
            },
        ),
        (["logs", "train"], {("list", "pods"), ("get", "pods/log")}),
        (["cancel", "train"], {("list", "jobs"), ("delete", "jobs"), ("list", "jobsets"), ("list", "deployments"),
                               ("list", "configmaps")}),
        (["check-cluster"], {("list", "nodes")}),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)  # fmt: skip
def test_the_rights_that_are_used_are_those_documented(
    server: ApiServer, kubeconfig: Callable[..., Path], arguments: list[str], rights: set[tuple[str, str]], capsys: Any
) -> None:
    kubeconfig(namespace="ml")
    server.add(JOBS, job(), "ml")
    server.add(PODS, pod(phase="Running", node="n1"), "ml")
    main(arguments)
    assert {(verb, title.partition(".")[0]) for verb, title in server.used} == rights
    section = PAGE.split("## Rights", 1)[1]
    sentence = re.search(rf"`{arguments[0]}`(.*?)[;.]", section, re.DOTALL)
    assert sentence, arguments
    for _, kind in rights:
        assert kind.replace("/log", "") in sentence[1], kind
    capsys.readouterr()


def test_the_json_of_every_command_is_the_documented_one(
    server: ApiServer, kubeconfig: Callable[..., Path], capsys: Any
) -> None:
    kubeconfig(namespace="ml")
    server.add(JOBS, job(), "ml")
    server.add(PODS, pod(phase="Running", node="n1"), "ml")
    section = PAGE.split("## JSON", 1)[1].split("\n## ", 1)[0]
    for arguments in (["status"], ["explain", "train"], ["check-cluster"], ["cancel", "train", "--dry-run"]):
        main([*arguments, "--json"])
        found = json.loads(capsys.readouterr().out)
        inner = next(
            (value[0] for value in found.values() if isinstance(value, list) and value and isinstance(value[0], dict)),
            {},
        )
        for key in [*found, *inner]:
            assert f"`{key}`" in section or f"`{key}[]`" in section, (arguments, key)


def test_every_alert_metric_and_action_of_watch_is_documented() -> None:
    section = PAGE.split("## Alerts of watch", 1)[1].split("## Rights", 1)[0]
    source = (ROOT / "src/stayfast/cluster/watch/alerts.py").read_text()
    found = {
        str(node.args[0].value)
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "Alert" and isinstance(node.args[0], ast.Constant)
    }
    assert len(found) >= 5
    metrics = set(re.findall(r"stayfast_[a-z_]+", exposition(Snapshot(0.0), [], [], {"looks": 1})))
    for name in [*found, "gang-lease-ending", "lease-ending", *metrics, *ACTIONS.names()]:
        assert f"`{name}`" in section, name
