"""Suite B: real power cuts under the SQLite queue and sink."""

from __future__ import annotations

import os

import pytest

from faults.counts import record
from faults.tiers import goal, seed_for


@pytest.fixture
def powercut():
    try:
        from faults import powercut as rig
    except ImportError:
        pytest.skip("the power-cut rig (tests/faults/powercut.py) is absent")
    reason = rig.why_not()
    if reason:
        pytest.fail(reason) if os.environ.get("STAYFAST_NEED_POWER_CUTS") else pytest.skip(reason)
    return rig


@pytest.mark.faults
@pytest.mark.slow
@pytest.mark.parametrize("split", [False, True], ids=["one-file", "two-files"])
def test_nothing_acknowledged_is_lost_in_power_cuts(powercut, split):
    import sqlite_power_cuts

    count = max(10, goal("B") // 5)
    report = powercut.in_private_mounts(sqlite_power_cuts.run, seed_for("B") + split, count, split)
    assert report["cuts"] == count
    assert report["acknowledged"] > 2 * report["cuts"], "too little was promised for this to mean anything"
    assert report["broken"] == 0
    record("B", sqlite_cuts=report["cuts"], sqlite_acknowledged=report["acknowledged"])
