"""Suite B: real power cuts on ext4."""

from __future__ import annotations

import pytest

from faults import fresh, powercut
from faults.tiers import account, goal, seed_for

pytestmark = pytest.mark.faults


def test_nothing_acknowledged_is_lost_in_power_cuts() -> None:
    reason = powercut.why_not()
    if reason:
        pytest.skip(reason)
    seed = seed_for("B")
    report = fresh.call("faults.power_cuts:run_apart", seed, goal("B"))
    print(report)
    assert report["acknowledged"] > report["cuts"] / 2, "too few saves were acknowledged for this to mean anything"
    account("B", report["cuts"], acknowledged=report["acknowledged"])
