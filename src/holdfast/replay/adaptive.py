"""Our own policy: weigh the regimes by what this window has shown, then take the mode with the least expected cost.

From the first tick each zone's history is held against every regime: a spell that lasts, or ends, at its age is more
likely under some than under others. The expected cost of each mode is the mean of the regimes' values under those
weights. The safety net stands above it, as in every policy: a deadline that greedy meets is met.
"""

from __future__ import annotations

from typing import Any

from holdfast.replay.batch import IDLE, ON_DEMAND, SPOT, BatchView
from holdfast.replay.batch_policies import safety_net
from holdfast.replay.engine import View
from holdfast.replay.lookahead import Question, Values, look_ahead
from holdfast.replay.optimum import load_numpy
from holdfast.replay.regimes import Regime, bundled_regimes
from holdfast.replay.scenario import Mode, Placement
from holdfast.replay.survival import BANDS_HOURS

FIRST_AGE_HOURS = 1.0
"""Whoever looks at a random moment meets a spell in its middle, not at its start."""

MARGIN_STEPS = 0.25
"""Share of what Spot saves in one step that leaving on-demand must gain; 0.2 to 0.35 are as good in the benchmark."""

FLOOR = 1e-3
"""No regime is ever ruled out."""


class Adaptive:
    """The policy for many windows; all that it remembers is in the view's memory."""

    def __init__(self, regimes: tuple[Regime, ...] | None = None) -> None:
        self._regimes = regimes

    def __call__(self, view: BatchView) -> tuple[Any, Any]:
        memory = view.memory
        if not memory:
            self._begin(view)
        else:
            _observe(view)
        np, there = view.np, view.available
        weights, bands = _weights(view), _bands(view)
        starts = memory["start_steps"]
        paid = view.mode == ON_DEMAND
        costs = [
            _costs(view, memory["values"][memory["ratio_of"][zone]], weights[zone], bands[zone], zone)
            for zone in range(len(there))
        ]
        # With several zones, waiting and on-demand look to the zone that promises most.
        idle = np.min([cost(IDLE, 0.0) for cost in costs], axis=0)
        on_demand = np.min([cost(ON_DEMAND, np.where(paid, 0.0, starts)) for cost in costs], axis=0)
        spot = np.array([np.where(there[zone], cost(SPOT, starts), np.inf) for zone, cost in enumerate(costs)])
        zone = spot.argmin(axis=0)
        spot = spot.min(axis=0)
        # On-demand is left only for Spot, and not for a gain that is smaller than the error of a step.
        mode = np.where(paid | (on_demand < idle), ON_DEMAND, IDLE)
        mode = np.where(spot < np.where(paid, on_demand - memory["margin"], np.minimum(idle, on_demand)), SPOT, mode)
        holds = view.mode == SPOT
        mode = np.where(holds, SPOT, mode)
        zone = np.where(holds, view.zone, zone).astype(np.int16)
        return safety_net(view, mode, there.any(axis=0) | holds), zone

    def _begin(self, view: BatchView) -> None:
        np, memory, scenario = view.np, view.memory, view.scenario
        regimes = self._regimes or bundled_regimes()
        ratios = [float(price) / max(scenario.on_demand_usd_per_hour, 1e-9) for price in view.spot_prices]
        distinct = sorted({round(ratio, 6) for ratio in ratios})
        stretch = scenario.saving.stretch if scenario.saving else 1.0
        memory["values"] = [
            look_ahead(
                Question(
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
        memory["start_steps"] = memory["values"][0].start_steps
        share = np.array([regime.share for regime in regimes])
        there = view.available
        memory["hazards"] = np.array([regime.hazards for regime in regimes])
        memory["evidence"] = np.log(np.where(there[..., None], share, 1 - share))
        memory["age"] = np.full(there.shape, FIRST_AGE_HOURS)
        memory["there"] = there.copy()


def _observe(view: BatchView) -> None:
    """What the last tick says about each regime."""
    np, memory, hours = view.np, view.memory, view.tick_seconds / 3600
    turned = view.available != memory["there"]
    rates = memory["hazards"][:, memory["there"].astype(int), _bands(view)]
    ends = -np.expm1(-rates * hours)
    memory["evidence"] += np.log(np.moveaxis(np.where(turned, ends, 1 - ends), 0, -1) + 1e-12)
    memory["age"] = np.where(turned, 0.0, memory["age"] + hours)
    memory["there"] = view.available.copy()


def _bands(view: BatchView) -> Any:
    return view.np.searchsorted(BANDS_HOURS, view.memory["age"], side="right") - 1


def _weights(view: BatchView) -> Any:
    """Zones x windows x regimes."""
    np = view.np
    evidence = view.memory["evidence"]
    weights = np.exp(evidence - evidence.max(axis=-1, keepdims=True))
    weights = weights / weights.sum(axis=-1, keepdims=True) + FLOOR
    return weights / weights.sum(axis=-1, keepdims=True)


def _costs(view: BatchView, values: Values, weights: Any, bands: Any, zone: int) -> Any:
    """Expected cost of a mode in a zone, per window, as a function of the mode and of starts on top of the work."""
    np, step = view.np, values.step_hours * 3600
    there = view.available[zone].astype(int)
    exact = max(0.0, view.remaining_ticks * view.tick_seconds / step)
    left = min(values.idle.shape[-2] - 1, int(exact + 1e-9))
    # Time between steps is taken off the work too, so that the slack is right: slack is what decides.
    need = view.need_seconds / step - (exact - left)

    def cost(mode: int, on_top: Any) -> Any:
        column = np.clip(need + on_top, 0.0, values.idle.shape[-1] - 1.001)
        low = column.astype(int)
        part = (column - low)[:, None]
        if mode == SPOT:
            table = values.spot[:, :, left]
            below, above = table[:, bands, low], table[:, bands, low + 1]
        else:
            table = (values.idle if mode == IDLE else values.on_demand)[:, :, :, left]
            below, above = table[:, there, bands, low], table[:, there, bands, low + 1]
        return (weights * (below.T * (1 - part) + above.T * part)).sum(axis=-1)

    return cost


class Holdfast:
    """The same policy for one window, as the plain engine wants it."""

    def __init__(self, regimes: tuple[Regime, ...] | None = None) -> None:
        self._policy = Adaptive(regimes)
        self._view: BatchView | None = None

    def decide(self, view: View) -> Placement:
        np = load_numpy()
        if self._view is None:
            prices = np.array(view.spot_usd_per_hour)
            self._view = BatchView(np, view.scenario, view.tick_seconds, view.deadline_ticks, prices)
        many = self._view
        many.tick = view.tick
        many.mode, many.zone = np.array([int(view.placement.mode)]), np.array([view.placement.zone])
        many.available = np.array(view.available)[:, None]
        many.done_seconds, many.need_seconds = np.array([view.done_seconds]), np.array([view.need_seconds])
        many.start_left_seconds, many.start_seconds = np.array([view.start_left_seconds]), view.start_seconds
        mode, zone = self._policy(many)
        chosen = Mode(int(mode[0]))
        return Placement(chosen, int(zone[0]) if chosen == Mode.SPOT else 0)
