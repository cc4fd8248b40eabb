"""Suite G with real processes and real signals."""

from __future__ import annotations

import pytest

from faults import overlaps
from faults.tiers import account, goal, seed_for

pytestmark = pytest.mark.faults


def test_a_stopped_attempt_wakes_up_superseded() -> None:
    seed = seed_for("G")
    report = overlaps.run(seed, goal("G"))
    print(report)
    assert report.superseded > report.stopped / 2
    account("G", report.stopped, superseded=report.superseded, held_the_lock=report.held_the_lock)
