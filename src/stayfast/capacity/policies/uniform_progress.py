"""The straight line from nothing done to all done at the deadline (Can't Be Late, NSDI '24), with hysteresis."""

from __future__ import annotations

from typing import Any

from stayfast.capacity.policies.policy import IDLE, ON_DEMAND, SPOT, PolicyView
from stayfast.capacity.policies.safety_net import best_spot, safety_net
from stayfast.capacity.policies.values import EPSILON_SECONDS
from stayfast.model.capacity import CapacityClass


class UniformProgress:
    """On-demand when behind and idle; from on-demand to Spot only with two cold starts of lead."""

    needs = frozenset((CapacityClass.SPOT, CapacityClass.ON_DEMAND))

    def decide(self, view: PolicyView) -> tuple[Any, Any]:
        there, zone = best_spot(view)
        return safety_net(view, follow_schedule(view, there), there), zone


def follow_schedule(view: PolicyView, there: Any) -> Any:
    """Keep up with the straight line; hysteresis of two starts on the way back from on-demand."""
    np = view.np
    lead = lead_seconds(view, 2 * view.start_seconds)
    stays = (view.mode == ON_DEMAND) & ~(there & (lead > EPSILON_SECONDS))
    behind = lead_seconds(view, 0.0) < -EPSILON_SECONDS
    return np.where(stays, ON_DEMAND, np.where(there, SPOT, np.where(behind, ON_DEMAND, IDLE)))


def lead_seconds(view: PolicyView, ahead_seconds: Any) -> Any:
    """Work done beyond what the straight line asks for, this much later than now.

    A tie neither starts an on-demand machine nor lets go of one: that is what the published simulators do.
    """
    scenario = view.scenario
    moment = view.elapsed_seconds + ahead_seconds
    # Divided last, so that ties in whole seconds are exact.
    return (view.done_seconds * scenario.deadline_seconds - moment * scenario.work_seconds) / scenario.deadline_seconds
