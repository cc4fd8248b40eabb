"""One window or many through several policies, and the figures that come out."""

from __future__ import annotations

import random
import statistics
from collections.abc import Sequence
from typing import Any

from stayfast.capacity.policies.policy import OPTIMUM, Policy, make_policy
from stayfast.capacity.policies.values import Scenario, floor_ticks
from stayfast.capacity.replay.engine import AvailabilityTable, Replay
from stayfast.capacity.replay.optimum import find_optima, optimum
from stayfast.capacity.replay.scenario import Outcome, TraceWindow, window_of
from stayfast.capacity.replay.traces import Trace
from stayfast.errors import UsageError
from stayfast.extras import load_numpy

AT_ONCE = 20_000
"""Windows in one pass: memory does not grow with their number beyond this."""


def run_one(scenario: Scenario, window: TraceWindow, policy: str) -> Outcome:
    """One policy on one window."""
    if policy == OPTIMUM:
        return optimum(scenario, window)
    return replay_window(scenario, window, make_policy(policy), policy)


def replay_window(scenario: Scenario, window: TraceWindow, policy: Policy, name: str) -> Outcome:
    """One window, with its timeline."""
    np = load_numpy()
    table = np.array([np.frombuffer(zone[: window.ticks], dtype=np.uint8) for zone in window.zones])
    openings = AvailabilityTable(window.tick_seconds, table, np.zeros(1, dtype=np.int64))
    return Replay(scenario, openings, policy, spot_prices=window.spot_usd_per_hour).run().outcome(name)


def draw_starts(traces: Sequence[Trace], scenario: Scenario, *, windows: int, seed: int) -> list[int]:
    """Random starts, in ticks, such that every window lies inside every trace."""
    ticks = min(trace.ticks for trace in traces)
    length = floor_ticks(scenario.deadline_seconds, traces[0].tick_seconds)
    if length > ticks:
        hours = min(trace.hours for trace in traces)
        raise UsageError(
            f"a window of {scenario.deadline_seconds / 3600:g} h does not fit the trace of {hours:.1f} h",
            help="shorten --deadline-hours or give a longer trace",
        )
    rng = random.Random(seed)
    return [rng.randint(0, ticks - length) for _ in range(windows)]


def run_many(traces: Sequence[Trace], scenario: Scenario, policy: str, starts: Sequence[int]) -> list[Outcome]:
    """One policy on many windows, in the order of the starts."""
    tick = traces[0].tick_seconds
    if policy == OPTIMUM:
        return find_optima(
            scenario, [window_of(traces, nodes=scenario.nodes, start_seconds=start * tick) for start in starts]
        )
    outcomes: list[Outcome] = []
    for first in range(0, len(starts), AT_ONCE):
        outcomes += run_batch(traces, scenario, policy, starts[first : first + AT_ONCE]).outcomes(policy)
    return outcomes


def run_batch(traces: Sequence[Trace], scenario: Scenario, policy: str, starts: Sequence[int]) -> Replay:
    """The same, as arrays."""
    np = load_numpy()
    zones = [trace.available(scenario.nodes) for trace in traces]
    shortest = min(len(zone) for zone in zones)
    table = np.array([np.frombuffer(zone[:shortest], dtype=np.uint8) for zone in zones])
    openings = AvailabilityTable(traces[0].tick_seconds, table, np.asarray(starts))
    return Replay(scenario, openings, make_policy(policy)).run()


def outcome_row(outcome: Outcome) -> dict[str, Any]:
    """The JSON of one replay; the optimum has no story of its own, only sums."""
    known = outcome.policy != OPTIMUM
    row: dict[str, Any] = {
        "policy": outcome.policy,
        "cost_usd": outcome.cost_usd,
        "spot_hours": outcome.spot_hours,
        "on_demand_hours": outcome.on_demand_hours,
        "flex_start_hours": outcome.flex_start_hours,
        "finish_hours": outcome.finish_hours,
        "met_deadline": outcome.met_deadline,
        "interruptions": outcome.interruptions if known else None,
        "attempts": outcome.attempts if known else None,
        "goodput": outcome.goodput,
    }
    if known:
        row["badput_seconds"] = {
            "start": outcome.start_seconds,
            "restore": outcome.restore_seconds,
            "save": outcome.save_seconds,
            "lost": outcome.lost_seconds,
            "waiting": outcome.waiting_seconds,
            "tail": outcome.tail_seconds,
        }
    return row


def summary_row(policy: str, outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """The JSON of many replays: means of the same fields, and quantiles of cost and finish."""
    costs = sorted(outcome.cost_usd for outcome in outcomes)
    finishes = sorted(outcome.finish_hours for outcome in outcomes if outcome.finish_hours is not None)
    known = policy != OPTIMUM
    return {
        "policy": policy,
        "windows": len(outcomes),
        "cost_usd": statistics.fmean(costs),
        "cost_usd_p50": quantile(costs, 0.5),
        "cost_usd_p95": quantile(costs, 0.95),
        "spot_hours": statistics.fmean(outcome.spot_hours for outcome in outcomes),
        "on_demand_hours": statistics.fmean(outcome.on_demand_hours for outcome in outcomes),
        "flex_start_hours": statistics.fmean(outcome.flex_start_hours for outcome in outcomes),
        "finish_hours": statistics.fmean(finishes) if finishes else None,
        "finish_hours_p95": quantile(finishes, 0.95) if finishes else None,
        "met_deadline": sum(outcome.met_deadline for outcome in outcomes) / len(outcomes),
        "interruptions": statistics.fmean(outcome.interruptions for outcome in outcomes) if known else None,
        "goodput": statistics.fmean(outcome.goodput for outcome in outcomes),
    }


def quantile(ordered: Sequence[float], share: float) -> float:
    """The value below which this share of an ordered, non-empty list lies, interpolated."""
    place = share * (len(ordered) - 1)
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)
