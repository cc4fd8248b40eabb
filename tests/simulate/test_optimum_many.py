"""The optimum of many windows at once, of prices that change, and where it gives up."""

from __future__ import annotations

import itertools
import random

import pytest

from stayfast.capacity.policies.values import Mode, Scenario
from stayfast.capacity.replay.optimum import find_optima, optimum
from stayfast.capacity.replay.scenario import TraceWindow
from stayfast.errors import UsageError

TICK = 600.0


def random_window(rng, ticks, zones=1, **more):
    return TraceWindow(TICK, tuple(bytes(rng.random() < 0.6 for _ in range(ticks)) for _ in range(zones)), **more)


@pytest.mark.parametrize("zones", [1, 3])
def test_together_they_are_what_they_are_alone(zones):
    rng = random.Random(zones)
    scenario = Scenario(20 * TICK - 77, 33 * TICK, 360, 3.0, 1.1)
    prices = (1.1, 0.7, 2.0)[:zones]
    windows = [random_window(rng, 30, zones, spot_usd_per_hour=prices) for _ in range(150)]
    assert find_optima(scenario, windows) == [optimum(scenario, window) for window in windows]
    assert find_optima(scenario, []) == []


def test_a_far_deadline_changes_nothing_but_the_choice():
    """Slack that is far wider than the work: the other end of the band."""
    scenario = Scenario(3 * TICK, 500 * TICK, 360, 3.0, 1.0)
    zone = bytes(450) + bytes([1] * 4)
    best = optimum(scenario, TraceWindow(TICK, (zone,)))
    assert (best.spot_hours, best.on_demand_hours) == (pytest.approx(4 / 6), 0)
    assert best.finish_hours == pytest.approx(454 / 6)


@pytest.mark.parametrize("seed", range(12))
def test_prices_that_change_with_every_tick(seed):
    rng = random.Random(f"prices {seed}")
    ticks, cold = 7, rng.choice([0.0, 300.0, 600.0])
    prices = tuple(round(rng.uniform(0.2, 2.9), 2) for _ in range(ticks))
    scenario = Scenario(rng.randint(1, 4) * TICK - 100, ticks * TICK, cold, 3.0, 99.0)
    window = random_window(rng, ticks, spot_price_by_tick=(prices,))
    costs = []
    for modes in itertools.product((Mode.IDLE, Mode.SPOT, Mode.ON_DEMAND), repeat=ticks):
        if any(mode == Mode.SPOT and not open_ for mode, open_ in zip(modes, window.zones[0], strict=True)):
            continue
        done, left, before, usd = 0.0, 0.0, Mode.IDLE, 0.0
        for now, mode in enumerate(modes):
            if mode != Mode.IDLE:
                left = left if mode == before else cold
                done += max(0.0, TICK - left)
                left = max(0.0, left - TICK)
                usd += (prices[now] if mode == Mode.SPOT else 3.0) / 6
            before = mode
        if done >= scenario.work_seconds - 1e-3:
            costs.append(usd)
    assert optimum(scenario, window).cost_usd == pytest.approx(min(costs), abs=1e-6)


def test_too_many_ticks_are_refused_in_one_sentence():
    scenario = Scenario(100 * TICK, 70_000 * TICK, 600, 3.0, 1.0)
    with pytest.raises(UsageError, match="the optimum of 70000 ticks is out of reach; raise the tick"):
        optimum(scenario, TraceWindow(TICK, (bytes([1] * 100),)))


def test_several_zones_without_a_common_divisor_are_refused():
    scenario = Scenario(100 * TICK, 200 * TICK, 123.4567891, 3.0, 1.0)
    with pytest.raises(UsageError, match="needs a tick and a cold start with a common divisor"):
        optimum(scenario, TraceWindow(TICK, (bytes(200), bytes([1] * 200))))
