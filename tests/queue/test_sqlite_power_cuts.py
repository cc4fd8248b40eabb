"""Suite B: real power cuts under the SQLite queue and sink."""

from __future__ import annotations

import os

import pytest

from faults.counts import record


@pytest.fixture
def powercut():
    try:
        from faults import powercut as rig
    except ImportError:
        pytest.skip("the power-cut rig (tests/faults/powercut.py) is absent")
    reason = rig.why_not()
    if reason:
        pytest.fail(reason) if os.environ.get("HOLDFAST_NEED_POWER_CUTS") else pytest.skip(reason)
    return rig


@pytest.mark.faults
@pytest.mark.slow
@pytest.mark.parametrize("split", [False, True], ids=["one-file", "two-files"])
def test_nothing_acknowledged_is_lost_in_power_cuts(powercut, split):
    import sqlite_power_cuts

    report = powercut.in_private_mounts(sqlite_power_cuts.run, 21 + split, 60, split, None)
    assert report["cuts"] == 60
    assert report["acknowledged"] > 10 * report["cuts"], "too little was promised for this to mean anything"
    assert report["broken"] == 0
    record("B", sqlite_cuts=report["cuts"], sqlite_acknowledged=report["acknowledged"])


@pytest.mark.faults
def test_the_planted_synchronous_normal_is_found(powercut):
    import sqlite_power_cuts

    report = powercut.in_private_mounts(sqlite_power_cuts.run, 5, 60, False, "synchronous=NORMAL")
    assert report["broken"] > 0, f"unnoticed through {report['cuts']} cuts"
    record("P", planted_found=1)
