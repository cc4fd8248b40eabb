"""The policies of ``plain_policies`` for many windows at once: each returns a mode and a zone per window."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from stayfast.capacity.policies.batch_view import FLEX_START, IDLE, ON_DEMAND, SPOT, BatchView
from stayfast.capacity.policies.values import EPSILON_SECONDS

BatchPolicy = Callable[[BatchView], tuple[Any, Any]]


def on_demand(view: BatchView) -> tuple[Any, Any]:
    return view.np.full(len(view.mode), ON_DEMAND), view.zone


def spot_only(view: BatchView) -> tuple[Any, Any]:
    there, zone = best_spot(view)
    return view.np.where(there, SPOT, IDLE), zone


def greedy(view: BatchView) -> tuple[Any, Any]:
    there, zone = best_spot(view)
    return safety_net(view, view.np.where(there, SPOT, IDLE), there), zone


def uniform_progress(view: BatchView) -> tuple[Any, Any]:
    there, zone = best_spot(view)
    return safety_net(view, follow_schedule(view, there), there), zone


def follow_schedule(view: BatchView, there: Any) -> Any:
    """Keep up with the straight line; hysteresis of two starts on the way back from on-demand."""
    np = view.np
    lead = lead_seconds(view, 2 * view.start_seconds)
    stays = (view.mode == ON_DEMAND) & ~(there & (lead > EPSILON_SECONDS))
    behind = lead_seconds(view, 0.0) < -EPSILON_SECONDS
    return np.where(stays, ON_DEMAND, np.where(there, SPOT, np.where(behind, ON_DEMAND, IDLE)))


def flex_start(view: BatchView) -> tuple[Any, Any]:
    np = view.np
    holds = view.mode == FLEX_START
    ready = view.flex_ready & (view.mode == IDLE)
    paid = (view.mode == ON_DEMAND) | (must_run(view) & ~ready)
    return np.where(holds, FLEX_START, np.where(paid, ON_DEMAND, np.where(ready, FLEX_START, IDLE))), view.zone


def hybrid(view: BatchView) -> tuple[Any, Any]:
    np, flex = view.np, view.scenario.flex_start_usd_per_hour
    if flex is None:
        return uniform_progress(view)
    before = view.mode
    held, idle = before == FLEX_START, before == IDLE
    cheapest = flex <= float(view.spot_prices.min())
    view.mode = np.where(held, ON_DEMAND, before)
    mode, zone = uniform_progress(view)
    view.mode = before
    room = idle | (view.need_ticks(1) <= view.remaining_ticks)
    wants = (mode == ON_DEMAND) | (cheapest & (idle | held))
    return np.where(wants & (held | (view.flex_ready & room)), FLEX_START, mode), zone


def best_spot(view: BatchView) -> tuple[Any, Any]:
    """Whether there is Spot, and where: the zone we are in, else the cheapest open one."""
    np = view.np
    holds = view.mode == SPOT
    if len(view.available) == 1:
        return view.available[0] | holds, np.zeros(len(view.mode), dtype=np.int16)
    order = np.argsort(view.spot_prices, kind="stable")
    first = order[view.available[order].argmax(axis=0)]
    return view.available.any(axis=0) | holds, np.where(holds, view.zone, first).astype(np.int16)


def must_run(view: BatchView) -> Any:
    """As in ``plain_policies``: waiting any longer would risk the deadline."""
    return (view.mode != SPOT) & (view.need_ticks(2) >= view.remaining_ticks)


def safety_net(view: BatchView, mode: Any, there: Any) -> Any:
    """What the deadline forces, over what the policy would rather do."""
    where, what = forced_by_deadline(view, there)
    return view.np.where(where, what, mode)


def forced_by_deadline(view: BatchView, there: Any) -> tuple[Any, Any]:
    """Where the deadline leaves no choice, and what has to be done there."""
    np = view.np
    late = view.need_ticks(1) >= view.remaining_ticks
    what = np.full(len(view.mode), ON_DEMAND, dtype=np.int8)
    if view.scenario.loses_nothing:
        warm = (view.mode == SPOT) & (view.start_left_seconds < EPSILON_SECONDS)
        keeps = warm | (there & (view.start_seconds < EPSILON_SECONDS))
        what[late & keeps] = SPOT
    return late | must_run(view), what


def lead_seconds(view: BatchView, ahead_seconds: Any) -> Any:
    """Work done beyond what the straight line asks for, this much later than now."""
    scenario = view.scenario
    moment = view.elapsed_seconds + ahead_seconds
    return (view.done_seconds * scenario.deadline_seconds - moment * scenario.work_seconds) / scenario.deadline_seconds
