"""The fast engine is the plain one: window by window, field by field."""

from __future__ import annotations

import random

import numpy as np
import pytest
from both_engines import assert_same
from plain_engine import replay
from plain_policies import PLAIN_POLICIES

from stayfast.capacity.policies.policy import POLICIES, make_policy
from stayfast.capacity.policies.values import Saving, Scenario
from stayfast.capacity.replay.engine import AvailabilityTable, Replay
from stayfast.capacity.replay.scenario import TraceWindow

TICK = 600.0


def random_zone(rng, length):
    zone = bytearray()
    there = rng.random() < 0.5
    mean = rng.choice([2, 8, 40])
    while len(zone) < length:
        zone += bytes([there]) * max(1, int(rng.expovariate(1 / mean)))
        there = not there
    return bytes(zone[:length])


def random_scenario(rng):
    saving = None
    if rng.random() < 0.6:
        saving = Saving(
            rng.choice([250.0, 1000.0, 5000.0]),
            rng.choice([0.0, 20.0, 300.0]),
            rng.choice([0.0, 100.0]),
            rng.random() < 0.3,
        )
    work = rng.uniform(5, 60) * TICK
    return Scenario(
        work, work * rng.uniform(1.02, 3), rng.choice([0.0, 180.0, 360.0, 900.0]), 3.0, 1.0, 1, saving,
        rng.random() < 0.3, rng.choice([None, 0.8, 1.6]), rng.choice([0.0, 3000.0, 40000.0]),
        rng.choice([7000.0, 604800.0]),
    )  # fmt: skip


def tries(name):
    """Ours solves its own program for every scenario, which takes time."""
    return 4 if name == "stayfast" else 25


@pytest.mark.parametrize("name", sorted(POLICIES.names()))
def test_the_two_engines_agree(name):
    assert set(PLAIN_POLICIES) == set(POLICIES.names())
    rng = random.Random(name)
    compared = 0
    for _ in range(tries(name)):
        scenario = random_scenario(rng)
        if name == "flex-start" and scenario.flex_start_usd_per_hour is None:
            continue
        zones = [random_zone(rng, 200) for _ in range(rng.choice([1, 1, 3]))]
        prices = tuple(rng.choice([0.5, 1.0, 1.5]) for _ in zones)
        starts = [rng.randrange(0, 199) for _ in range(8)]
        table = np.array([np.frombuffer(zone, dtype=np.uint8) for zone in zones])
        openings = AvailabilityTable(TICK, table, np.array(starts))
        fast = Replay(scenario, openings, make_policy(name), spot_prices=prices).run().outcomes(name)
        for start, outcome in zip(starts, fast, strict=True):
            window = TraceWindow(TICK, tuple(zone[start:] for zone in zones), prices)
            assert_same(outcome, replay(scenario, window, PLAIN_POLICIES[name](), name))
            compared += 1
    assert compared >= 4 * tries(name)


def test_windows_with_a_history_of_their_own():
    rng = random.Random(1)
    rows = [random_zone(rng, 300) for _ in range(20)]
    scenario = Scenario(40 * TICK, 60 * TICK, 360, 3.0, 1.0)
    openings = AvailabilityTable(TICK, np.array([list(row) for row in rows]), np.zeros(20, dtype=int), own=True)
    fast = Replay(scenario, openings, make_policy("uniform-progress")).run().outcomes("uniform-progress")
    for row, outcome in zip(rows, fast, strict=True):
        assert_same(
            outcome,
            replay(scenario, TraceWindow(TICK, (row,)), PLAIN_POLICIES["uniform-progress"](), "uniform-progress"),
        )


def test_the_fast_engine_reproduces_the_reference(reference, traces):
    for case in reference:
        scenario = Scenario(
            case["work_hours"] * 3600,
            case["deadline_hours"] * 3600,
            case["cold_start_hours"] * 3600,
            case["on_demand_usd_per_hour"],
            case["spot_usd_per_hour"],
            case["nodes"],
        )
        trace = traces[case["trace_id"]]
        table = np.frombuffer(trace.available(case["nodes"]), dtype=np.uint8)[None, :]
        for key, name in {"greedy": "greedy", "uniform_progress": "uniform-progress"}.items():
            openings = AvailabilityTable(trace.tick_seconds, table, np.zeros(1, dtype=int))
            (outcome,) = Replay(scenario, openings, make_policy(name)).run().outcomes(name)
            assert outcome.cost_usd == pytest.approx(case["cost_usd"][key], abs=1e-4)
