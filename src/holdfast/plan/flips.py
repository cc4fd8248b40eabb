"""What would change the answer: the price at which another class becomes the cheapest, found by asking again.

A class costs its machine hours times their prices, so that a new price needs no new replay. Only the blend looks at
prices, and only at which of two is lower: one more replay covers the other case.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from holdfast.model.workload import CapacityClass, WorkloadSpec
from holdfast.plan.assumptions import Assumptions
from holdfast.plan.options import Ground, Option, evaluate, merit
from holdfast.replay.optimum import load_numpy
from holdfast.replay.scenario import Scenario

REACH = 8.0
"""Prices are looked at from an eighth to eight times what they are."""

BISECTIONS = 12
PRICES = (CapacityClass.SPOT, CapacityClass.FLEX_START, CapacityClass.ON_DEMAND)


@dataclass(frozen=True, slots=True)
class Flip:
    """A price of the whole gang beyond which another class is chosen."""

    winner: CapacityClass
    price_of: CapacityClass
    usd_per_hour: float
    now_usd_per_hour: float

    @property
    def sentence(self) -> str:
        side = "below" if self.usd_per_hour < self.now_usd_per_hour else "above"
        what = "" if self.winner == self.price_of else f" for {self.price_of}"
        return f"{self.winner} wins {side} ${self.usd_per_hour:,.2f}/h{what} (now ${self.now_usd_per_hour:,.2f}/h)"


@dataclass(frozen=True, slots=True)
class Question:
    """What is weighed again under other prices."""

    spec: WorkloadSpec
    scenario: Scenario
    ground: Ground
    assumptions: Assumptions
    transfer_usd: float


def find_flips(options: Sequence[Option], choice: Option | None, question: Question) -> list[Flip]:
    """Both ways along each price, the nearest change of the choice."""
    if choice is None or choice.costs is None:
        return []
    rivals = [option for option in options if option.feasible and option.costs is not None]
    now = _prices(question.scenario)
    chooser = _Chooser(rivals, question)
    if chooser.best(now) != choice.kind:
        return []  # a tie in cents that the finish decided: every price changes the answer
    flips = []
    for kind in PRICES:
        if now[kind] <= 0:
            continue
        for direction in (1 / REACH, REACH):
            flip = _search(chooser.best, now, kind, direction, choice.kind)
            if flip is not None:
                flips.append(flip)
    return flips


def _search(
    best: Callable[[dict[CapacityClass, float]], CapacityClass],
    now: dict[CapacityClass, float],
    kind: CapacityClass,
    direction: float,
    chosen: CapacityClass,
) -> Flip | None:
    def at(power: float) -> CapacityClass:
        return best({**now, kind: now[kind] * direction**power})

    if at(1.0) == chosen:
        return None
    low, high = 0.0, 1.0
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        low, high = (middle, high) if at(middle) == chosen else (low, middle)
    winner = at(high)
    return Flip(winner, kind, now[kind] * direction ** ((low + high) / 2), now[kind])


class _Chooser:
    def __init__(self, rivals: Sequence[Option], question: Question) -> None:
        self._question = question
        self._now = _prices(question.scenario)
        self._known = {(option.kind, self._order(option.kind, self._now)): self._split(option) for option in rivals}
        self._kinds = [option.kind for option in rivals]

    def best(self, prices: dict[CapacityClass, float]) -> CapacityClass:
        """The class with the least median cost under these prices."""
        costs = {kind: merit(kind, self._cost(kind, prices)) for kind in self._kinds}
        return min(costs, key=lambda kind: costs[kind])

    def _cost(self, kind: CapacityClass, prices: dict[CapacityClass, float]) -> float:
        np = load_numpy()
        order = self._order(kind, prices)
        if (kind, order) not in self._known:
            self._known[kind, order] = self._split(self._replay_blend(flex_first=order))
        hours, rest = self._known[kind, order]
        return float(np.quantile(rest + sum(hours[item] * prices[item] for item in PRICES), 0.5, method="lower"))

    def _order(self, kind: CapacityClass, prices: dict[CapacityClass, float]) -> bool:
        """All that the blend asks of prices is whether flex-start costs less than Spot; the others ask nothing."""
        if kind != CapacityClass.HYBRID:
            return False
        return prices[CapacityClass.FLEX_START] <= prices[CapacityClass.SPOT]

    def _split(self, option: Option) -> tuple[dict[str, Any], Any]:
        """Machine hours by class, and what does not depend on prices."""
        paid = sum(option.class_hours[kind] * self._prices_of(option)[kind] for kind in PRICES)
        return option.class_hours, option.costs - paid

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
        return evaluate(
            option, question.spec, scenario, question.ground, question.assumptions, transfer_usd=question.transfer_usd
        )


def _prices(scenario: Scenario) -> dict[CapacityClass, float]:
    return {
        CapacityClass.SPOT: scenario.spot_usd_per_hour,
        CapacityClass.FLEX_START: scenario.flex_start_usd_per_hour or 0.0,
        CapacityClass.ON_DEMAND: scenario.on_demand_usd_per_hour,
    }
