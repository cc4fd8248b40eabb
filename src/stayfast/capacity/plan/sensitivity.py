"""What would change the answer: the price at which another class becomes the cheapest, found by asking again.

A class costs its machine hours times their prices, so that a new price needs no new replay. Only the blend looks at
prices, and only at which of two is lower: one more replay covers the other case.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from stayfast.capacity.plan.assumptions import Assumptions
from stayfast.capacity.plan.options import Option, ReplayInputs, ranking_key, replay_option
from stayfast.capacity.policies.values import Scenario
from stayfast.capacity.spec.workload import WorkloadSpec
from stayfast.extras import load_numpy
from stayfast.model.capacity import CapacityClass

REACH = 8.0
"""Prices are looked at from an eighth to eight times what they are."""

BISECTIONS = 12
PRICES = (CapacityClass.SPOT, CapacityClass.FLEX_START, CapacityClass.ON_DEMAND)


@dataclass(frozen=True, slots=True)
class PriceThreshold:
    """A price of the whole gang beyond which another class is chosen."""

    winner: CapacityClass | None
    """None: beyond, nothing keeps the budget."""
    price_of: CapacityClass
    usd_per_hour: float
    now_usd_per_hour: float

    @property
    def sentence(self) -> str:
        side = "below" if self.usd_per_hour < self.now_usd_per_hour else "above"
        what = "" if self.winner == self.price_of else f" for {self.price_of}"
        event = f"{self.winner} wins" if self.winner else "nothing keeps the budget"
        return f"{event} {side} ${self.usd_per_hour:,.2f}/h{what} (now ${self.now_usd_per_hour:,.2f}/h)"


@dataclass(frozen=True, slots=True)
class ThresholdInputs:
    """What is weighed again under other prices."""

    spec: WorkloadSpec
    scenario: Scenario
    ground: ReplayInputs
    assumptions: Assumptions
    transfer_usd: float


def find_price_thresholds(
    options: Sequence[Option], choice: Option | None, question: ThresholdInputs
) -> list[PriceThreshold]:
    """Both ways along each price, the nearest change of the choice."""
    if choice is not None and choice.costs is None:
        return []  # an endpoint: only the price of an hour is known
    # What only the budget forbids may be allowed at another price.
    rivals = [option for option in options if option.costs is not None and option.only_budget_forbids]
    now = _prices(question.scenario)
    chooser, chosen = _Reranker(rivals, question), choice.kind if choice else None
    assert chooser.best(now) == chosen, "the question is asked as the plan was made"
    flips = []
    for kind in PRICES:
        if now[kind] <= 0:
            continue
        for direction in (1 / REACH, REACH):
            flip = _search(chooser.best, now, kind, direction, chosen)
            if flip is not None:
                flips.append(flip)
    return flips


def _search(
    best: Callable[[dict[CapacityClass, float]], CapacityClass | None],
    now: dict[CapacityClass, float],
    kind: CapacityClass,
    direction: float,
    chosen: CapacityClass | None,
) -> PriceThreshold | None:
    def at(power: float) -> CapacityClass | None:
        return best({**now, kind: now[kind] * direction**power})

    if at(1.0) == chosen:
        return None
    low, high = 0.0, 1.0
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        low, high = (middle, high) if at(middle) == chosen else (low, middle)
    winner = at(high)
    return PriceThreshold(winner, kind, now[kind] * direction ** ((low + high) / 2), now[kind])


class _Costs(NamedTuple):
    """Of one class in all replays: machine hours by class, what does not depend on prices, and the bad end."""

    hours: dict[str, Any]
    rest: Any
    finish_p95_hours: float
    in_time: bool


class _Reranker:
    def __init__(self, rivals: Sequence[Option], question: ThresholdInputs) -> None:
        self._question = question
        self._now = _prices(question.scenario)
        self._known = {(option.kind, self._order(option.kind, self._now)): self._split(option) for option in rivals}
        self._kinds = [option.kind for option in rivals]

    def best(self, prices: dict[CapacityClass, float]) -> CapacityClass | None:
        """The choice of the planner under these prices, by the planner's own order of merit."""
        merits = {kind: self._merit(kind, prices) for kind in self._kinds}
        allowed = {kind: found for kind, found in merits.items() if found is not None}
        return min(allowed, key=lambda kind: allowed[kind], default=None)

    def _merit(self, kind: CapacityClass, prices: dict[CapacityClass, float]) -> tuple[float, float] | None:
        np, order = load_numpy(), self._order(kind, prices)
        if (kind, order) not in self._known:
            self._known[kind, order] = self._split(self._replay_blend(flex_first=order))
        known = self._known[kind, order]
        costs = known.rest + sum(known.hours[item] * prices[item] for item in PRICES)
        middle, bad = (float(value) for value in np.quantile(costs, [0.5, 0.95], method="lower"))
        budget = self._question.spec.budget_usd
        if not known.in_time or (budget is not None and bad > budget):
            return None
        return ranking_key(kind, middle), known.finish_p95_hours

    def _order(self, kind: CapacityClass, prices: dict[CapacityClass, float]) -> bool:
        """All that the blend asks of prices is whether flex-start costs less than Spot; the others ask nothing."""
        if kind != CapacityClass.HYBRID:
            return False
        return prices[CapacityClass.FLEX_START] <= prices[CapacityClass.SPOT]

    def _split(self, option: Option) -> _Costs:
        paid = sum(option.class_hours[kind] * self._prices_of(option)[kind] for kind in PRICES)
        assert option.finish_hours is not None
        return _Costs(
            option.class_hours, option.costs - paid, option.finish_hours.p95, in_time=option.only_budget_forbids
        )

    def _prices_of(self, option: Option) -> dict[CapacityClass, float]:
        if option.kind != CapacityClass.HYBRID or option.usd_per_hour == self._now[CapacityClass.SPOT]:
            return self._now
        return {**self._now, CapacityClass.SPOT: option.usd_per_hour or 0.0}

    def _replay_blend(self, *, flex_first: bool) -> Option:
        """The blend as it would be with the order of the two prices turned round."""
        question = self._question
        flex = self._now[CapacityClass.FLEX_START]
        spot = flex * 2 if flex_first else flex / 2
        option = Option(CapacityClass.HYBRID, spot)
        scenario = replace(question.scenario, spot_usd_per_hour=spot)
        return replay_option(
            option, question.spec, scenario, question.ground, question.assumptions, transfer_usd=question.transfer_usd
        )


def _prices(scenario: Scenario) -> dict[CapacityClass, float]:
    return {
        CapacityClass.SPOT: scenario.spot_usd_per_hour,
        CapacityClass.FLEX_START: scenario.flex_start_usd_per_hour or 0.0,
        CapacityClass.ON_DEMAND: scenario.on_demand_usd_per_hour,
    }
