"""What the deadline forces, whatever a policy would rather do; and where Spot is best.

Symbols as in the literature: C work left, R time to the deadline, d cold start. Times are compared in whole ticks:
time left is rounded down, need is rounded up.
"""

from __future__ import annotations

from typing import Any

from stayfast.capacity.policies.policy import ON_DEMAND, SPOT, PolicyView
from stayfast.capacity.policies.values import EPSILON_SECONDS


def best_spot(view: PolicyView) -> tuple[Any, Any]:
    """Whether there is Spot, and where: the zone we are in, else the cheapest open one."""
    np = view.np
    holds = view.mode == SPOT
    if len(view.available) == 1:
        return view.available[0] | holds, np.zeros(len(view.mode), dtype=np.int16)
    order = np.argsort(view.spot_prices, kind="stable")
    first = order[view.available[order].argmax(axis=0)]
    return view.available.any(axis=0) | holds, np.where(holds, view.zone, first).astype(np.int16)


def must_run(view: PolicyView) -> Any:
    """Idle or on on-demand, waiting any longer (or one more change of machine) would risk the deadline."""
    return (view.mode != SPOT) & (view.need_ticks(2) >= view.remaining_ticks)


def safety_net(view: PolicyView, mode: Any, there: Any) -> Any:
    """What the deadline forces, over what the policy would rather do."""
    where, what = forced_by_deadline(view, there)
    return view.np.where(where, what, mode)


def forced_by_deadline(view: PolicyView, there: Any) -> tuple[Any, Any]:
    """Where the deadline leaves no choice, and what has to be done there.

    With time for one start left, a Spot machine is kept only when its own cold start is over: then losing it later
    costs nothing more than losing it now; not so where unsaved work would go with it. Where a change of machine costs
    nothing at all, Spot serves to the end.
    """
    np = view.np
    late = view.need_ticks(1) >= view.remaining_ticks
    what = np.full(len(view.mode), ON_DEMAND, dtype=np.int8)
    if view.scenario.loses_nothing:
        warm = (view.mode == SPOT) & (view.start_left_seconds < EPSILON_SECONDS)
        keeps = warm | (there & (view.start_seconds < EPSILON_SECONDS))
        what[late & keeps] = SPOT
    return late | must_run(view), what
