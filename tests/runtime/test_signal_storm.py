"""Suite E: SIGTERM twice within 10 ms, at random instants, into programs that log without pause."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest
from runtime_children import Child, environment

from faults.tiers import account, goal, seed_for


@pytest.mark.faults
@pytest.mark.timeout(0)
def test_storms_end_with_75_in_time_and_never_hang(tmp_path: Path) -> None:
    wanted, seed = goal("E"), seed_for("E")
    server = Path(__file__).with_name("storm_server.py")
    memory = Path("/dev/shm") if os.access("/dev/shm", os.W_OK) else tmp_path
    directory = memory / f"storm-{os.getpid()}"
    directory.mkdir()
    try:
        ended = Child([sys.executable, str(server), str(wanted), str(seed), str(directory)], environment()).end(
            800 + wanted
        )
    finally:
        import shutil

        shutil.rmtree(directory)
    assert ended.code == 0, ended.err
    result = json.loads(ended.out.splitlines()[-1])
    assert result["wrong"] == [], ended.err
    account("E", result["programs"], signals=result["signals"])
