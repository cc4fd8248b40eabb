"""The table of a full matrix run: one row per cell, in build/matrix.json and at the end of pytest's output."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

BUILD = Path(__file__).resolve().parents[2] / "build"


def pytest_sessionstart(session: pytest.Session) -> None:
    if os.environ.get("STAYFAST_MATRIX") == "full" and not hasattr(session.config, "workerinput"):
        shutil.rmtree(BUILD / "matrix", ignore_errors=True)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    rows = {}
    for path in sorted((BUILD / "matrix").glob("*.json")) if os.environ.get("STAYFAST_MATRIX") == "full" else ():
        runs = json.loads(path.read_text())
        counts = {name: sum(run[name] for run in runs) for name in ("saved", "code", "nothing_left", "equal")}
        rows[path.stem] = {"runs": len(runs), **counts}
    if not rows:
        return
    (BUILD / "matrix.json").write_text(json.dumps(rows, indent=1) + "\n")
    terminalreporter.section("matrix: runs, saved, exit 75, no process left, bit-equal")
    for name, row in rows.items():
        terminalreporter.line(f"{name:40} " + " ".join(f"{value:5}" for value in row.values()))
    totals = [sum(row[key] for row in rows.values()) for key in ("runs", "saved", "code", "nothing_left", "equal")]
    terminalreporter.line(f"{len(rows)} cells".ljust(40) + " " + " ".join(f"{value:5}" for value in totals))
