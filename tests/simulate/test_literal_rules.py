"""The command against the rules transcribed literally, on awkward cases: odd starts, odd colds, ends of traces."""

from __future__ import annotations

import json
import random
from fractions import Fraction

import numpy as np
import pytest
from literal_replay import Case, optimum, tell

from stayfast.capacity.policies.policy import make_policy
from stayfast.capacity.policies.values import Scenario
from stayfast.capacity.replay.engine import AvailabilityTable, Replay
from stayfast.capacity.replay.summary import run_many
from stayfast.capacity.replay.traces import from_counts
from stayfast.cli.main import main

POLICIES = ("on-demand", "greedy", "uniform-progress", "spot-only")


def hours(value):
    """As people type them. Four decimals are a third of a second: far from the millisecond that counts as noise."""
    return str(round(float(value), 4))


def odd_case(rng):
    counts, most = [], rng.choice([1, 4, 16])
    while len(counts) < rng.choice([60, 200, 400]):
        counts += [rng.choice([0, 1, most // 2, most, most])] * max(1, int(rng.expovariate(1 / rng.choice([1, 5, 20]))))
    if rng.random() < 0.3:
        counts += [0] * rng.randint(1, 30)  # a trailing gap
    tick = Fraction(rng.choice([195, 600, 737, 3600]))
    nodes = rng.choice([1, most, most + 1 if rng.random() < 0.3 else most])
    length = rng.randint(3, max(4, len(counts) // 2))
    deadline = Fraction(hours(length * tick / 3600 + rng.choice([0, 0, Fraction(1, 100), Fraction(7, 1000)])))
    work = Fraction(hours(deadline * Fraction(rng.choice(["0.3", "0.5", "0.8", "0.95", "1.1"])))) or Fraction(1, 1000)
    cold = Fraction(rng.choice(["0", "0.01", "0.05", "0.1", "0.123", "0.3", "1.7"]))
    room = len(counts) * tick / 3600
    start = Fraction(rng.choice(["0", "0.001", "0.37", hours(room / 3), hours(max(Fraction(0), room - deadline))]))
    if start * 3600 > (len(counts) - 1) * tick:
        start = Fraction(0)
    return counts, tick, nodes, work, deadline, cold, start


def command(tmp_path, capsys, counts, tick, nodes, work, deadline, cold, start, policies, prices=("3", "1")):
    path = tmp_path / "t.jsonl"
    path.write_text(json.dumps({"id": "t", "gap_s": int(tick), "counts": counts}))
    args = {
        "--traces": path, "--trace-id": "t", "--nodes": nodes, "--work-hours": float(work),
        "--deadline-hours": float(deadline), "--cold-start-hours": float(cold), "--start-hours": float(start),
        "--policy": ",".join(policies), "--on-demand-price": prices[0], "--spot-price": prices[1], "--output": "json",
    }  # fmt: skip
    code = main(["simulate", *(str(item) for pair in args.items() for item in pair)])
    out = capsys.readouterr()
    assert code == 0, out.err
    return {row["policy"]: row for row in json.loads(out.out)["runs"]}


def assert_story(row, story, case):
    tick = float(case.tick) / 3600
    assert row["cost_usd"] == pytest.approx(float(story.cost(case)), abs=1e-9)
    assert row["spot_hours"] == pytest.approx(story.spot * tick)
    assert row["on_demand_hours"] == pytest.approx(story.paid * tick)
    assert row["finish_hours"] == (None if story.finish is None else pytest.approx(story.finish * tick))
    assert row["met_deadline"] is story.met
    assert row["interruptions"] == story.interruptions
    assert row["attempts"] == story.attempts


@pytest.mark.parametrize("seed", range(60))
def test_odd_cases(seed, tmp_path, capsys):
    rng = random.Random(f"odd {seed}")
    counts, tick, nodes, work, deadline, cold, start = odd_case(rng)
    case = Case(counts, tick, nodes, work * 3600, deadline * 3600, cold * 3600, start * 3600)
    rows = command(tmp_path, capsys, counts, tick, nodes, work, deadline, cold, start, POLICIES)
    for policy in POLICIES:
        assert_story(rows[policy], tell(case, policy), case)


@pytest.mark.parametrize("seed", range(60))
def test_the_optimum_is_the_least_of_all_schedules(seed, tmp_path, capsys):
    rng = random.Random(f"least {seed}")
    ticks = rng.randint(2, 13)
    counts = [rng.choice([0, 1, 1]) for _ in range(ticks + rng.choice([0, -1, 3]))] or [1]
    tick = Fraction(rng.choice([195, 600]))
    cold = Fraction(rng.choice(["0", "0.01", "0.05", "0.1", "0.123", "0.3"]))
    deadline = Fraction(hours(ticks * tick / 3600 + Fraction(rng.choice([1, 30]), 1000)))
    work = Fraction(hours(deadline * Fraction(rng.choice(["0.2", "0.4", "0.6", "0.8"]))))
    prices = rng.choice([("3", "1"), ("3", "0"), ("0", "0"), ("1", "2"), ("2.5", "2.4")])
    case = Case(counts, tick, 1, work * 3600, deadline * 3600, cold * 3600, Fraction(0), *map(Fraction, prices))
    names = ("optimum", "on-demand")
    rows = command(tmp_path, capsys, counts, tick, 1, work, deadline, cold, Fraction(0), names, prices)
    least = optimum(case)
    assert rows["optimum"]["met_deadline"] is (least is not None)
    expected = rows["on-demand"]["cost_usd"] if least is None else float(least)
    assert rows["optimum"]["cost_usd"] == pytest.approx(expected, abs=1e-6)


def test_no_work_is_done_at_once_and_costs_nothing(tmp_path, capsys):
    names = (*POLICIES, "optimum", "stayfast")
    rows = command(tmp_path, capsys, [1, 0, 1], Fraction(600), 1, Fraction(0), Fraction(1), Fraction(1), 0, names)
    for row in rows.values():
        assert (row["cost_usd"], row["finish_hours"], row["met_deadline"]) == (0, 0, True)
    trace = from_counts("t", [1] * 20, tick_seconds=600)
    outcomes = run_many([trace], Scenario(0.0, 6000, 360, 3, 1), "greedy", [0, 1])
    assert [(item.cost_usd, item.finish_hours, item.met_deadline) for item in outcomes] == [(0, 0, True)] * 2


def test_free_machines_cost_nothing_and_change_no_decision(tmp_path, capsys):
    counts = [1, 1, 0, 0, 1, 0] * 20
    base = (counts, Fraction(600), 1, Fraction(5), Fraction(9), Fraction("0.1"), Fraction(0), POLICIES)
    priced, free = command(tmp_path, capsys, *base), command(tmp_path, capsys, *base, ("0", "0"))
    for policy in POLICIES:
        assert free[policy]["cost_usd"] == 0
        assert free[policy]["finish_hours"] == priced[policy]["finish_hours"]
    ours = command(tmp_path, capsys, *base[:-1], ("stayfast", "optimum"), ("0", "0"))
    assert ours["stayfast"]["met_deadline"]
    assert ours["optimum"]["cost_usd"] == 0


def test_a_gang_larger_than_the_trace_never_meets_spot(tmp_path, capsys):
    base = ([4] * 100, Fraction(600), 5, Fraction(5), Fraction(9), Fraction("0.1"), Fraction(0))
    rows = command(tmp_path, capsys, *base, (*POLICIES, "stayfast", "optimum"))
    assert all(row["spot_hours"] == 0 for row in rows.values())
    assert rows["optimum"]["cost_usd"] == rows["on-demand"]["cost_usd"] == rows["greedy"]["cost_usd"]
    assert rows["spot-only"]["finish_hours"] is None


@pytest.mark.parametrize("policy", POLICIES)
def test_the_fast_engine_follows_the_letter_too(policy):
    rng = random.Random(f"fast {policy}")
    for _ in range(12):
        counts, tick, nodes, work, deadline, cold, _ = odd_case(rng)
        starts = [rng.randrange(len(counts)) for _ in range(12)]
        scenario = Scenario(*(round(float(value) * 3600, 6) for value in (work, deadline, cold)), 3.0, 1.0, nodes)
        table = np.array([[int(count >= nodes) for count in counts]], dtype=np.uint8)
        openings = AvailabilityTable(float(tick), table, np.array(starts))
        rows = Replay(scenario, openings, make_policy(policy)).run().outcomes(policy)
        for start, row in zip(starts, rows, strict=True):
            case = Case(counts, tick, nodes, work * 3600, deadline * 3600, cold * 3600, start * tick)
            story = tell(case, policy)
            assert row.cost_usd == pytest.approx(float(story.cost(case)), abs=1e-9)
            assert (row.interruptions, row.attempts, row.met_deadline) == (
                story.interruptions,
                story.attempts,
                story.met,
            )
