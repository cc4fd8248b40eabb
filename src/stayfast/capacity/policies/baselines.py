"""The simple policies that others are measured against."""

from __future__ import annotations

from typing import Any

from stayfast.capacity.policies.policy import FLEX_START, IDLE, ON_DEMAND, SPOT, PolicyView
from stayfast.capacity.policies.safety_net import best_spot, must_run, safety_net
from stayfast.model.capacity import CapacityClass


class OnDemand:
    """Start at once, pay the full price, never wait."""

    needs = frozenset((CapacityClass.ON_DEMAND,))

    def decide(self, view: PolicyView) -> tuple[Any, Any]:
        return view.np.full(len(view.mode), ON_DEMAND), view.zone


class SpotOnly:
    """Spot when there is some, else wait; no deadline is watched."""

    needs = frozenset((CapacityClass.SPOT,))

    def decide(self, view: PolicyView) -> tuple[Any, Any]:
        there, zone = best_spot(view)
        return view.np.where(there, SPOT, IDLE), zone


class Greedy:
    """Spot when there is some, else wait, until the safety net says that waiting is over."""

    needs = frozenset((CapacityClass.SPOT, CapacityClass.ON_DEMAND))

    def decide(self, view: PolicyView) -> tuple[Any, Any]:
        there, zone = best_spot(view)
        return safety_net(view, view.np.where(there, SPOT, IDLE), there), zone


class FlexStart:
    """Wait in the flex-start queue and chain leases; on-demand only when the deadline forces it."""

    needs = frozenset((CapacityClass.FLEX_START, CapacityClass.ON_DEMAND))

    def decide(self, view: PolicyView) -> tuple[Any, Any]:
        np = view.np
        holds = view.mode == FLEX_START
        ready = view.flex_ready & (view.mode == IDLE)
        paid = (view.mode == ON_DEMAND) | (must_run(view) & ~ready)
        return np.where(holds, FLEX_START, np.where(paid, ON_DEMAND, np.where(ready, FLEX_START, IDLE))), view.zone
