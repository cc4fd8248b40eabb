"""What gets imported, and when: the standard library alone until something else is used."""

from __future__ import annotations

import ast
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parents[2] / "src"
HEAVY = {"yaml", "rich", "numpy", "torch", "xxhash", "obstore", "psycopg", "click", "httpx", "google"}
SLOW_STDLIB = {
    "asyncio",
    "subprocess",
    "multiprocessing",
    "tempfile",
    "shutil",
    "http.client",
    "email",
    "urllib.request",
    "ssl",
}
RUNTIME_SIDE = [
    "errors.py",
    "clock.py",
    "filesystem.py",
    "randomness.py",
    "version.py",
    "__init__.py",
    "model",
    "process",
    "telemetry",
    "runtime",
    "batch/worker",
]


def modules_after(code: str) -> set[str]:
    program = (
        f"import sys, json\nbefore = set(sys.modules)\n{code}\nprint(json.dumps(sorted(set(sys.modules) - before)))"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": str(SOURCE), "STAYFAST_METADATA": "off"},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return set(json.loads(ended.stdout.splitlines()[-1]))


def foreign(modules: set[str]) -> set[str]:
    tops = {name.partition(".")[0] for name in modules} - {"__mp_main__"}  # multiprocessing's name for __main__
    return {top for top in tops if top not in sys.stdlib_module_names and top != "stayfast"}


@pytest.mark.parametrize(
    "code",
    [
        "import stayfast",
        "import stayfast; stayfast.run; stayfast.guard; stayfast.Notice; stayfast.Cause",
        "import stayfast\nwith stayfast.run('memory://x', total_steps=2) as run:\n    for step in run.steps(): pass",
        "import stayfast.cli.main, stayfast.cli.exec",
    ],
)
def test_the_standard_library_alone(code: str) -> None:
    assert foreign(modules_after(code)) == set()


def test_importing_stayfast_loads_nothing_of_the_runtime() -> None:
    loaded = modules_after("import stayfast")
    assert not {
        name
        for name in loaded
        if name.startswith(("stayfast.runtime", "stayfast.storage.stores", "stayfast.runtime.checkpoint"))
    }
    assert not loaded & SLOW_STDLIB


@pytest.mark.parametrize(
    "code", ["from stayfast.cli.main import main; main(['--help'])", "import stayfast.cli.main, stayfast.cli.exec"]
)
def test_help_and_exec_stay_light(code: str) -> None:
    loaded = modules_after(code)
    assert not loaded & (HEAVY | SLOW_STDLIB | {"dataclasses", "inspect", "datetime", "difflib"})


def test_the_import_is_cheap_next_to_the_interpreter_itself() -> None:
    """Under 50 ms where a bare interpreter takes about 15; as a ratio, since machines differ."""

    def seconds(code: str) -> float:
        started = time.perf_counter()
        subprocess.run([sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": str(SOURCE)}, check=True)
        return time.perf_counter() - started

    pairs = [(seconds("pass"), seconds("import stayfast")) for _ in range(7)]
    bare, ours = (statistics.median(column) for column in zip(*pairs, strict=True))
    assert ours - bare < 3 * bare


@pytest.mark.parametrize("part", RUNTIME_SIDE)
def test_no_module_of_the_runtime_side_imports_extras_at_its_top(part: str) -> None:
    root = SOURCE / "stayfast" / part
    found = []
    for path in [root] if root.is_file() else sorted(root.rglob("*.py")):
        for node in ast.parse(path.read_text()).body:
            names = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                names = [node.module or ""]
            found += [f"{path.name}: {name}" for name in names if foreign({name})]
    assert found == []
