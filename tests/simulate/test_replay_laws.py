"""Conservation laws: whatever the trace, hours add up, money is hours times price, and hindsight is never dearer."""

from __future__ import annotations

import itertools
import math

import pytest
from both_engines import replay
from hypothesis import given, settings
from hypothesis import strategies as st

from stayfast.capacity.policies.policy import POLICIES
from stayfast.capacity.policies.values import Mode, Saving, Scenario, ceil_ticks, floor_ticks
from stayfast.capacity.replay.optimum import by_counts, by_grid, optimum
from stayfast.capacity.replay.scenario import TraceWindow

TICK = 600.0
QUICK = [name for name in POLICIES.names() if name != "stayfast"]
"""Ours has its own laws in test_adaptive_policy: it solves a program for every scenario."""
openings = st.lists(st.tuples(st.booleans(), st.integers(1, 12)), min_size=1, max_size=14).map(
    lambda runs: bytes(itertools.chain.from_iterable([int(there)] * length for there, length in runs))
)
savings = st.none() | st.builds(
    Saving,
    interval_seconds=st.sampled_from([300.0, 1000.0, 7200.0]),
    save_seconds=st.sampled_from([0.0, 30.0, 400.0]),
    restore_seconds=st.sampled_from([0.0, 90.0]),
    notice_saves=st.booleans(),
)


@st.composite
def scenarios(draw, saving=savings):
    work = draw(st.integers(1, 40)) * TICK - draw(st.sampled_from([0.0, 77.0]))
    cold = draw(st.sampled_from([0.0, 120.0, 360.0, 600.0, 700.0, 1300.0]))
    kept = draw(saving)
    need = work * (kept.stretch if kept else 1.0) + 2 * (cold + (kept.restore_seconds if kept else 0.0))
    slack = draw(st.integers(2, 40)) * TICK
    spot = draw(st.sampled_from([0.5, 1.0, 2.9]))
    return Scenario(
        work, need + slack, cold, 3.0, spot, 1, kept, draw(st.booleans()) if kept else False,
        draw(st.sampled_from([None, 1.3])), draw(st.sampled_from([0.0, 5000.0])),
        draw(st.sampled_from([9000.0, 604800.0])),
    )  # fmt: skip


@settings(max_examples=120, deadline=None, derandomize=True)
@given(scenarios(), st.lists(openings, min_size=1, max_size=3), st.sampled_from(sorted(QUICK)))
def test_time_and_money_are_conserved(scenario, zones, name):
    window = TraceWindow(TICK, tuple(zones))
    outcome = replay(scenario, window, name)
    spent = (
        outcome.useful_seconds + outcome.start_seconds + outcome.restore_seconds + outcome.save_seconds
        + outcome.lost_seconds + outcome.tail_seconds
    )  # fmt: skip
    assert spent == pytest.approx(outcome.paid_seconds, abs=0.01)
    assert min(outcome.start_seconds, outcome.restore_seconds, outcome.save_seconds, outcome.lost_seconds) >= -1e-6
    money = (
        outcome.spot_hours * scenario.spot_usd_per_hour
        + outcome.on_demand_hours * scenario.on_demand_usd_per_hour
        + outcome.flex_start_hours * (scenario.flex_start_usd_per_hour or 0.0)
    )
    assert outcome.cost_usd == pytest.approx(money)
    total = sum(ticks for _, _, ticks in outcome.timeline) * TICK
    assert total == pytest.approx(outcome.paid_seconds + outcome.waiting_seconds)
    if outcome.finish_hours is not None:
        assert outcome.useful_seconds == pytest.approx(scenario.work_seconds, abs=0.01)
        assert outcome.finish_hours * 3600 == pytest.approx(total)
    again = replay(scenario, window, name)
    assert again == outcome


@settings(max_examples=120, deadline=None, derandomize=True)
@given(scenarios(), openings, st.sampled_from([name for name in QUICK if name != "spot-only"]))
def test_a_feasible_deadline_is_met(scenario, zone, name):
    """With room for two starts at the beginning, every policy with a safety net is in time."""
    if scenario.job_backoff:
        return  # delays that grow with each interruption are outside what two starts of slack can promise
    outcome = replay(scenario, TraceWindow(TICK, (zone,)), name)
    assert outcome.met_deadline


@settings(max_examples=60, deadline=None, derandomize=True)
@given(scenarios(saving=st.none()), openings, st.data())
def test_hindsight_is_never_dearer(scenario, zone, data):
    window = TraceWindow(TICK, (zone,))
    best = optimum(scenario, window)
    assert best.met_deadline
    for name in ("on-demand", "greedy", "uniform-progress", "spot-only"):
        outcome = replay(scenario, window, name)
        if outcome.met_deadline:
            assert best.cost_usd <= outcome.cost_usd + 1e-6, name
    more = bytes(there or data.draw(st.booleans()) for there in zone)
    assert optimum(scenario, TraceWindow(TICK, (more,))).cost_usd <= best.cost_usd + 1e-6
    assert optimum(scenario, TraceWindow(TICK, (zone, more))).cost_usd <= best.cost_usd + 1e-6


@settings(max_examples=60, deadline=None, derandomize=True)
@given(scenarios(saving=st.none()), openings)
def test_the_two_exact_programs_agree(scenario, zone):
    ticks = floor_ticks(scenario.deadline_seconds, TICK)
    window = TraceWindow(TICK, (zone,))
    unit = math.gcd(600, int(scenario.cold_start_seconds)) * 1.0
    (grid,) = by_grid(scenario, [window], ticks, unit)
    assert grid.cost_usd == pytest.approx(by_counts(scenario, window, ticks).cost_usd)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(st.lists(st.booleans(), min_size=7, max_size=7), st.integers(1, 5), st.sampled_from([0.0, 300.0, 700.0]))
def test_the_optimum_equals_trying_everything(there, work_ticks, cold):
    """Every assignment of a mode to each of seven ticks, replayed by the plain engine's own rules."""
    scenario = Scenario(work_ticks * TICK - 100, 7 * TICK, cold, 3.0, 1.0)
    window = TraceWindow(TICK, (bytes(there),))

    def costs():
        for modes in itertools.product((Mode.IDLE, Mode.SPOT, Mode.ON_DEMAND), repeat=7):
            if any(mode == Mode.SPOT and not open_ for mode, open_ in zip(modes, there, strict=True)):
                continue
            done, left, before = 0.0, 0.0, Mode.IDLE
            for mode in modes:
                if mode != Mode.IDLE:
                    left = left if mode == before else cold
                    done += max(0.0, TICK - left)
                    left = max(0.0, left - TICK)
                before = mode
            if done >= scenario.work_seconds - 1e-3:
                yield (modes.count(Mode.SPOT) * 1.0 + modes.count(Mode.ON_DEMAND) * 3.0) / 6

    best = optimum(scenario, window)
    if ceil_ticks(scenario.work_seconds + cold, TICK) > 7:
        assert not best.met_deadline
    else:
        assert best.cost_usd == pytest.approx(min(costs()))
