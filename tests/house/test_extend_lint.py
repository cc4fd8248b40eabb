"""A package outside ours adds a lint rule: it runs, is listed and explained, and a taken code is refused."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from toy_package import install

SOURCE = Path(__file__).resolve().parents[2] / "src"
TOY = '''
from stayfast.lint.finding import WARNING, Hit
from stayfast.lint.rule import OBJECT, rule

@rule("{code}", "needs-owner", OBJECT, "Job")
def needs_owner(item, bundle):
    """A Job without the label owner."""
    if "owner" not in item.labels:
        yield Hit(("metadata",), "say who owns this Job: add the label owner", WARNING)
'''
JOB = """\
apiVersion: batch/v1
kind: Job
metadata: {name: a}
spec: {template: {spec: {restartPolicy: Never, containers: [{name: a, image: "i:1"}]}}}
"""


@pytest.fixture
def lint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def run(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        install(tmp_path, monkeypatch, "toy_rule", TOY.format(code=code), "stayfast.lint_rules", "owner = toy_rule")
        environment = {**os.environ, "PYTHONPATH": f"{SOURCE}:{tmp_path}"}
        command = [sys.executable, "-m", "stayfast", "lint", *arguments]
        return subprocess.run(command, input=JOB, env=environment, capture_output=True, text=True, timeout=60)

    return run


@pytest.mark.parametrize("form", ["text", "json", "sarif", "junit", "github"])
def test_its_findings_are_reported_in_every_form(lint, form: str) -> None:
    ended = lint("SF999", "--format", form, "--select", "SF999", "-")
    assert "say who owns this Job" in ended.stdout, ended.stderr


def test_it_is_explained_by_its_function(lint) -> None:
    assert "A Job without the label owner." in lint("SF999", "--explain", "SF999").stdout


def test_a_code_is_never_used_twice(lint) -> None:
    ended = lint("SF104", "-")
    assert (ended.returncode, ended.stderr.count("\n")) == (2, 1)
    assert "SF104 already stands for another name; codes are never reused" in ended.stderr
