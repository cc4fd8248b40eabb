"""Our policy as it is defined: every window weighed at every tick, formula by formula, nothing skipped and no tables.

Slow on purpose. The product's form must take the same decisions from the same numbers, to the last bit.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from stayfast.capacity.policies.adaptive import FIRST_AGE_HOURS, FLOOR, MARGIN_STEPS
from stayfast.capacity.policies.policy import IDLE, ON_DEMAND, SPOT, PolicyView
from stayfast.capacity.policies.regimes import BANDS_HOURS, Regime, bundled_regimes
from stayfast.capacity.policies.value_tables import ValueTableInputs, solve_value_tables
from stayfast.capacity.policies.values import EPSILON_SECONDS


class ByTheBook:
    def __init__(self, regimes: tuple[Regime, ...] | None = None) -> None:
        self.regimes = regimes or bundled_regimes()

    def decide(self, view: PolicyView) -> tuple[Any, Any]:
        memory, there = view.memory, view.available
        if memory:
            self.observe(view)
        else:
            self.begin(view)
        paid, holds = view.mode == ON_DEMAND, view.mode == SPOT
        evidence = memory["evidence"]
        weights = np.exp(evidence - evidence.max(axis=-1, keepdims=True))
        weights = weights / weights.sum(axis=-1, keepdims=True) + FLOOR
        weights = weights / weights.sum(axis=-1, keepdims=True)
        starts = memory["values"][0].start_steps
        idle, on_demand, spot = [], [], []
        for zone in range(len(there)):
            values = memory["values"][zone]
            idle.append(self.cost(view, values, values.idle, 0.0, weights, zone))
            on_top = np.where(paid, 0.0, starts)
            on_demand.append(self.cost(view, values, values.on_demand, on_top, weights, zone))
            worth = self.cost(view, values, values.spot, starts, weights, zone)
            spot.append(np.where(there[zone], worth, np.inf))
        least_idle, least_paid = np.min(idle, axis=0), np.min(on_demand, axis=0)
        best = np.array(spot)
        mode = np.where(paid | (least_paid < least_idle), ON_DEMAND, IDLE)
        rival = np.where(paid, least_paid - memory["margin"], np.minimum(least_idle, least_paid))
        mode = np.where(best.min(axis=0) < rival, SPOT, mode)
        mode = np.where(holds, SPOT, mode)
        zone = np.where(holds, view.zone, best.argmin(axis=0)).astype(np.int16)
        return self.net(view, mode, there.any(axis=0) | holds), zone

    def select(self, view: PolicyView, rows: Any) -> None:
        for name in ("evidence", "age", "there"):
            view.memory[name] = view.memory[name][:, rows]

    def begin(self, view: PolicyView) -> None:
        memory, scenario = view.memory, view.scenario
        ratios = [round(float(price) / max(scenario.on_demand_usd_per_hour, 1e-9), 6) for price in view.spot_prices]
        stretch = scenario.saving.stretch if scenario.saving else 1.0
        hours = [
            scenario.work_seconds * stretch / 3600,
            scenario.deadline_seconds / 3600,
            scenario.cold_start_seconds / 3600,
        ]
        memory["values"] = [solve_value_tables(ValueTableInputs(self.regimes, *hours, ratio)) for ratio in ratios]
        memory["margin"] = MARGIN_STEPS * memory["values"][0].step_hours * max(0.0, 1 - min(ratios))
        share = np.array([regime.share for regime in self.regimes])
        memory["evidence"] = np.log(np.where(view.available[..., None], share, 1 - share))
        memory["age"] = np.full(view.available.shape, FIRST_AGE_HOURS)
        memory["there"] = view.available.copy()

    def bands(self, view: PolicyView) -> Any:
        return np.searchsorted(BANDS_HOURS, view.memory["age"], side="right") - 1

    def observe(self, view: PolicyView) -> None:
        memory, hours = view.memory, view.tick_seconds / 3600
        turned = view.available != memory["there"]
        rates = np.array([regime.hazards for regime in self.regimes])[:, memory["there"].astype(int), self.bands(view)]
        ends = -np.expm1(-rates * hours)
        memory["evidence"] += np.log(np.moveaxis(np.where(turned, ends, 1 - ends), 0, -1) + 1e-12)
        memory["age"] = np.where(turned, 0.0, memory["age"] + hours)
        memory["there"] = view.available.copy()

    def cost(self, view: PolicyView, values: Any, table: Any, on_top: Any, weights: Any, zone: int) -> Any:
        step = values.step_hours * 3600
        exact = max(0.0, view.remaining_ticks * view.tick_seconds / step)
        left = min(len(table) - 1, int(exact + 1e-9))
        column = np.clip(view.need_seconds / step - (exact - left) + on_top, 0.0, table.shape[-2] - 1.001)
        low = column.astype(int)
        part = (column - low)[:, None]
        by_regime = np.moveaxis(table[left], -1, 0)
        bands = self.bands(view)[zone]
        place: tuple[Any, ...] = (bands,)
        if table is not values.spot:
            place = (view.available[zone].astype(int), bands)
        below, above = by_regime[(slice(None), *place, low)], by_regime[(slice(None), *place, low + 1)]
        return (weights[zone] * (below.T * (1 - part) + above.T * part)).sum(axis=-1)

    def net(self, view: PolicyView, mode: Any, there: Any) -> Any:
        late = view.need_ticks(1) >= view.remaining_ticks
        must = (view.mode != SPOT) & (view.need_ticks(2) >= view.remaining_ticks)
        keeps = np.zeros(len(view.mode), dtype=bool)
        if view.scenario.loses_nothing:
            warm = (view.mode == SPOT) & (view.start_left_seconds < EPSILON_SECONDS)
            keeps = warm | (there & (view.start_seconds < EPSILON_SECONDS))
        return np.where(late, np.where(keeps, SPOT, ON_DEMAND), np.where(must, ON_DEMAND, mode))
