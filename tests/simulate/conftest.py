"""Where the recorded capacity histories lie, for the tests that need them."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from stayfast.capacity.replay.traces import Trace, read_traces

sys.path.append(str(Path(__file__).resolve().parents[2] / "benchmarks"))
DATA = Path(__file__).resolve().parents[3] / "shared" / "data"


@pytest.fixture(scope="session")
def trace_file() -> Path:
    path = DATA / "traces.jsonl"
    if not path.exists():
        pytest.skip("the recorded traces are not beside the repository (../shared/data/traces.jsonl)")
    return path


@pytest.fixture(scope="session")
def traces(trace_file: Path) -> dict[str, Trace]:
    return {trace.id: trace for trace in read_traces(trace_file.read_text(), "traces.jsonl")}


@pytest.fixture(scope="session")
def reference() -> list[dict]:
    path = DATA / "simulator_reference.json"
    if not path.exists():
        pytest.skip("the reference results are not beside the repository (../shared/data/simulator_reference.json)")
    return json.loads(path.read_text())
