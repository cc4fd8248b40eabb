"""Suite C: faults at single system calls."""

from __future__ import annotations

import pytest

from faults import fresh, syscall_faults
from faults.tiers import account, goal, seed_for

pytestmark = pytest.mark.faults


def test_no_failing_system_call_loses_anything() -> None:
    reason = syscall_faults.why_not()
    if reason:
        pytest.skip(reason)
    seed = seed_for("C")
    report = fresh.call("faults.syscall_faults:run", seed, goal("C"))
    print(report)
    assert min(report["killed"], report["failed"], report["succeeded"]) > 0
    account("C", report["injected"], killed=report["killed"], failed=report["failed"], succeeded=report["succeeded"])
