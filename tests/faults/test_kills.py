"""Suite D: SIGKILL at random instants and named points."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import kills
import pytest
from tiers import account, goal, seed_for

pytestmark = pytest.mark.faults
HERE = Path(__file__).parent


def serve(seed: int, count: int, bug: str = "", deadline_seconds: float = 240.0) -> dict[str, Any]:
    """Run the fork server in a process of its own; what it found."""
    paths = [str(HERE), *(path for path in sys.path if path.endswith("src")), os.environ.get("PYTHONPATH", "")]
    done = subprocess.run(
        [sys.executable, kills.__file__, str(seed), str(count), bug, str(deadline_seconds)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))},
        stdout=subprocess.PIPE,
        timeout=deadline_seconds + 60,
        check=True,
    )
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def test_nothing_acknowledged_is_lost_by_kills() -> None:
    seed = seed_for("D")
    report = serve(seed, goal("D"))
    print(report)
    assert "lost" not in report, report["lost"]
    assert report["acknowledged"] > report["kills"] / 2
    assert report["execs"] >= report["kills"] * 0.02
    account("D", report["kills"], runs=report["runs"], execs=report["execs"], by_point=report["by_point"])
