"""Suite D: SIGKILL at random instants and named points."""

from __future__ import annotations

import pytest

from faults.kill_service import serve_many
from faults.tiers import account, goal, seed_for, shard

pytestmark = pytest.mark.faults


def test_nothing_acknowledged_is_lost_by_kills() -> None:
    seed = seed_for("D")
    report = serve_many(seed, goal("D"), servers=2 if shard()[1] == 1 else 1)
    print(report)
    assert "lost" not in report, report["lost"]
    assert report["acknowledged"] > report["kills"] / 4
    assert report["execs"] >= report["kills"] * 0.02
    account("D", report["kills"], runs=report["runs"], execs=report["execs"], by_point=report["by_point"])
