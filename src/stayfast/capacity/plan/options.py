"""Each capacity class, replayed many times: cost, finish, goodput, and whether it can be had at all."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from stayfast.capacity.machines.prices import MachinePrices
from stayfast.capacity.plan.assumptions import Assumptions
from stayfast.capacity.policies.policy import FLEX_START, ON_DEMAND, SPOT, PolicyDocument
from stayfast.capacity.policies.regimes import Regime, bundled_regimes
from stayfast.capacity.policies.values import Saving, Scenario
from stayfast.capacity.replay.engine import AvailabilityTable, Replay
from stayfast.capacity.replay.synthetic import draw_from_regimes, lognormal_waits
from stayfast.capacity.replay.traces import Trace
from stayfast.capacity.spec.workload import WorkloadKind, WorkloadSpec
from stayfast.extras import load_numpy
from stayfast.model.capacity import CapacityClass
from stayfast.text.units import hours_or_minutes

BLEND_HANDICAP = 1.01
"""A blend of classes must be at least this much cheaper than a single one: it has more parts that can fail."""


def ranking_key(kind: CapacityClass, cost_usd: float) -> float:
    """What classes are compared by."""
    return round(cost_usd * (BLEND_HANDICAP if kind == CapacityClass.HYBRID else 1.0), 2)


POLICY = {
    CapacityClass.SPOT: PolicyDocument("spot-only"),
    CapacityClass.FLEX_START: PolicyDocument("flex-start"),
    CapacityClass.ON_DEMAND: PolicyDocument("on-demand"),
    CapacityClass.HYBRID: PolicyDocument("hybrid"),
}


@dataclass(frozen=True, slots=True)
class Spread:
    """Where the middle and the bad end of a distribution lie."""

    p50: float
    p95: float


@dataclass(slots=True)
class Option:
    """One capacity class for this workload."""

    kind: CapacityClass
    usd_per_hour: float | None
    """Of the whole gang."""
    obstacles: list[str] = field(default_factory=list)
    """Why it cannot be chosen; empty when it can."""
    cost_usd: Spread | None = None
    finish_hours: Spread | None = None
    goodput: float | None = None
    met_share: float | None = None
    interruptions: float | None = None
    hours: dict[str, float] = field(default_factory=dict)
    """Median machine hours by class."""
    cost_per_useful_hour_usd: float | None = None
    costs: Any = None
    """All replays, for plots and for what would change the answer."""
    class_hours: dict[str, Any] = field(default_factory=dict)
    """Machine hours by class, of all replays."""
    egress_usd: float = 0.0
    """Median cost of transfer between regions, part of the cost."""

    over_budget: bool = False
    """One of the obstacles is the budget."""

    @property
    def feasible(self) -> bool:
        return not self.obstacles

    @property
    def only_budget_forbids(self) -> bool:
        """Feasible, or it would be for more money."""
        return len(self.obstacles) == int(self.over_budget)


@dataclass(frozen=True, slots=True)
class ReplayInputs:
    """What all options of a plan stand on: the same histories and the same queue times."""

    tick_seconds: float
    openings: AvailabilityTable
    flex_waits: Any
    description: str


def horizon_seconds(spec: WorkloadSpec) -> float:
    """How long a replay is watched: to the deadline, but not for ever when that is far beyond the work."""
    work = spec.work_seconds or 0.0
    if spec.deadline_seconds is None:
        return 3 * work + 86_400
    return min(spec.deadline_seconds, 10 * work + 86_400)


def build_replay_inputs(
    spec: WorkloadSpec, assumptions: Assumptions, horizon_seconds: float, traces: list[Trace] | None
) -> ReplayInputs:
    """Histories from traces if there are any, else from the fitted regimes."""
    np = load_numpy()
    waits = lognormal_waits(
        median_seconds=assumptions.flex_wait_median_seconds * math.sqrt(spec.nodes),
        sigma=assumptions.flex_wait_sigma,
        windows=assumptions.windows,
        seed=assumptions.seed + 1,
    )
    if traces:
        trace = traces[0]
        table = np.frombuffer(trace.available(spec.nodes), dtype=np.uint8)[None, :]
        last = max(1, trace.ticks - int(horizon_seconds / trace.tick_seconds))
        starts = np.random.default_rng(assumptions.seed).integers(0, last, assumptions.windows)
        return ReplayInputs(
            trace.tick_seconds, AvailabilityTable(trace.tick_seconds, table, starts), waits, f"the trace {trace.id}"
        )
    # Ticks are billed whole, so that a tick must be short beside the work.
    coarse = math.ceil(horizon_seconds / assumptions.most_ticks / 60) * 60.0
    tick = max(60.0, min(coarse, math.floor((spec.work_seconds or 0.0) / 20 / 60) * 60.0))
    regimes = suitable_regimes(spec.nodes)
    table = draw_from_regimes(
        regimes,
        windows=assumptions.windows,
        ticks=math.ceil(horizon_seconds / tick) + 1,
        tick_seconds=tick,
        seed=assumptions.seed,
    )
    starts = np.zeros(assumptions.windows, dtype=np.int64)
    return ReplayInputs(
        tick,
        AvailabilityTable(tick, table, starts, own=True),
        waits,
        f"{len(regimes)} capacity regimes fitted to public traces; give --traces for your own place",
    )


def suitable_regimes(nodes: int) -> tuple[Regime, ...]:
    """Single machines are found far more often than gangs; the fitted regimes are of both."""
    regimes = bundled_regimes()
    if nodes > 1:
        return regimes
    return tuple(regime for regime in regimes if regime.share >= 0.5)


def saving_interval(scenario: Scenario) -> float:
    """Seconds of work per checkpoint; without checkpoints there is never one."""
    return scenario.saving.interval_seconds if scenario.saving else math.inf


def replay_option(
    option: Option,
    spec: WorkloadSpec,
    scenario: Scenario,
    ground: ReplayInputs,
    assumptions: Assumptions,
    *,
    transfer_usd: float = 0.0,
) -> Option:
    """Replay one class over the ground and read the figures off; ``transfer_usd`` is paid for each save and restore."""
    np = load_numpy()
    flex = scenario if option.kind in (CapacityClass.FLEX_START, CapacityClass.HYBRID) else None
    used = scenario if flex else replace(scenario, flex_start_usd_per_hour=None)
    done = Replay(used, ground.openings, POLICY[option.kind].build(), flex_wait_seconds=ground.flex_waits).run()
    hours = ground.tick_seconds / 3600
    moved = (done.done / saving_interval(scenario) + done.interruptions) * transfer_usd
    option.costs = done.cost * hours + moved
    option.egress_usd = float(np.median(moved))
    option.cost_usd = _spread(np, option.costs)
    # A replay that never finished counts as finishing after everything else.
    finish = np.where(done.finished, done.finish * hours, np.inf)
    option.finish_hours = _spread(np, finish)
    paid = done.hours.sum(axis=0) * ground.tick_seconds
    option.goodput = float(done.done.sum() / paid.sum()) if paid.sum() else 0.0
    option.met_share = float(done.in_time.mean())
    option.interruptions = float(done.interruptions.mean())
    rows = {"spot": SPOT, "on-demand": ON_DEMAND, "flex-start": FLEX_START}
    option.class_hours = {label: done.hours[row] * hours for label, row in rows.items()}
    option.hours = {label: float(np.median(array)) for label, array in option.class_hours.items()}
    useful = scenario.work_seconds / 3600
    option.cost_per_useful_hour_usd = option.cost_usd.p50 / useful
    _add_obstacles(option, spec, ground, assumptions)
    return option


def _spread(np: Any, values: Any) -> Spread:
    middle, bad = np.quantile(values, [0.5, 0.95], method="lower")
    return Spread(float(middle), float(bad))


def _add_obstacles(option: Option, spec: WorkloadSpec, ground: ReplayInputs, assumptions: Assumptions) -> None:
    np = load_numpy()
    if option.met_share is not None and spec.deadline_seconds and option.met_share < assumptions.confidence:
        watched = horizon_seconds(spec)
        what = (
            "keeps the deadline" if watched >= spec.deadline_seconds else f"is done within {hours_or_minutes(watched)}"
        )
        option.obstacles.append(f"{what} in only {option.met_share:.0%} of the replays")
    if spec.longest_wait_seconds is not None and option.kind == CapacityClass.FLEX_START:
        wait = float(np.quantile(ground.flex_waits, assumptions.confidence))
        if wait > spec.longest_wait_seconds:
            limit = hours_or_minutes(spec.longest_wait_seconds)
            option.obstacles.append(f"may wait {hours_or_minutes(wait)} in the queue, and {limit} is the limit")
    if spec.budget_usd is not None and option.cost_usd is not None and option.cost_usd.p95 > spec.budget_usd:
        option.over_budget = True
        option.obstacles.append(f"may cost ${option.cost_usd.p95:,.2f}, and ${spec.budget_usd:,.2f} is the budget")


def initial_options(
    spec: WorkloadSpec, prices: MachinePrices, gang: float, failures: Sequence[str] = ()
) -> list[Option]:
    """All four classes, with what excludes them before any replay."""
    rows = {
        CapacityClass.SPOT: prices.spot,
        CapacityClass.FLEX_START: prices.flex_start,
        CapacityClass.ON_DEMAND: prices.on_demand,
        CapacityClass.HYBRID: prices.spot,
    }
    options = []
    for kind, price in rows.items():
        option = Option(kind, None if price is None else price * gang)
        if price is None or (kind == CapacityClass.HYBRID and prices.on_demand is None):
            option.obstacles.append("no price of it is known here: it is not offered, or the catalogue does not know")
        if spec.kind == WorkloadKind.SERVE or spec.latency_critical:
            if kind != CapacityClass.ON_DEMAND:
                option.obstacles.append(
                    "users wait for answers: machines that go away, or come late, break the promise"
                )
        elif not spec.interruptible and kind in (CapacityClass.SPOT, CapacityClass.HYBRID):
            option.obstacles.append("the work may not be interrupted")
        elif failures and kind in (CapacityClass.SPOT, CapacityClass.HYBRID):
            option.obstacles.append(f"the program does not survive its rehearsal: {', '.join(failures)}")
        if spec.capacity is not None and kind != spec.capacity:
            option.obstacles.append(f"the workload asks for {spec.capacity}")
        options.append(option)
    return options


def scenario_of(
    spec: WorkloadSpec, prices: MachinePrices, assumptions: Assumptions, deadline_seconds: float, saving: Saving | None
) -> Scenario:
    """The workload as the engine wants it, with prices of the whole gang."""
    gang = spec.nodes
    on_demand = prices.on_demand if prices.on_demand is not None else max(prices.spot or 0, prices.flex_start or 0)
    return Scenario(
        spec.work_seconds or 0.0,
        deadline_seconds,
        assumptions.start_seconds,
        on_demand * gang,
        (prices.spot if prices.spot is not None else on_demand) * gang,
        gang,
        saving,
        job_backoff=True,
        flex_start_usd_per_hour=None if prices.flex_start is None else prices.flex_start * gang,
        flex_wait_seconds=0.0,
    )
