"""The decision: every class weighed on the same histories, the cheapest that can keep its promises, and why."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

from stayfast.capacity.machines.machine import Machine
from stayfast.capacity.machines.prices import MachinePrices, PriceList
from stayfast.capacity.plan.assumptions import Assumptions
from stayfast.capacity.plan.grace_fit import GraceCheck, check_grace
from stayfast.capacity.plan.interval import IntervalAdvice, recommend_interval
from stayfast.capacity.plan.options import (
    Option,
    ReplayInputs,
    build_replay_inputs,
    horizon_seconds,
    initial_options,
    ranking_key,
    replay_option,
    scenario_of,
)
from stayfast.capacity.plan.promise import Promise, make_promise
from stayfast.capacity.plan.reasons import reasons_for, workload_advice
from stayfast.capacity.plan.sensitivity import PriceThreshold, ThresholdInputs, find_price_thresholds
from stayfast.capacity.policies.values import Saving, Scenario
from stayfast.capacity.replay.traces import Trace
from stayfast.capacity.spec.workload import WorkloadKind, WorkloadSpec
from stayfast.errors import UsageError
from stayfast.extras import load_numpy
from stayfast.model.capacity import CapacityClass

SHORTEST_INTERVAL_SECONDS, LONGEST_INTERVAL_SECONDS = 30.0, 1800.0
"""The runtime's own bounds."""

MOST_TICKS = 20_000
"""A sound plan has some hundreds."""

_CONTINENTS = {"us": "america", "northamerica": "america", "europe": "europe", "asia": "asia"}


@dataclass(frozen=True, slots=True)
class Plan:
    """What was decided, and everything that it was decided from."""

    spec: WorkloadSpec
    machine: Machine
    region: str
    prices: MachinePrices
    choice: CapacityClass | None
    """None: nothing can keep the promises."""
    because: tuple[str, ...]
    options: tuple[Option, ...]
    interval: IntervalAdvice
    grace: GraceCheck
    flips: tuple[PriceThreshold, ...]
    advice: tuple[str, ...]
    basis: str
    assumptions: Assumptions
    ground: ReplayInputs | None = None
    """What it was replayed on; None for an endpoint."""

    @property
    def promise(self) -> Promise | None:
        """What the choice obliges to; none where nothing was chosen."""
        return None if self.choice is None else make_promise(self.spec, self.choice, self.options)

    def option(self, kind: CapacityClass) -> Option:
        return next(item for item in self.options if item.kind == kind)

    @property
    def egress_usd_per_gib(self) -> float:
        """Of checkpoints, when their bucket is in another region than the cluster."""
        bucket = self.spec.bucket_region
        return 0.0 if bucket in (None, self.region) else egress_usd_per_gib(bucket, self.region, self.assumptions)


def make_plan(
    spec: WorkloadSpec,
    catalogue: PriceList,
    *,
    assumptions: Assumptions | None = None,
    traces: list[Trace] | None = None,
) -> Plan:
    """Weigh every class and choose."""
    assumed = assumptions or Assumptions()
    machine = catalogue.machine_for(spec.accelerator, spec.accelerator_count, spec.region)
    region = spec.region or catalogue.cheapest_region(machine.name)
    prices = catalogue.price(machine.name, region)
    grace = check_grace(spec, assumed)
    options = initial_options(spec, prices, spec.nodes, assumed.measured.failures if assumed.measured else ())
    if spec.work_seconds is None:
        return _endpoint(spec, machine, region, prices, options, grace, assumed)
    deadline = horizon_seconds(spec)
    ground = build_replay_inputs(spec, assumed, max(deadline, 2 * spec.work_seconds), traces)
    interval = choose_interval(spec, grace, ground)
    saving = Saving(
        interval.interval_seconds, max(grace.snapshot_seconds, 0.0), grace.persist_seconds, notice_saves=grace.fits
    )
    scenario = scenario_of(spec, prices, assumed, deadline, saving)
    _check_length(scenario, saving, ground.tick_seconds)
    transfer = transfer_usd(spec, region, assumed)
    for option in options:
        if option.usd_per_hour is not None:
            replay_option(option, spec, scenario, ground, assumed, transfer_usd=transfer)
    feasible = [option for option in options if option.feasible]
    choice = min(feasible, key=_merit, default=None)
    return Plan(
        spec,
        machine,
        region,
        prices,
        choice.kind if choice else None,
        tuple(reasons_for(prices, options, choice, grace)),
        tuple(options),
        interval,
        grace,
        tuple(find_price_thresholds(options, choice, ThresholdInputs(spec, scenario, ground, assumed, transfer))),
        tuple(workload_advice(spec, machine, choice, grace)),
        ground.description,
        assumed,
        ground,
    )


def _check_length(scenario: Scenario, saving: Saving, tick_seconds: float) -> None:
    """On-demand is replayed until it is done: a state that can hardly be saved would keep it busy for ever."""
    seconds = scenario.work_seconds * saving.stretch + saving.restore_seconds + scenario.cold_start_seconds
    if seconds / tick_seconds > MOST_TICKS:
        raise UsageError(
            f"the work with its checkpoints would take {seconds / 3600:.3g} h, each save {saving.save_seconds:.3g} s "
            f"and each restore {saving.restore_seconds:.3g} s",
            help="check state.size and work; shard the state over more nodes, or give --upload-gb-per-second",
        )


def _merit(option: Option) -> tuple[float, float]:
    """By median cost, with a handicap for the blend; among equals, by the bad end of the finish."""
    assert option.cost_usd is not None
    assert option.finish_hours is not None
    return ranking_key(option.kind, option.cost_usd.p50), option.finish_hours.p95


def choose_interval(spec: WorkloadSpec, grace: GraceCheck, ground: ReplayInputs) -> IntervalAdvice:
    """From the cost of a save and how often this ground takes machines away."""
    found = recommend_interval(
        blocking_seconds=max(0.05, grace.snapshot_seconds),
        persist_seconds=grace.persist_seconds,
        mtbi_seconds=mean_life_seconds(ground),
        step_seconds=spec.unit_seconds if spec.kind == WorkloadKind.TRAIN and spec.unit_seconds else 1.0,
        flush_seconds=grace.needed_seconds,
        grace_seconds=grace.window_seconds,
    )
    bounded = min(LONGEST_INTERVAL_SECONDS, max(SHORTEST_INTERVAL_SECONDS, found.interval_seconds))
    if bounded == found.interval_seconds:
        return found
    because = f"{found.because}; kept between 30 s and 30 min"
    return replace(found, interval_seconds=max(bounded, grace.persist_seconds), because=because)


def mean_life_seconds(ground: ReplayInputs) -> float:
    """Time with capacity per loss of it, over the whole ground."""
    np = load_numpy()
    table: Any = ground.openings.zones
    lost = int(np.count_nonzero((table[:, :-1] == 1) & (table[:, 1:] == 0)))
    return max(ground.tick_seconds, float(np.count_nonzero(table)) * ground.tick_seconds / max(1, lost))


def transfer_usd(spec: WorkloadSpec, region: str, assumed: Assumptions) -> float:
    """What one save or restore costs when the bucket is elsewhere."""
    if spec.bucket_region in (None, region) or not spec.state_bytes:
        return 0.0
    return spec.state_bytes / 2**30 * egress_usd_per_gib(spec.bucket_region, region, assumed)


def egress_usd_per_gib(one: str | None, other: str, assumed: Assumptions) -> float:
    """By how far apart two regions are; the direction does not matter."""
    ends = {_CONTINENTS.get((name or "").split("-")[0], "remote") for name in (one, other)}
    if "remote" in ends:
        return assumed.egress_usd_per_gib_remote
    return assumed.egress_usd_per_gib_near if len(ends) == 1 and "asia" not in ends else assumed.egress_usd_per_gib_far


def _endpoint(
    spec: WorkloadSpec,
    machine: Machine,
    region: str,
    prices: MachinePrices,
    options: list[Option],
    grace: GraceCheck,
    assumed: Assumptions,
) -> Plan:
    """An endpoint has no end: only the price of an hour can be said."""
    choice = next((option for option in options if option.feasible), None)
    because = reasons_for(prices, options, choice, grace)
    interval = IntervalAdvice(math.inf, 0.0, "an endpoint keeps no checkpoints")
    return Plan(
        spec, machine, region, prices, choice.kind if choice else None, tuple(because), tuple(options), interval, grace,
        (), tuple(workload_advice(spec, machine, choice, grace)), "prices alone", assumed,
    )  # fmt: skip
