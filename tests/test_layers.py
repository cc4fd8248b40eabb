"""The drawn layers are the real ones, and the house rules that a machine can check hold."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
MODULES = sorted((ROOT / "src" / "stayfast").rglob("*.py"))
BANNED_NAMES = {"utils", "helpers", "common", "core", "manager", "misc"}


def test_import_contracts_hold() -> None:
    script = Path(sys.executable).parent / "lint-imports"
    if not script.exists():
        pytest.fail("import-linter is missing; run: make venv") if os.environ.get("CI") else pytest.skip(
            "no import-linter"
        )
    ended = subprocess.run(
        [script, "--no-cache"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert ended.returncode == 0, ended.stdout


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT / "src")))
def test_no_module_is_a_drawer(path: Path) -> None:
    assert path.stem not in BANNED_NAMES
    tree = ast.parse(path.read_text())
    assert path.name == "__main__.py" or ast.get_docstring(tree), "every module says what it is"


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT / "src")))
def test_nothing_that_executes_what_it_reads(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import | ast.ImportFrom):
            names = [alias.name for alias in node.names] + [getattr(node, "module", None) or ""]
            assert not {"pickle", "marshal", "shelve"} & {name.partition(".")[0] for name in names}
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            assert node.func.id not in ("eval", "exec")


def test_the_signal_handler_only_records() -> None:
    """A handler that takes a lock or logs can deadlock the thread it interrupts."""
    tree = ast.parse((ROOT / "src/stayfast/runtime/interruption/signals.py").read_text())
    source = next(node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "SignalSource")
    handler = next(node for node in source.body if isinstance(node, ast.FunctionDef) and node.name == "_record")
    calls = {ast.unparse(node.func) for node in ast.walk(handler) if isinstance(node, ast.Call)}
    assert calls == {"os.getpid", "self._sockets[1].send", "bytes", "range", "time.sleep"}
    installed = [
        ast.unparse(node)
        for node in ast.walk(source)
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "signal.signal"
    ]
    assert "signal.signal(number, self._record)" in installed
