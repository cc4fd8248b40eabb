"""The published simulators' results, to the cent."""

from __future__ import annotations

import pytest

from stayfast.capacity.policies.values import Scenario, floor_ticks
from stayfast.capacity.replay.optimum import by_counts, optimum
from stayfast.capacity.replay.scenario import window_of
from stayfast.capacity.replay.summary import run_one

POLICIES = {
    "on_demand": "on-demand",
    "greedy": "greedy",
    "uniform_progress": "uniform-progress",
    "spot_only": "spot-only",
}


def setup(case, traces):
    scenario = Scenario(
        case["work_hours"] * 3600,
        case["deadline_hours"] * 3600,
        case["cold_start_hours"] * 3600,
        case["on_demand_usd_per_hour"],
        case["spot_usd_per_hour"],
        case["nodes"],
    )
    return scenario, window_of(
        [traces[case["trace_id"]]], nodes=case["nodes"], start_seconds=case["start_hours"] * 3600
    )


@pytest.mark.parametrize("key", POLICIES)
def test_policies_reproduce_the_published_figures(key, reference, traces):
    assert len(reference) >= 9
    for case in reference:
        scenario, window = setup(case, traces)
        outcome = run_one(scenario, window, POLICIES[key])
        hours = case["hours"][key]
        assert outcome.cost_usd == pytest.approx(case["cost_usd"][key], abs=1e-4), case["trace_id"]
        assert outcome.finish_hours == pytest.approx(hours["finish_h"], abs=1e-3)
        assert outcome.spot_hours == pytest.approx(hours["spot_h"], abs=1e-3)
        assert outcome.on_demand_hours == pytest.approx(hours["od_h"], abs=1e-3)
        assert outcome.attempts == hours["spot_starts"] + hours["od_starts"]


def test_both_exact_programs_reproduce_the_published_optimum(reference, traces):
    for case in reference:
        scenario, window = setup(case, traces)
        ticks = floor_ticks(scenario.deadline_seconds, window.tick_seconds)
        expected = pytest.approx(case["cost_usd"]["optimum"], abs=1e-4)
        assert optimum(scenario, window).cost_usd == expected, case["trace_id"]
        assert by_counts(scenario, window, ticks).cost_usd == expected, case["trace_id"]
