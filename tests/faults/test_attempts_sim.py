"""Suite G, simulated: overlapping attempts in every order that a seed can think of."""

from __future__ import annotations

import multiprocessing
from dataclasses import asdict

import pytest

from faults import attempts_sim
from faults.tiers import account, goal, seed_for, shard

pytestmark = pytest.mark.faults
WORKERS = 2 if shard()[1] == 1 else 1  # shards run side by side already


def test_no_lower_generation_after_a_higher_one() -> None:
    seed = seed_for("G-simulated")
    share = -(-goal("G-simulated") // WORKERS)
    with multiprocessing.get_context("fork").Pool(WORKERS) as pool:
        reports = pool.starmap(attempts_sim.run, [(seed + number, share) for number in range(WORKERS)])
    total = {name: sum(asdict(report)[name] for report in reports) for name in asdict(reports[0])}
    print(total)
    assert min(total["superseded"], total["faults"], total["unknown"]) > 0
    account("G-simulated", total["schedules"], faults=total["faults"], superseded=total["superseded"])
