"""The hook definition and the workflow example say things that our own command line accepts."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from stayfast.cli import lint
from stayfast.cli.commands import COMMANDS
from stayfast.cli.main import build_parser
from stayfast.documents import load_documents

ROOT = Path(__file__).parents[2]
HOOKS = load_documents((ROOT / ".pre-commit-hooks.yaml").read_text(), "hooks")[0].value
WORKFLOW = load_documents((ROOT / "docs/examples/lint-github-action.yml").read_text(), "workflow")[0].value


def accepts(command: str) -> None:
    """The command line parses; an option that we do not have ends the parser with SystemExit."""
    words = shlex.split(command.partition(" > ")[0].partition(" || ")[0])
    assert words[:2] == ["stayfast", "lint"]
    parser = build_parser(next(item for item in COMMANDS if item.name == "lint"))
    lint.configure(parser)
    parser.parse_args(words[2:] or ["k8s/"])


@pytest.mark.parametrize("hook", HOOKS, ids=lambda hook: hook["id"])
def test_every_hook_is_complete(hook):
    assert {"id", "name", "description", "entry", "language", "files"} <= set(hook)
    assert hook["language"] == "python"
    assert hook["require_serial"] is True  # files that belong together are linted together
    accepts(f"{hook['entry']} a.yaml")
    wanted = re.compile(hook["files"])
    assert wanted.search("k8s/job.yaml")
    assert wanted.search("k8s/job.yml")
    assert not wanted.search("README.md")


def test_the_workflow_runs_commands_that_exist():
    steps = WORKFLOW["jobs"]["lint"]["steps"]
    commands = [step["run"] for step in steps if "stayfast lint" in step.get("run", "")]
    assert len(commands) == 2
    for command in commands:
        accepts(command)


def test_the_workflow_asks_for_no_more_than_it_needs():
    assert WORKFLOW["permissions"] == {}
    assert WORKFLOW["jobs"]["lint"]["permissions"] == {"contents": "read", "security-events": "write"}
    uploads = [step for step in WORKFLOW["jobs"]["lint"]["steps"] if "upload-sarif" in step.get("uses", "")]
    assert uploads[0]["with"]["sarif_file"] == "lint.sarif"
