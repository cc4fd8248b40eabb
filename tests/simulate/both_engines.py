"""One window through the product's engine, with the plain engine beside it: what they say must be the same."""

from __future__ import annotations

from dataclasses import fields

import plain_engine
import pytest
from plain_policies import PLAIN_POLICIES

from stayfast.capacity.policies.values import Scenario
from stayfast.capacity.replay.scenario import Outcome, TraceWindow
from stayfast.capacity.replay.summary import run_one


def replay(scenario: Scenario, window: TraceWindow, policy: str) -> Outcome:
    """Replay it in both, and return what the product says."""
    plain = plain_engine.replay(scenario, window, PLAIN_POLICIES[policy](), policy)
    fast = run_one(scenario, window, policy)
    assert_same(fast, plain)
    assert fast.timeline == plain.timeline
    return fast


def assert_same(fast: Outcome, plain: Outcome) -> None:
    """All figures but the timeline; those of the fast engine are summed in another order."""
    for item in fields(plain):
        if item.name == "timeline":
            continue
        left, right = getattr(fast, item.name), getattr(plain, item.name)
        if isinstance(right, float):
            assert left == pytest.approx(right, abs=1e-3), item.name
        else:
            assert left == right, item.name
