"""Suite A at its count, and that the model itself knows the four classic mistakes."""

from __future__ import annotations

import pytest

from faults import crash_states
from faults.tiers import account, goal, seed_for

pytestmark = pytest.mark.faults


def test_every_crash_state_recovers() -> None:
    seed = seed_for("A")
    report = crash_states.run(seed, goal("A"))
    print(report)
    assert report.deaths
    assert report.failed_syncs
    account("A", report.states, distinct=report.distinct, traces=report.traces, cuts=report.cuts)
