"""Whatever a program can rely on is written down: names of the library, and names in JSON."""

from __future__ import annotations

import ast
import importlib.util
import json
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import stayfast
from stayfast.cli.commands import COMMANDS
from stayfast.cli.completion import describe
from stayfast.cli.main import main

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "src" / "stayfast"
JSON_PAGE = (ROOT / "docs" / "reference" / "json.md").read_text()
ELSEWHERE = {"demo", "rehearse", "status", "explain", "watch", "logs", "cancel", "check-cluster"}
ELSEWHERE |= {"dashboard", "queue dead", "prices refresh"}  # need a cluster, minutes, a browser or a network
WORDS = re.compile(r"`([a-z_]+)`")


def library_tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("make_library", ROOT / "tools" / "make_library_reference.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def listed_names(path: Path) -> set[str]:
    """``__all__`` of a module, read without importing it."""
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return set(ast.literal_eval(node.value))
    return set()


def test_every_public_name_is_on_the_page() -> None:
    surface = {module: {name for name, _ in names} for module, names in library_tool().SURFACE}
    assert set(stayfast.__all__) <= surface["stayfast"]
    for module, path in (
        ("stayfast.testing", PACKAGE / "testing.py"),
        ("stayfast.integrations.dcp", PACKAGE / "integrations" / "dcp.py"),
    ):
        assert listed_names(path) == surface[module], module
    written = (ROOT / "docs" / "reference" / "library.md").read_text()
    for module, names in surface.items():
        for name in names - {"RunOptions"}:
            assert f"### `{module}.{name}`" in written


def test_every_policy_and_integration_is_on_the_page() -> None:
    surface = {(file, name) for _, names in library_tool().SURFACE for name, file in names}
    policies = "runtime/checkpoint/policies.py"
    for node in ast.parse((PACKAGE / policies).read_text()).body:
        if isinstance(node, ast.ClassDef) and {"Cadence", "Retention"} & set(map(ast.unparse, node.bases)):
            assert (policies, node.name) in surface
    for path in (PACKAGE / "integrations").glob("[a-z]*.py"):
        if "_" in path.stem:
            continue  # the parts behind them
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                assert (f"integrations/{path.name}", node.name) in surface


def test_other_pages_import_only_what_is_public() -> None:
    surface = {module: {name for name, _ in names} for module, names in library_tool().SURFACE}
    errors = set(re.findall(r"^\| `(\w+)` \|", (ROOT / "docs/reference/errors.md").read_text(), re.MULTILINE))
    surface |= {"stayfast.errors": errors}
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.[mp][dy]")]
    for page in pages:
        if page.name == "extend.md":
            continue  # parts are written against the inside; tests/house/test_extend_*.py hold what the page shows
        for module, names in re.findall(r"^\s*from (stayfast[\w.]*) import ([\w, ]+)$", page.read_text(), re.MULTILINE):
            assert set(names.replace(" ", "").split(",")) <= surface.get(module, set()), f"{page.name}: {module}"


# -- JSON


def promised() -> dict[str, list[str]]:
    """Command and its names at the top."""
    table = JSON_PAGE.partition("## The parts")[0]
    return {
        command: WORDS.findall(cell.partition("with `--windows`")[0])
        for command, cell in re.findall(r"^\| `([a-z -]+)` \| (.*) \|$", table, re.MULTILINE)
    }


def parts() -> dict[tuple[str, str], set[str]]:
    """Command and list, and the names in each of its rows."""
    found = re.findall(r"^\| `([a-z]+)`[^|]*: each of `([a-z]+)` \| (.*) \|$", JSON_PAGE, re.MULTILINE)
    return {(command, name): set(WORDS.findall(cell.partition(";")[0])) for command, name, cell in found}


def test_every_command_with_json_is_on_the_page() -> None:
    documented = {name.split()[0] for name in promised()}
    wanted = set()
    for command in COMMANDS:
        options = {name for option in describe(command).options for name in option.names}
        if {"--output", "--format"} & options:
            wanted.add(command.name)
    assert documented == wanted


@pytest.mark.parametrize("command", sorted(ELSEWHERE))
def test_names_that_need_a_cluster_or_minutes_are_at_least_in_the_source(command: str) -> None:
    source = "".join(path.read_text() for path in PACKAGE.rglob("*.py"))
    for name in promised()[command]:
        assert re.search(rf"[\"\s]{name}(\"|:|=)", source), name


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run, a finished batch, a workload and a manifest."""
    folder = tmp_path_factory.mktemp("json")
    (folder / "tasks.py").write_text("import stayfast\n@stayfast.task(each=True)\ndef count(item): return 1\n")
    (folder / "traces.jsonl").write_text('{"id": "a", "gap_s": 600, "rle": [[1, 100]]}')
    (folder / "items.jsonl").write_text('{"id": "a"}\n{"id": "b"}\n')
    (folder / "job.yaml").write_text(
        "apiVersion: batch/v1\nkind: Job\nmetadata: {name: x}\nspec: {maxParallelism: 1}\n"
    )
    with stayfast.run(f"file://{folder}/run", total_steps=2) as run:
        list(run.steps())
    return folder


BATCH = ["--queue", "sqlite://./work.db", "--sink", "sqlite://./work.db?table=t"]
SCENARIO = ["--work-hours", "1", "--deadline-hours", "3", "--cold-start-hours", "0"]
SCENARIO += ["--on-demand-price", "2", "--spot-price", "1", "--nodes", "1"]
CASES = {
    "init": ["init", "train", "made"],
    "enqueue": ["enqueue", *BATCH[:2], "items.jsonl"],
    "work": ["work", "tasks:count", *BATCH],
    "queue status": ["queue", "status", *BATCH[:2]],
    "queue retry": ["queue", "retry", *BATCH[:2]],
    "audit": ["audit", *BATCH],
    "checkpoints ls": ["checkpoints", "ls", "file://./run"],
    "checkpoints verify": ["checkpoints", "verify", "file://./run"],
    "checkpoints prune": ["checkpoints", "prune", "file://./run"],
    "bill": ["bill", "file://./run", "--usd-per-hour", "1"],
    "plan": ["plan", "-f", "made/stayfast.yaml", "--replays", "80"],
    "simulate": ["simulate", "--traces", "traces.jsonl", "--policy", "greedy", *SCENARIO],
    "prices show": ["prices", "show"],
    "render": ["render", "-f", "made/stayfast.yaml", "-d", "deploy"],
    "submit": ["submit", "-f", "made/stayfast.yaml", "--dry-run", "client"],
    "lint": ["lint", "job.yaml", "--format", "json"],
    "doctor": ["doctor", "--json", "--", "sleep", "2"],
}


def test_the_page_says_what_the_commands_print(
    place: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(place)
    monkeypatch.setenv("STAYFAST_METADATA", "off")
    monkeypatch.setenv("PYTHONPATH", str(PACKAGE.parent))
    monkeypatch.setattr(sys, "path", [*sys.path])
    names, rows = promised(), parts()
    for command, arguments in CASES.items():
        main([*arguments, *([] if {"--format", "--json"} & {*arguments} else ["--json"])])
        printed: Any = json.loads(capfd.readouterr().out)
        top = printed[0] if isinstance(printed, list) else printed
        assert list(top) == names[command] or set(top) == set(names[command]), command
        for (owner, part), wanted in rows.items():
            if owner == command.split()[0] and part in top and top[part]:
                assert wanted <= set(top[part][0]), f"{command}: {part}"


def test_the_last_line_of_an_attempt_is_described(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with stayfast.run(f"file://{tmp_path}/run", total_steps=1) as run:
        list(run.steps())
    told = json.loads(capfd.readouterr().err.splitlines()[-1])
    assert list(told) == WORDS.findall(JSON_PAGE.partition("termination\nmessage:")[2].partition("(")[0])


def test_no_case_is_forgotten() -> None:
    assert set(promised()) - set(CASES) == ELSEWHERE
