"""The cheapest schedule in hindsight, exactly, by dynamic programming over ticks.

A schedule of m machine ticks and s starts finishes work C when g·m - d·s ≥ C. Two exact programs:

* on a grid: when tick and cold start share a divisor u (600 s and 360 s: 120 s), the state is the mode and the
  progress in units of u, and the value is the cost; with several zones each is a mode of its own;
* by counts: for any d, the state is (mode, m, s) and the value is the number of on-demand ticks.

Checkpoints, back-off and flex-start are left out: the yardstick is what a clairvoyant without them would pay.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from stayfast.capacity.policies.values import EPSILON_SECONDS, Scenario, ceil_ticks, floor_ticks
from stayfast.capacity.replay.scenario import Outcome, TraceWindow
from stayfast.errors import UsageError
from stayfast.extras import load_numpy

MAX_GRID_UNITS = 20_000
MAX_BITS = 16
"""Of the number of ticks: with more, too few bits would be left for the money."""
AT_ONCE = 64
"""Windows in one pass: enough to spread the cost of a pass, few enough to stay in the processor's cache."""


class Schedule(NamedTuple):
    """Machine ticks of a cheapest schedule."""

    cost_usd: float
    spot_ticks: int
    on_demand_ticks: int
    finish_tick: int


def optimum(scenario: Scenario, window: TraceWindow) -> Outcome:
    """The cheapest way to finish by the deadline, knowing everything; never dearer than on-demand alone.

    Where not even on-demand from the first tick is in time, nothing is, and on-demand is what is left.
    """
    return find_optima(scenario, [window])[0]


def find_optima(scenario: Scenario, windows: Sequence[TraceWindow]) -> list[Outcome]:
    """The same for many windows of equal ticks and prices, in their order."""
    if scenario.is_done:
        return [Outcome("optimum", finish_hours=0.0, met_deadline=True) for _ in windows]
    if not windows:
        return []
    tick = windows[0].tick_seconds
    ticks = floor_ticks(scenario.deadline_seconds, tick)
    plain = ceil_ticks(scenario.work_seconds + scenario.cold_start_seconds, tick)
    unit = _unit(tick, scenario.cold_start_seconds)
    if plain > ticks or _least_price(scenario, windows[0]) >= scenario.on_demand_usd_per_hour:
        cost = plain * tick / 3600 * scenario.on_demand_usd_per_hour
        found = [Schedule(cost, 0, plain, plain)] * len(windows)
    elif unit is not None and scenario.work_seconds / unit <= MAX_GRID_UNITS:
        found = []
        for first in range(0, len(windows), AT_ONCE):
            found += by_grid(scenario, windows[first : first + AT_ONCE], ticks, unit)
    elif len(windows[0].zones) == 1 and windows[0].spot_price_by_tick is None:
        found = [by_counts(scenario, window, ticks) for window in windows]
    else:
        raise UsageError(
            "the optimum over several zones or changing prices needs a tick and a cold start with a common divisor",
            help="round the cold start to a tenth of an hour",
        )
    return [_outcome(scenario, best, tick / 3600, met=plain <= ticks) for best in found]


def _outcome(scenario: Scenario, best: Schedule, hours: float, *, met: bool) -> Outcome:
    return Outcome(
        "optimum",
        best.cost_usd,
        best.spot_ticks * hours,
        best.on_demand_ticks * hours,
        finish_hours=best.finish_tick * hours,
        met_deadline=met,
        useful_seconds=scenario.work_seconds,
    )


def zone_prices(scenario: Scenario, window: TraceWindow) -> tuple[float, ...]:
    """The Spot price of each zone."""
    return window.spot_usd_per_hour or (scenario.spot_usd_per_hour,) * len(window.zones)


def _least_price(scenario: Scenario, window: TraceWindow) -> float:
    if window.spot_price_by_tick is not None:
        return min(min(prices) for prices in window.spot_price_by_tick)
    return min(zone_prices(scenario, window))


def _unit(tick_seconds: float, cold_start_seconds: float) -> float | None:
    tick, start = round(tick_seconds * 1000), round(cold_start_seconds * 1000)
    if abs(tick - tick_seconds * 1000) > 1e-3 or abs(start - cold_start_seconds * 1000) > 1e-3:
        return None
    return math.gcd(tick, start) / 1000


def _openings(window: TraceWindow, ticks: int, np: Any) -> Any:
    """Availability as zones x ticks; past the end of a trace there is none."""
    there = np.zeros((len(window.zones), ticks), dtype=bool)
    for row, zone in enumerate(window.zones):
        known = np.frombuffer(zone[:ticks], dtype=np.uint8)
        there[row, : len(known)] = known == 1
    return there


def by_grid(scenario: Scenario, windows: Sequence[TraceWindow], ticks: int, unit: float) -> list[Schedule]:
    """One cheapest schedule per window. Rows are on-demand and then each zone; columns are progress in units.

    Progress is counted from a start below zero, so that a fresh machine has a column too. At each tick only a band of
    columns matters: who is further behind cannot be in time any more, and nobody can be further ahead.
    """
    np = load_numpy()
    tick, start = round(windows[0].tick_seconds / unit), round(scenario.cold_start_seconds / unit)
    goal = math.ceil((scenario.work_seconds - EPSILON_SECONDS) / unit) + start
    steps, scale = _steps(scenario, windows[0], ticks, np)
    never = np.int64(1 << 62)
    closed = ~np.array([_openings(window, ticks, np) for window in windows])
    count = len(windows)
    running = np.full((len(steps), count, goal + tick), never)
    moved = running.copy()
    rest = np.full((count, goal + start), never)
    rest[:, start] = 0
    best, finish = np.full(count, never), np.full(count, ticks)
    for now in range(ticks):
        low, high = max(0, goal - tick * (ticks - now)), min(goal, start + tick * now + 1)
        # Cells of the other buffer that are not written below are of no use: too far behind, or never reached.
        for row, cost in enumerate(steps):
            machine, place = running[row, :, low:high], moved[row, :, low + tick : high + tick]
            np.minimum(machine, rest[:, low + start : high + start], out=place)
            place += cost[now]
            if row:
                place[closed[:, row - 1, now]] = never
        running, moved = moved, running
        low, high = low + tick, min(goal, high + tick)
        for machine in running:
            np.minimum(rest[:, low:high], machine[:, low:high], out=rest[:, low:high])
        if high == goal:
            least = running[:, :, goal:].min(axis=(0, 2))
            finish = np.where(least < best, now + 1, finish)
            best = np.minimum(best, least)
    return [
        _read_key(int(key), int(when), ticks.bit_length(), scale, scenario, windows[0])
        for key, when in zip(best, finish, strict=True)
    ]


def _steps(scenario: Scenario, window: TraceWindow, ticks: int, np: Any) -> tuple[Any, float]:
    """What a tick costs, rows x ticks. One integer carries money, then on-demand ticks, then all ticks: a minimum of
    it breaks ties the same way always."""
    rows = [[scenario.on_demand_usd_per_hour] * ticks]
    if window.spot_price_by_tick is not None:
        rows += [[prices[min(now, len(prices) - 1)] for now in range(ticks)] for prices in window.spot_price_by_tick]
    else:
        rows += [[price] * ticks for price in zone_prices(scenario, window)]
    prices = np.array(rows)
    bits = ticks.bit_length()
    if bits > MAX_BITS:
        raise UsageError(
            f"the optimum of {ticks} ticks is out of reach", help="raise the tick, or leave the optimum out"
        )
    scale = 2.0 ** min(40, 61 - 3 * bits) / max(float(prices.max()), 1e-9)
    steps = (np.rint(prices * scale).astype(np.int64) << 2 * bits) + 1
    steps[0] += 1 << bits
    return steps, scale


def _read_key(key: int, finish: int, bits: int, scale: float, scenario: Scenario, window: TraceWindow) -> Schedule:
    mask = (1 << bits) - 1
    used, on_demand = key & mask, (key >> bits) & mask
    hours = window.tick_seconds / 3600
    if len(window.zones) == 1 and window.spot_price_by_tick is None:
        price = zone_prices(scenario, window)[0]
        cost = ((used - on_demand) * price + on_demand * scenario.on_demand_usd_per_hour) * hours
    else:
        cost = (key >> 2 * bits) / scale * hours
    return Schedule(cost, used - on_demand, on_demand, finish)


def by_counts(scenario: Scenario, window: TraceWindow, ticks: int) -> Schedule:
    """One zone, any cold start: the fewest on-demand ticks by starts (rows) and machine ticks (columns)."""
    np = load_numpy()
    tick, start = window.tick_seconds, scenario.cold_start_seconds
    there = _openings(window, ticks, np)[0]
    openings = int(np.count_nonzero(there[1:] & ~there[:-1])) + int(there[0])
    slack = int((ticks * tick - scenario.work_seconds) / start) if start else ticks
    starts = max(1, min(2 * openings + 1, slack))
    most = min(ticks, ceil_ticks(scenario.work_seconds + starts * start, tick))
    never = np.int32(1 << 28)
    rest = np.full((starts + 1, most + 1), never, dtype=np.int32)
    rest[0, 0] = 0
    spot, on_demand = np.full_like(rest, never), np.full_like(rest, never)
    for now in range(ticks):
        moved = np.full_like(rest, never)
        moved[:, 1:] = on_demand[:, :-1]
        moved[1:, 1:] = np.minimum(moved[1:, 1:], rest[:-1, :-1])
        shifted = np.full_like(rest, never)
        if there[now]:
            shifted[:, 1:] = spot[:, :-1]
            shifted[1:, 1:] = np.minimum(shifted[1:, 1:], rest[:-1, :-1])
        on_demand, spot = np.minimum(moved + 1, never), shifted
        rest = np.minimum(rest, np.minimum(on_demand, spot))
    hours = tick / 3600
    prices = zone_prices(scenario, window)
    best: tuple[float, int, int] | None = None
    for count in range(1, starts + 1):
        used = ceil_ticks(scenario.work_seconds + count * start, tick)
        if used <= most and rest[count, used] < never:
            full = int(rest[count, used])
            cost = ((used - full) * prices[0] + full * scenario.on_demand_usd_per_hour) * hours
            best = min(best or (math.inf, 0, 0), (cost, full, used))
    assert best is not None, "on-demand alone is always a schedule here"
    return Schedule(best[0], best[2] - best[1], best[1], ticks)
