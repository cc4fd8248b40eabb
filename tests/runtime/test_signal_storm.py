"""Suite E: SIGTERM twice within 10 ms, at random instants, into programs that log without pause."""

from __future__ import annotations

import json
import os
import random
import sys
from pathlib import Path

import pytest
from runtime_children import Child, environment

from faults.counts import record

GOALS = {"pr": 500, "night": 5_000, "release": 20_000}


@pytest.mark.faults
@pytest.mark.timeout(900)
def test_storms_end_with_75_in_time_and_never_hang(tmp_path: Path) -> None:
    goal = GOALS[os.environ.get("HOLDFAST_TIER", "pr")]
    seed = int(os.environ.get("HOLDFAST_SEED") or random.SystemRandom().getrandbits(32))
    print(f"suite E: seed {seed} (replay with HOLDFAST_SEED={seed})")
    server = Path(__file__).with_name("storm_server.py")
    memory = Path("/dev/shm") if os.access("/dev/shm", os.W_OK) else tmp_path
    directory = memory / f"storm-{os.getpid()}"
    directory.mkdir()
    try:
        ended = Child([sys.executable, str(server), str(goal), str(seed), str(directory)], environment()).end(800)
    finally:
        import shutil

        shutil.rmtree(directory)
    assert ended.code == 0, ended.err
    result = json.loads(ended.out.splitlines()[-1])
    assert result["wrong"] == [], ended.err
    assert result["programs"] == goal
    record("E", injected=result["programs"], signals=result["signals"])
