"""Invariant 6: a run interrupted ten times equals the uninterrupted one, bit for bit, sample for sample."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

STORM = Path(__file__).parent / "storm.py"
INTERRUPTIONS = 10


def storm(folder: Path, loader: str, interruptions: int, seed: int = 1) -> dict[str, Any]:
    folder.mkdir()
    command = [sys.executable, str(STORM), str(folder), loader, str(interruptions), str(seed)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr[-2000:]
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


@pytest.mark.parametrize("loader", ["sampler", "stateful-loader", "generator"])
def test_ten_interruptions_change_nothing(tmp_path: Path, loader: str) -> None:
    calm = storm(tmp_path / "calm", loader, 0)
    rough = storm(tmp_path / "rough", loader, INTERRUPTIONS)
    assert calm["ran"] == len(calm["samples"]) == 260
    assert len(rough["codes"]) == INTERRUPTIONS
    assert set(rough["codes"]) == {75, 137}, "notices and kills without warning"
    assert rough["last"] == 0
    assert rough["ran"] > 260, "a kill without warning repeats steps"
    assert rough["samples"] == calm["samples"], "the same samples at every step"
    assert rough["final"] == calm["final"], "the same weights and statistics to the last bit"
