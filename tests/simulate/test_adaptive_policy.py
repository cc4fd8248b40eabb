"""Our own policy: what it learns, what it does with it, and that the deadline stands above it."""

from __future__ import annotations

import random

import numpy as np
import pytest
from plain_engine import replay
from plain_policies import Stayfast
from regime_fit import band_of, choose_rows, expose, fit_regimes, hazards, pooled, to_json

from stayfast.capacity.policies.adaptive import AdaptivePolicy
from stayfast.capacity.policies.policy import PolicyView, make_policy
from stayfast.capacity.policies.regimes import BANDS_HOURS, Regime, bundled_regimes, cross, mean_hours
from stayfast.capacity.policies.value_tables import ValueTableInputs, solve_value_tables
from stayfast.capacity.policies.values import Mode, Saving, Scenario
from stayfast.capacity.replay.engine import AvailabilityTable, Replay
from stayfast.capacity.replay.optimum import optimum
from stayfast.capacity.replay.scenario import TraceWindow
from stayfast.capacity.replay.traces import from_counts

STEADY = Regime((0.5,) * 5, (0.02,) * 5)
FLAPPING = Regime((3.0,) * 5, (4.0,) * 5)
SCARCE = Regime((0.01,) * 5, (2.0,) * 5)
TICK = 600.0


def test_exposure_counts_events_by_age_and_leaves_the_unknown_out():
    # Ten-minute ticks: 2 up (age unknown), 6 down (1 h), 24 up (4 h), 3 down (still going on).
    seen = expose([1] * 2 + [0] * 6 + [1] * 24 + [0] * 3, 600)
    assert sum(seen.events[0]) == 1
    assert seen.events[0][band_of(1.0)] == 1
    assert seen.events[1][band_of(4.0)] == 1
    assert sum(seen.hours[0]) == pytest.approx(1.5)
    assert sum(seen.hours[1]) == pytest.approx(4.0)
    assert seen.share == pytest.approx(26 / 35)


def test_a_history_that_never_changes_still_says_something():
    seen = expose([0] * 600, 600)
    assert seen.hours[0][-1] == pytest.approx(100 - BANDS_HOURS[-1])
    assert sum(seen.events[0]) == 0
    table = hazards(seen, ((1.0,) * 5, (1.0,) * 5))
    assert table[0][-1] < 0.03
    assert table[1] == (1.0,) * 5


def test_nelson_aalen_finds_the_rates_it_was_given():
    rng = random.Random(5)
    ticks: list[int] = []
    for _ in range(4000):
        ticks += [1] * max(1, round(rng.expovariate(1 / 40))) + [0] * max(1, round(rng.expovariate(1 / 20)))
    seen = expose(ticks, 360)  # up 4 h, down 2 h on average
    table = hazards(seen, pooled([seen]))
    assert table[1][2:] == pytest.approx((0.25,) * 3, rel=0.12)
    assert table[0][2:4] == pytest.approx((0.5,) * 2, rel=0.12)
    assert mean_hours(table[1]) == pytest.approx(4.0, rel=0.1)


def test_regimes_survive_the_way_to_json_and_back():
    regimes = bundled_regimes()
    assert len(regimes) == 20
    assert all(0 < value < 20 for regime in regimes for row in regime.hazards for value in row)
    assert max(regime.share for regime in regimes) > 0.8
    assert min(regime.share for regime in regimes) < 0.2
    text = to_json(regimes, "here")
    assert '"source": "here"' in text
    assert text.count("[[") == 2


def test_medoids_are_members_and_spread():
    rows = [(1.0, 1.0), (1.1, 1.0), (0.9, 1.0), (50.0, 1.0), (55.0, 1.0)]
    chosen = choose_rows(rows, 2)
    assert len(chosen) == 2
    assert set(chosen) <= set(rows)
    assert {row[0] > 10 for row in chosen} == {True, False}
    assert choose_rows(rows, 9) == rows
    assert len(cross(rows[:2], rows[:3])) == 6


def test_fitting_uses_only_what_it_is_given():
    steady = from_counts("s", [0] * 3 + ([1] * 200 + [0] * 5) * 5, tick_seconds=600)
    flapping = from_counts("f", [0] * 3 + [1, 0] * 500, tick_seconds=600)
    calm = max(regime.share for regime in fit_regimes([(steady, 1)]))
    wild = max(regime.share for regime in fit_regimes([(flapping, 1)]))
    assert calm > 0.9 > 0.7 > wild


def values(regime, *, ratio=0.3, start=0.1):
    return solve_value_tables(ValueTableInputs((regime,), 6.0, 10.0, start, ratio))


def test_looking_ahead_prefers_what_the_regime_makes_cheap():
    table = values(STEADY)
    left, work = len(table.idle) - 1, round(6.0 / table.step_hours)
    old = len(BANDS_HOURS) - 1
    spot, paid = table.spot[left, old, work, 0], table.on_demand[left, 1, old, work, 0]
    assert spot < paid
    assert spot == pytest.approx(6.0 * 0.3, rel=0.3)
    scarce = values(SCARCE)
    absent_idle, absent_paid = (item[left, 0, old, work, 0] for item in (scarce.idle, scarce.on_demand))
    assert absent_paid == pytest.approx(6.0, rel=0.05)
    assert absent_idle >= absent_paid - 0.01


def test_more_work_or_less_time_never_costs_less():
    table = values(FLAPPING)
    for array in (table.idle, table.on_demand):
        assert (np.diff(array[1:], axis=-2) >= -1e-3).all()
    feasible = table.on_demand[80:, 0, 0, : round(6.0 / table.step_hours), 0]
    assert (np.diff(feasible, axis=0) <= 1e-3).all()


def view_after(there, regimes, hours=6.0):
    scenario = Scenario(6 * 3600, 10 * 3600, 360, 1.0, 0.3)
    policy = AdaptivePolicy(regimes)
    view = PolicyView(np, scenario, TICK, 60, np.array([0.3]))
    for tick in range(int(hours * 6)):
        view.tick = tick
        view.mode, view.zone = np.array([0]), np.array([0])
        view.available = np.array([[there(tick)]])
        view.done_seconds, view.need_seconds = np.array([0.0]), np.array([1800.0])
        view.start_left_seconds, view.start_seconds = np.array([0.0]), 360.0
        mode, _ = policy.decide(view)
    return view, int(mode[0])


def test_evidence_moves_to_the_regime_that_explains_it():
    regimes = (STEADY, FLAPPING, SCARCE)
    view, _ = view_after(lambda tick: True, regimes)
    assert view.memory["evidence"][0, 0].argmax() == 0
    view, _ = view_after(lambda tick: tick % 2 == 0, regimes)
    assert view.memory["evidence"][0, 0].argmax() == 1
    view, _ = view_after(lambda tick: False, regimes)
    assert view.memory["evidence"][0, 0].argmax() == 2


def random_zone(rng, length):
    zone = bytearray()
    there, mean = rng.random() < 0.5, rng.choice([1, 6, 40])
    while len(zone) < length:
        zone += bytes([there]) * max(1, int(rng.expovariate(1 / mean)))
        there = not there
    return bytes(zone[:length])


@pytest.mark.parametrize("saving", [None, Saving(1800, 60, 30), Saving(1800, 60, 30, notice_saves=True)])
def test_every_deadline_that_greedy_meets_is_met(saving):
    rng = random.Random(11)
    rows = np.array([list(random_zone(rng, 200)) for _ in range(300)])
    scenario = Scenario(40 * TICK, 50 * TICK, 360, 3.0, 1.0, saving=saving)
    met = {}
    for name, policy in (("greedy", make_policy("greedy")), ("ours", AdaptivePolicy((STEADY, FLAPPING, SCARCE)))):
        openings = AvailabilityTable(TICK, rows, np.zeros(300, dtype=int), own=True)
        met[name] = [outcome.met_deadline for outcome in Replay(scenario, openings, policy).run().outcomes(name)]
    assert sum(met["greedy"]) > 250
    assert not [row for row in range(300) if met["greedy"][row] and not met["ours"][row]]


def test_hours_and_money_add_up_and_a_replay_repeats():
    rng = random.Random(3)
    scenario = Scenario(40 * TICK, 60 * TICK, 360, 3.0, 1.0)
    for _ in range(6):
        window = TraceWindow(TICK, (random_zone(rng, 70), random_zone(rng, 70)))
        outcome = replay(scenario, window, Stayfast((STEADY, FLAPPING)), "stayfast")
        assert outcome == replay(scenario, window, Stayfast((STEADY, FLAPPING)), "stayfast")
        assert outcome.cost_usd == pytest.approx(outcome.spot_hours * 1.0 + outcome.on_demand_hours * 3.0)
        assert outcome.useful_seconds + outcome.start_seconds + outcome.tail_seconds == pytest.approx(
            outcome.paid_seconds
        )
        assert optimum(scenario, window).cost_usd <= outcome.cost_usd + 1e-6


def test_of_two_open_zones_the_one_that_has_lasted_is_taken():
    lasting = bytes([1] * 100)
    fickle = bytes([1, 1, 0] * 34)
    scenario = Scenario(20 * TICK, 60 * TICK, 360, 3.0, 1.0)
    # Both closed at first, so that it has seen them when both open: the fickle one must not be taken.
    window = TraceWindow(TICK, (fickle[:12] + bytes(8) + fickle, lasting[:12] + bytes(8) + lasting))
    outcome = replay(scenario, window, Stayfast((STEADY, FLAPPING)), "stayfast")
    later = [zone for mode, zone, _ in outcome.timeline[1:] if mode == Mode.SPOT]
    assert later
    assert set(later) == {1}


def test_on_real_traces_it_beats_uniform_progress(traces):
    """A small piece of benchmarks/bench_policy.py: two zones left out of the fit, sixteen windows each."""
    left_out = ("skyspot/availability/1-node/aws-02-15-2023/us-east-2b_v100_1", "gcp-h100/asia-southeast1-c")
    others = [(trace, trace.nodes) for trace in traces.values() if trace.hours > 100 and trace.id not in left_out]
    regimes = fit_regimes(others)
    for identity in left_out:
        trace = traces[identity]
        scenario = Scenario(24 * 3600, 36 * 3600, 720, 3.06, 0.9731, trace.nodes)
        length = int(36 * 3600 / trace.tick_seconds)
        rng = random.Random(identity)
        starts = np.array([rng.randint(0, trace.ticks - length) for _ in range(16)])
        table = np.frombuffer(trace.available(trace.nodes), dtype=np.uint8)[None, :]
        cost = {}
        for name, policy in (("line", make_policy("uniform-progress")), ("ours", AdaptivePolicy(regimes))):
            done = Replay(scenario, AvailabilityTable(trace.tick_seconds, table, starts), policy).run()
            cost[name] = float(done.cost.mean())
            assert (done.finish <= done.view.deadline_ticks).all()
        assert cost["ours"] < cost["line"]
