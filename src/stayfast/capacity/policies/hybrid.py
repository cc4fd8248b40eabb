"""Uniform progress with flex-start in it."""

from __future__ import annotations

from typing import Any

from stayfast.capacity.policies.policy import FLEX_START, IDLE, ON_DEMAND, PolicyView
from stayfast.capacity.policies.uniform_progress import UniformProgress
from stayfast.model.capacity import CapacityClass


class Hybrid:
    """Flex-start is the first choice where it is cheapest, else the on-demand to fall back on.

    Where flex-start costs less than Spot it is taken when the queue lets it through, and kept. Where it costs more, it
    stands in for on-demand whenever it is there.
    """

    needs = frozenset((CapacityClass.SPOT, CapacityClass.ON_DEMAND))

    def __init__(self) -> None:
        self._line = UniformProgress()

    def decide(self, view: PolicyView) -> tuple[Any, Any]:
        np, flex = view.np, view.scenario.flex_start_usd_per_hour
        if flex is None:
            return self._line.decide(view)
        before = view.mode
        held, idle = before == FLEX_START, before == IDLE
        cheapest = flex <= float(view.spot_prices.min())
        view.mode = np.where(held, ON_DEMAND, before)
        mode, zone = self._line.decide(view)
        view.mode = before
        room = idle | (view.need_ticks(1) <= view.remaining_ticks)
        wants = (mode == ON_DEMAND) | (cheapest & (idle | held))
        return np.where(wants & (held | (view.flex_ready & room)), FLEX_START, mode), zone
