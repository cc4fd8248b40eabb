"""A plan as JSON, and one replay of it to look at."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Any

from stayfast.capacity.plan.options import Option, Spread, horizon_seconds, scenario_of
from stayfast.capacity.plan.planner import Plan
from stayfast.capacity.policies.values import Saving
from stayfast.capacity.replay.scenario import Outcome, TraceWindow
from stayfast.capacity.replay.summary import replay_window

EXAMPLE_WINDOW = 0


def to_json(plan: Plan) -> dict[str, Any]:
    """The documented shape; a figure that does not exist is null."""
    return {
        "name": plan.spec.name,
        "choice": plan.choice.value if plan.choice else None,
        "because": list(plan.because),
        "options": [_option(option) for option in plan.options],
        "checkpoint_interval_seconds": _number(plan.interval.interval_seconds),
        "checkpoint_interval_because": plan.interval.because,
        "grace": {
            "window_seconds": plan.grace.window_seconds,
            "needed_seconds": plan.grace.needed_seconds,
            "fits": plan.grace.fits,
            "advice": list(plan.grace.advice),
        },
        "would_change": [
            {
                "winner": flip.winner.value if flip.winner else None,
                "price_of": flip.price_of.value,
                "usd_per_hour": flip.usd_per_hour,
                "now_usd_per_hour": flip.now_usd_per_hour,
                "sentence": flip.sentence,
            }
            for flip in plan.flips
        ],
        "advice": list(plan.advice),
        "machine": plan.machine.name,
        "nodes": plan.spec.nodes,
        "region": plan.region,
        "basis": plan.basis,
        "assumptions": {
            "cold_start_seconds": plan.assumptions.cold_start_seconds,
            "upload_bytes_per_second": plan.assumptions.upload_bytes_per_second,
            "snapshot_bytes_per_second": plan.assumptions.snapshot_bytes_per_second,
            "flex_wait_median_seconds": plan.assumptions.flex_wait_median_seconds,
            "egress_usd_per_gib": plan.egress_usd_per_gib,
            "windows": plan.assumptions.windows,
            "seed": plan.assumptions.seed,
            "measured": None if plan.assumptions.measured is None else asdict(plan.assumptions.measured),
        },
    }


def _option(option: Option) -> dict[str, Any]:
    return {
        "class": option.kind.value,
        "feasible": option.feasible,
        "obstacles": list(option.obstacles),
        "usd_per_hour": option.usd_per_hour,
        "cost_usd": _spread(option.cost_usd),
        "finish_hours": _spread(option.finish_hours),
        "goodput": option.goodput,
        "cost_per_useful_hour_usd": option.cost_per_useful_hour_usd,
        "met_deadline_share": option.met_share,
        "interruptions": option.interruptions,
        "hours": option.hours,
        "egress_usd": option.egress_usd,
    }


def _spread(spread: Spread | None) -> dict[str, float | None]:
    if spread is None:
        return {"p50": None, "p95": None}
    return {"p50": _number(spread.p50), "p95": _number(spread.p95)}


def _number(value: float) -> float | None:
    return value if math.isfinite(value) else None


def example(plan: Plan) -> Outcome | None:
    """The choice replayed once, with its timeline."""
    spec, ground = plan.spec, plan.ground
    if plan.promise is None or ground is None:
        return None
    deadline = horizon_seconds(spec)
    openings = ground.openings
    row = openings.zones[EXAMPLE_WINDOW if openings.own else 0][int(openings.starts[EXAMPLE_WINDOW]) :]
    saving = Saving(
        plan.interval.interval_seconds, plan.grace.snapshot_seconds, plan.grace.persist_seconds, plan.grace.fits
    )
    scenario = scenario_of(spec, plan.prices, plan.assumptions, deadline, saving)
    window, policy = TraceWindow(ground.tick_seconds, (row.tobytes(),)), plan.promise.policy
    return replay_window(scenario, window, policy.build(), policy.name)
