"""The cheapest schedule in hindsight, exactly, by dynamic programming over ticks.

A schedule of m machine ticks and s starts finishes work C when g·m - d·s ≥ C. Two exact programs:

* on a grid: when tick and cold start share a divisor u (600 s and 360 s: 120 s), the state is the mode and the
  progress in units of u, and the value is the cost; with several zones each is a mode of its own;
* by counts: for any d, the state is (mode, m, s) and the value is the number of on-demand ticks.

Checkpoints, back-off and flex-start are left out: the yardstick is what a clairvoyant without them would pay.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast.errors import MissingExtraError, UsageError
from holdfast.replay.scenario import EPSILON_SECONDS, Outcome, Scenario, Window, ceil_ticks, floor_ticks

if TYPE_CHECKING:
    from types import ModuleType

MAX_GRID_UNITS = 20_000


def load_numpy() -> ModuleType:
    """NumPy, or the sentence that says how to get it."""
    try:
        import numpy
    except ImportError as error:
        raise MissingExtraError(
            "the optimum and many windows at once need NumPy", help="pip install 'holdfast[sim]'"
        ) from error
    module: ModuleType = numpy
    return module


class Schedule(NamedTuple):
    """Machine ticks of a cheapest schedule."""

    cost_usd: float
    spot_ticks: int
    on_demand_ticks: int
    finish_tick: int


def optimum(scenario: Scenario, window: Window) -> Outcome:
    """The cheapest way to finish by the deadline, knowing everything; never dearer than on-demand alone.

    Where not even on-demand from the first tick is in time, nothing is, and on-demand is what is left.
    """
    ticks = floor_ticks(scenario.deadline_seconds, window.tick_seconds)
    plain = ceil_ticks(scenario.work_seconds + scenario.cold_start_seconds, window.tick_seconds)
    outcome = Outcome("optimum")
    if scenario.is_done:
        outcome.finish_hours, outcome.met_deadline = 0.0, True
        return outcome
    hours = window.tick_seconds / 3600
    unit = _unit(window.tick_seconds, scenario.cold_start_seconds)
    if plain > ticks or min(zone_prices(scenario, window)) >= scenario.on_demand_usd_per_hour:
        best = Schedule(plain * hours * scenario.on_demand_usd_per_hour, 0, plain, plain)
    elif unit is not None and scenario.work_seconds / unit <= MAX_GRID_UNITS:
        best = by_grid(scenario, window, ticks, unit)
    elif len(window.zones) == 1:
        best = by_counts(scenario, window, ticks)
    else:
        raise UsageError(
            "the optimum over several zones needs a tick and a cold start with a common divisor",
            help="round the cold start to a tenth of an hour",
        )
    outcome.cost_usd = best.cost_usd
    outcome.spot_hours, outcome.on_demand_hours = best.spot_ticks * hours, best.on_demand_ticks * hours
    outcome.finish_hours = best.finish_tick * hours
    outcome.useful_seconds = scenario.work_seconds
    outcome.met_deadline = plain <= ticks
    return outcome


def zone_prices(scenario: Scenario, window: Window) -> tuple[float, ...]:
    """The Spot price of each zone."""
    return window.spot_usd_per_hour or (scenario.spot_usd_per_hour,) * len(window.zones)


def _unit(tick_seconds: float, cold_start_seconds: float) -> float | None:
    tick, start = round(tick_seconds * 1000), round(cold_start_seconds * 1000)
    if abs(tick - tick_seconds * 1000) > 1e-3 or abs(start - cold_start_seconds * 1000) > 1e-3:
        return None
    return math.gcd(tick, start) / 1000


def _openings(window: Window, ticks: int, np: Any) -> Any:
    """Availability as zones x ticks; past the end of a trace there is none."""
    there = np.zeros((len(window.zones), ticks), dtype=bool)
    for row, zone in enumerate(window.zones):
        known = np.frombuffer(zone[:ticks], dtype=np.uint8)
        there[row, : len(known)] = known == 1
    return there


def by_grid(scenario: Scenario, window: Window, ticks: int, unit: float) -> Schedule:
    """Rows are on-demand and then each zone; columns are progress, shifted so that a fresh start is not negative."""
    np = load_numpy()
    tick, start = round(window.tick_seconds / unit), round(scenario.cold_start_seconds / unit)
    goal = math.ceil((scenario.work_seconds - EPSILON_SECONDS) / unit) + start
    prices = (scenario.on_demand_usd_per_hour, *zone_prices(scenario, window))
    # One integer carries cost, then on-demand ticks, then all ticks: a minimum of it breaks ties the same way always.
    bits = ticks.bit_length()
    scale = 2.0 ** min(40, 62 - 3 * bits) / max(*prices, 1e-9)
    steps = np.array([(round(price * scale) << 2 * bits) + 1 for price in prices], dtype=np.int64)
    steps[0] += 1 << bits
    never = np.int64(1 << 62)
    closed = ~_openings(window, ticks, np)
    rest = np.full(goal + 1, never)
    rest[start] = 0
    running = np.full((len(prices), goal + 1), never)
    base, moved = np.empty_like(running), np.empty_like(running)
    best, finish = never, ticks
    for now in range(ticks):
        np.minimum(running[:, : goal + 1 - start], rest[start:], out=base[:, : goal + 1 - start])
        base[:, goal + 1 - start :] = running[:, goal + 1 - start :]
        moved[:, :tick] = never
        moved[:, tick:] = base[:, : max(0, goal + 1 - tick)]
        moved[:, goal] = base[:, max(0, goal - tick) :].min(axis=1)
        np.minimum(moved + steps[:, None], never, out=moved)
        moved[1:][closed[:, now]] = never
        running, moved = moved, running
        np.minimum(rest, running.min(axis=0), out=rest)
        if rest[goal] < best:
            best, finish = rest[goal], now + 1
    key, mask = int(best), (1 << bits) - 1
    used, on_demand = key & mask, (key >> bits) & mask
    hours = window.tick_seconds / 3600
    if len(prices) == 2:
        cost = ((used - on_demand) * prices[1] + on_demand * prices[0]) * hours
    else:
        cost = (key >> 2 * bits) / scale * hours
    return Schedule(cost, used - on_demand, on_demand, finish)


def by_counts(scenario: Scenario, window: Window, ticks: int) -> Schedule:
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
