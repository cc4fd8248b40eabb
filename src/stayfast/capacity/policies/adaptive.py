"""Our own policy: weigh the regimes by what this window has shown, then take the mode with the least expected cost.

From the first tick each zone's history is held against every regime: a spell that lasts, or ends, at its age is more
likely under some than under others. The expected cost of each mode is the mean of the regimes' values under those
weights. The safety net stands above it, as in every policy: a deadline that greedy meets is met.

Most windows have no choice at most ticks (they hold a Spot machine, or the deadline forces them, or they are on
on-demand and there is no Spot), so that only the others are weighed.
"""

from __future__ import annotations

from typing import Any

from stayfast.capacity.policies.policy import IDLE, ON_DEMAND, SPOT, PolicyView
from stayfast.capacity.policies.regimes import BANDS_HOURS, Regime, bundled_regimes
from stayfast.capacity.policies.safety_net import forced_by_deadline
from stayfast.capacity.policies.value_tables import Values, ValueTableInputs, solve_value_tables
from stayfast.model.capacity import CapacityClass

FIRST_AGE_HOURS = 1.0
"""Whoever looks at a random moment meets a spell in its middle, not at its start."""

MARGIN_STEPS = 0.25
"""Share of what Spot saves in one step that leaving on-demand must gain; 0.2 to 0.35 are as good in the benchmark."""

FLOOR = 1e-3
"""No regime is ever ruled out."""


class AdaptivePolicy:
    """The policy for many windows; all that it remembers is in the view's memory."""

    needs = frozenset((CapacityClass.SPOT, CapacityClass.ON_DEMAND))

    def __init__(self, regimes: tuple[Regime, ...] | None = None) -> None:
        self._regimes = regimes

    def decide(self, view: PolicyView) -> tuple[Any, Any]:
        if not view.memory:
            self._begin(view)
        else:
            _update_evidence(view)
        np = view.np
        holds, paid = view.mode == SPOT, view.mode == ON_DEMAND
        there = view.available.any(axis=0)
        must, what = forced_by_deadline(view, there | holds)
        # Without a choice: a Spot machine is kept, and on-demand is left only for Spot.
        mode = np.where(must, what, view.mode).astype(np.int8)
        zone = np.where(holds, view.zone, 0).astype(np.int16)
        free = ~holds & (~must | (mode == SPOT)) & (there | ~paid)
        if view.active is not None:
            free &= view.active
        rows = np.flatnonzero(free)
        if len(rows):
            chosen, zone[rows] = _choose(view, rows)
            mode[rows] = np.where(must[rows], mode[rows], chosen)
        return mode, zone

    def select(self, view: PolicyView, rows: Any) -> None:
        """From now on these windows alone are asked for."""
        for name in ("evidence", "age", "bands", "there"):
            view.memory[name] = view.memory[name][:, rows]

    def _begin(self, view: PolicyView) -> None:
        np, memory, scenario = view.np, view.memory, view.scenario
        regimes = self._regimes or bundled_regimes()
        ratios = [float(price) / max(scenario.on_demand_usd_per_hour, 1e-9) for price in view.spot_prices]
        distinct = sorted({round(ratio, 6) for ratio in ratios})
        stretch = scenario.saving.stretch if scenario.saving else 1.0
        memory["values"] = [
            solve_value_tables(
                ValueTableInputs(
                    regimes,
                    scenario.work_seconds * stretch / 3600,
                    scenario.deadline_seconds / 3600,
                    scenario.cold_start_seconds / 3600,
                    ratio,
                )
            )
            for ratio in distinct
        ]
        memory["ratio_of"] = [distinct.index(round(ratio, 6)) for ratio in ratios]
        memory["margin"] = MARGIN_STEPS * memory["values"][0].step_hours * max(0.0, 1 - min(distinct))
        share = np.array([regime.share for regime in regimes])
        there = view.available
        memory["news"] = _log_likelihoods(view, regimes)
        memory["evidence"] = np.log(np.where(there[..., None], share, 1 - share))
        memory["age"] = np.full(there.shape, FIRST_AGE_HOURS)
        memory["bands"] = _bands(view)
        memory["there"] = there.copy()


def _log_likelihoods(view: PolicyView, regimes: tuple[Regime, ...]) -> Any:
    """What one tick says about each regime, by (absent or present, band, lasted or turned): few cases, so a table."""
    np, hours = view.np, view.tick_seconds / 3600
    rates = np.moveaxis(np.array([regime.hazards for regime in regimes]), 0, -1)
    ends = -np.expm1(-rates * hours)
    return np.log(np.stack([1 - ends, ends], axis=2) + 1e-12).reshape(-1, len(regimes))


def _update_evidence(view: PolicyView) -> None:
    """What the last tick says about each regime."""
    np, memory, hours = view.np, view.memory, view.tick_seconds / 3600
    turned = view.available != memory["there"]
    case = (memory["there"] * len(BANDS_HOURS) + memory["bands"]) * 2 + turned
    memory["evidence"] += memory["news"][case]
    memory["age"] = np.where(turned, 0.0, memory["age"] + hours)
    memory["bands"] = _bands(view)
    memory["there"] = view.available.copy()


def _bands(view: PolicyView) -> Any:
    return view.np.searchsorted(BANDS_HOURS, view.memory["age"], side="right") - 1


def _choose(view: PolicyView, rows: Any) -> tuple[Any, Any]:
    """Mode and zone for the windows that have a choice."""
    np, memory = view.np, view.memory
    paid = view.mode[rows] == ON_DEMAND
    shape = (len(view.available), len(rows))
    idle, on_demand, spot = np.full(shape, np.inf), np.empty(shape), np.full(shape, np.inf)
    waits = np.flatnonzero(~paid)
    for zone in range(len(view.available)):
        there = view.available[zone, rows]
        opens = np.flatnonzero(there)
        cost = _Costs(view, memory["values"][memory["ratio_of"][zone]], rows, zone)
        starts = cost.values.start_steps
        idle[zone, waits] = cost(cost.values.idle, waits, 0.0)
        on_demand[zone] = cost(cost.values.on_demand, slice(None), np.where(paid, 0.0, starts))
        spot[zone, opens] = cost(cost.values.spot, opens, starts)
    # With several zones, waiting and on-demand look to the zone that promises most.
    best_idle, best_paid, place = idle.min(axis=0), on_demand.min(axis=0), spot.argmin(axis=0)
    best_spot = spot.min(axis=0)
    # On-demand is not left for a gain that is smaller than the error of a step.
    mode = np.where(paid | (best_paid < best_idle), ON_DEMAND, IDLE)
    rival = np.where(paid, best_paid - memory["margin"], np.minimum(best_idle, best_paid))
    return np.where(best_spot < rival, SPOT, mode), place


class _Costs:
    """Expected costs in a zone for some windows, by mode and by starts on top of the work."""

    def __init__(self, view: PolicyView, values: Values, rows: Any, zone: int) -> None:
        self.np, self.values = view.np, values
        step = values.step_hours * 3600
        exact = max(0.0, view.remaining_ticks * view.tick_seconds / step)
        self._left = min(len(values.idle) - 1, int(exact + 1e-9))
        # Time between steps is taken off the work too, so that the slack is right: slack is what decides.
        self._need = view.need_seconds[rows] / step - (exact - self._left)
        self._band = view.memory["bands"][zone, rows]
        self._state = view.available[zone, rows] * len(BANDS_HOURS) + self._band
        self._weights = _weights(view.np, view.memory["evidence"][zone, rows])

    def __call__(self, table: Any, which: Any, on_top: Any) -> Any:
        np, width, count = self.np, table.shape[-2], table.shape[-1]
        column = np.clip(self._need[which] + on_top, 0.0, width - 1.001)
        low = column.astype(int)
        part = (column - low)[:, None]
        state = self._band if table is self.values.spot else self._state
        cell = state[which] * width + low
        flat = table[self._left].reshape(-1, count)
        return (self._weights[which] * (flat[cell] * (1 - part) + flat[cell + 1] * part)).sum(axis=-1)


def _weights(np: Any, evidence: Any) -> Any:
    """How likely each regime is: windows x regimes."""
    weights = np.exp(evidence - evidence.max(axis=-1, keepdims=True))
    weights = weights / weights.sum(axis=-1, keepdims=True) + FLOOR
    return weights / weights.sum(axis=-1, keepdims=True)
