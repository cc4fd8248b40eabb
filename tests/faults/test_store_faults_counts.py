"""The counting itself: sums from many processes, and every choice taken once."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from faults.choices import Choices
from faults.counts import record

SCRIPT = """
import sys
sys.path.insert(0, sys.argv[1])
from faults.counts import record
for _ in range(20):
    record("X", n=1)
"""


def test_counts_add_up_between_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "deep" / "counts.json"
    monkeypatch.setenv("STAYFAST_COUNTS_FILE", str(file))
    tests = str(Path(__file__).resolve().parents[1])
    processes = [subprocess.Popen([sys.executable, "-c", SCRIPT, tests]) for _ in range(4)]
    assert [process.wait(30) for process in processes] == [0] * 4
    assert record("X", n=0, other=3) == {"n": 80, "other": 3}
    kept = json.loads(file.read_text())
    assert kept["suites"] == {"X": {"n": 80, "other": 3}}
    assert kept["machine"]["python"].startswith("3.")
    assert kept["tier"] in ("pr", "night", "release")
    for wrong in (-1, True, 1.5, None):
        with pytest.raises(ValueError, match="count"):
            record("X", n=wrong)  # type: ignore[arg-type]


def test_damaged_counts_start_from_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "counts.json"
    file.write_text("{")
    monkeypatch.setenv("STAYFAST_COUNTS_FILE", str(file))
    assert record("X", n=1) == {"n": 1}


def test_choices_take_every_path_once() -> None:
    choices = Choices()
    seen = []
    while choices.advance():
        path = [choices.pick(2)]
        if path[0]:
            path.append(choices.pick(3))
        seen.append(tuple(path))
    assert seen == [(0,), (1, 0), (1, 1), (1, 2)]
