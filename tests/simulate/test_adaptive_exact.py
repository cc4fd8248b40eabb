"""The fast form of our policy is the policy: the same decisions, the same sums, bit for bit."""

from __future__ import annotations

import random

import numpy as np
import pytest
from adaptive_by_the_book import ByTheBook
from both_engines import replay

from stayfast.capacity.policies.adaptive import AdaptivePolicy
from stayfast.capacity.policies.regimes import bundled_regimes
from stayfast.capacity.policies.values import Saving, Scenario
from stayfast.capacity.replay.engine import AvailabilityTable, Replay
from stayfast.capacity.replay.scenario import TraceWindow

RESULTS = ("cost", "finish", "done", "interruptions", "attempts", "starting", "saving", "lost", "waiting", "tail")


def random_zone(rng, length):
    zone = bytearray()
    there, mean = rng.random() < 0.5, rng.choice([1, 3, 12, 60])
    while len(zone) < length:
        zone += bytes([there]) * max(1, int(rng.expovariate(1 / mean)))
        there = not there
    return bytes(zone[:length])


def random_case(rng):
    tick = rng.choice([195.0, 600.0, 1000.0])
    saving = rng.choice([None, None, Saving(1800, 60, 30), Saving(1800, 0, 0, notice_saves=True)])
    work = rng.uniform(8, 60) * tick
    scenario = Scenario(
        work,
        work * rng.uniform(1.05, 2.5) + 4000,
        rng.choice([0.0, 180.0, 360.0, 777.0]),
        3.0,
        rng.choice([0.0, 0.9, 2.9]),
        saving=saving,
        job_backoff=rng.random() < 0.3,
    )
    zones = rng.choice([1, 1, 1, 3])
    table = np.array([list(random_zone(rng, 300)) for _ in range(zones)], dtype=np.uint8)
    prices = [rng.choice([0.7, 0.9, 1.5]) for _ in range(zones)] if zones > 1 else [scenario.spot_usd_per_hour]
    starts = np.array([rng.randrange(0, 290) for _ in range(40)])
    return scenario, AvailabilityTable(tick, table, starts), prices


@pytest.mark.parametrize("seed", range(10))
def test_the_fast_form_decides_as_the_book_does(seed):
    rng = random.Random(f"book {seed}")
    scenario, openings, prices = random_case(rng)
    regimes = tuple(rng.sample(bundled_regimes(), rng.choice([3, 8, 20])))
    fast = Replay(scenario, openings, AdaptivePolicy(regimes), spot_prices=prices).run()
    slow = Replay(scenario, openings, ByTheBook(regimes), spot_prices=prices).run()
    for name in RESULTS:
        assert np.array_equal(getattr(fast, name), getattr(slow, name)), name
    assert np.array_equal(fast.hours, slow.hours)
    assert fast.hours.sum() > 0


def test_on_real_traces_nothing_changes_either(traces):
    for identity in ("gcp-h100/us-central1-a", "skyspot/availability/1-node/aws-02-15-2023/us-east-1f_v100_1"):
        trace = traces[identity]
        scenario = Scenario(20 * 3600, 30 * 3600, 360, 10.979, 6.5874, trace.nodes)
        table = np.frombuffer(trace.available(trace.nodes), dtype=np.uint8)[None, :]
        last = trace.ticks - int(30 * 3600 / trace.tick_seconds)
        starts = np.random.default_rng(4).integers(0, last, 60)
        results = [
            Replay(scenario, AvailabilityTable(trace.tick_seconds, table, starts), policy).run()
            for policy in (AdaptivePolicy(), ByTheBook())
        ]
        for name in RESULTS:
            assert np.array_equal(*(getattr(item, name) for item in results)), name


def test_a_window_alone_is_the_window_among_others():
    """Nothing leaks between rows: one at a time, in both engines, gives what the batch gave."""
    rng = random.Random("alone")
    scenario, openings, prices = random_case(rng)
    batch = Replay(scenario, openings, AdaptivePolicy(), spot_prices=prices).run().outcomes("stayfast")
    for row in range(0, 40, 8):
        zones = tuple(zone[openings.starts[row] :].tobytes() for zone in openings.zones)
        window = TraceWindow(openings.tick_seconds, zones, tuple(prices))
        plain = replay(scenario, window, "stayfast")
        assert plain.cost_usd == pytest.approx(batch[row].cost_usd, abs=1e-9)
        assert (plain.finish_hours, plain.attempts) == (batch[row].finish_hours, batch[row].attempts)
