"""The engine's own rules, each on a window small enough to count by hand."""

from __future__ import annotations

import plain_engine
import pytest
from both_engines import replay
from plain_policies import SpotOnly

from stayfast.capacity.policies.values import Mode, Saving, Scenario, ceil_ticks, floor_ticks
from stayfast.capacity.replay.scenario import TraceWindow, window_of
from stayfast.capacity.replay.traces import from_counts
from stayfast.errors import UsageError

HOUR = 3600.0


def scenario(work=4.0, deadline=20.0, cold=0.0, **more):
    return Scenario(work * HOUR, deadline * HOUR, cold * HOUR, 10.0, 4.0, **more)


def window(text, tick=HOUR):
    return TraceWindow(tick, tuple(bytes(int(digit) for digit in row) for row in text.split()))


def test_a_preemption_is_seen_where_the_count_drops_and_a_start_costs_machine_time():
    outcome = replay(scenario(cold=0.5), window("1101111111"), "spot-only")
    # 0.5 + 1 h in the first two ticks, then 0.5 + 1 + 1 h.
    assert outcome.spot_hours == 5
    assert outcome.finish_hours == 6
    assert (outcome.interruptions, outcome.attempts) == (1, 2)
    assert outcome.start_seconds == 1 * HOUR
    assert outcome.waiting_seconds == HOUR
    assert outcome.cost_usd == pytest.approx(5 * 4.0)


def test_a_short_life_never_pays_for_its_start():
    outcome = replay(scenario(work=1, cold=1.5), window("1011111"), "spot-only")
    assert outcome.spot_hours == 4
    assert outcome.start_seconds == 2.5 * HOUR
    assert outcome.tail_seconds == pytest.approx(0.5 * HOUR)


def test_work_since_the_last_checkpoint_is_done_again():
    kept = Saving(interval_seconds=1.5 * HOUR, save_seconds=0.0)
    outcome = replay(scenario(saving=kept), window("1101111111"), "spot-only")
    assert outcome.lost_seconds == pytest.approx(0.5 * HOUR)
    assert outcome.spot_hours == 5  # 2 before, and 2.5 more whole ticks
    assert outcome.useful_seconds == pytest.approx(4 * HOUR)


def test_a_save_in_flight_keeps_nothing():
    kept = Saving(interval_seconds=1.5 * HOUR, save_seconds=0.75 * HOUR)
    outcome = replay(scenario(saving=kept), window("110111111111"), "spot-only")
    assert outcome.lost_seconds == pytest.approx(1.5 * HOUR)
    # 4 h again, with saves at 1.5 and 3.0 h.
    assert outcome.save_seconds == pytest.approx(0.5 * HOUR + 1.5 * HOUR)


def test_a_notice_that_saves_loses_nothing():
    kept = Saving(interval_seconds=1.5 * HOUR, notice_saves=True)
    outcome = replay(scenario(saving=kept), window("1101111111"), "spot-only")
    assert outcome.lost_seconds == 0
    assert outcome.spot_hours == 4


def test_restores_are_counted_apart_from_starts():
    kept = Saving(interval_seconds=HOUR, restore_seconds=0.25 * HOUR)
    outcome = replay(scenario(cold=0.5, saving=kept), window("11011111111"), "spot-only")
    assert outcome.restore_seconds == pytest.approx(0.25 * HOUR)
    assert outcome.start_seconds == pytest.approx(1.0 * HOUR)


def test_the_job_controller_backs_off_and_never_forgets():
    outcome = replay(scenario(job_backoff=True), window("10101010" + "1" * 9), "spot-only")
    # Four interruptions: 10, 20, 40 and 80 s.
    assert outcome.interruptions == 4
    assert outcome.start_seconds == pytest.approx(150)


def test_flex_start_waits_and_chains_leases():
    flex = scenario(
        work=5, flex_start_usd_per_hour=3.0, flex_wait_seconds=2 * HOUR, flex_lease_seconds=3 * HOUR, cold=0.5
    )
    outcome = replay(flex, window("0"), "flex-start")
    # 2 h queue, 2.5 h of work in the first lease, 2 h queue, 2.5 h in the second.
    assert outcome.flex_start_hours == 6
    assert outcome.finish_hours == 10
    assert (outcome.interruptions, outcome.attempts) == (1, 2)
    assert outcome.cost_usd == pytest.approx(18.0)
    assert outcome.lost_seconds == 0


def test_flex_start_gives_up_waiting_in_time():
    late = scenario(work=5, deadline=8, flex_start_usd_per_hour=3.0, flex_wait_seconds=100 * HOUR)
    outcome = replay(late, window("0"), "flex-start")
    assert outcome.met_deadline
    assert outcome.on_demand_hours == 5


def test_hybrid_takes_flex_start_when_it_is_cheaper_and_spot_while_it_waits():
    both = scenario(work=6, flex_start_usd_per_hour=3.0, flex_wait_seconds=3 * HOUR)
    outcome = replay(both, window("111011111111"), "hybrid")
    assert outcome.spot_hours == 3
    assert outcome.flex_start_hours == 3
    assert outcome.met_deadline


def test_greedy_waits_for_the_last_moment_and_uniform_progress_does_not():
    none = window("0" * 30)
    greedy = replay(scenario(cold=0.5), none, "greedy")
    line = replay(scenario(cold=0.5), none, "uniform-progress")
    assert greedy.met_deadline
    assert line.met_deadline
    assert greedy.finish_hours == 20
    assert line.finish_hours < 7


def test_without_a_cold_start_spot_serves_to_the_end():
    outcome = replay(scenario(work=4, deadline=6), window("000101"), "greedy")
    assert outcome.met_deadline
    assert outcome.spot_hours == 2


def test_spot_only_stops_where_the_trace_does():
    outcome = replay(scenario(), window("11"), "spot-only")
    assert outcome.finish_hours is None
    assert not outcome.met_deadline
    assert outcome.spot_hours == 2


def test_the_cheapest_open_zone_is_taken_and_kept():
    two = TraceWindow(HOUR, (bytes([1] * 9), bytes([0, 1, 1, 1, 1, 1, 1, 1, 1])), (5.0, 2.0))
    outcome = replay(scenario(), two, "spot-only")
    assert outcome.timeline == [(Mode.SPOT, 0, 4)]
    assert outcome.cost_usd == pytest.approx(20)


def test_prices_may_change_with_every_tick():
    moving = TraceWindow(HOUR, (bytes([1] * 4),), spot_price_by_tick=((1.0, 2.0, 3.0),))
    assert plain_engine.replay(scenario(), moving, SpotOnly()).cost_usd == pytest.approx(1 + 2 + 3 + 3)


def test_start_is_moved_up_and_deadline_down():
    assert ceil_ticks(0.1 * HOUR, 195) == 2
    assert ceil_ticks(600.0000001, 600) == 1
    assert floor_ticks(59.999 * HOUR, 600) == 359
    trace = from_counts("x", [0, 1, 1], tick_seconds=600)
    assert window_of([trace], nodes=1, start_seconds=1).zones == (bytes([1, 1]),)
    with pytest.raises(UsageError, match="past the end"):
        window_of([trace], nodes=1, start_seconds=1801)
    with pytest.raises(UsageError, match="cannot be replayed together"):
        window_of([trace, from_counts("y", [1], tick_seconds=60)], nodes=1, start_seconds=0)


def test_on_demand_pays_for_its_whole_last_tick():
    outcome = replay(scenario(work=4, cold=0.25), window("0" * 30), "on-demand")
    assert outcome.on_demand_hours == 5
    assert outcome.tail_seconds == pytest.approx(0.75 * HOUR)
    assert outcome.goodput == pytest.approx(0.8)


@pytest.mark.parametrize("bad", [{"work": -1}, {"work": float("nan")}, {"deadline": -1}, {"cold": float("inf")}])
def test_impossible_scenarios_are_refused(bad):
    with pytest.raises(UsageError):
        scenario(**bad)
