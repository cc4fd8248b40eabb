"""Why, in words, and what to change about the workload."""

from __future__ import annotations

from collections.abc import Sequence

from stayfast.capacity.machines.machine import Machine
from stayfast.capacity.machines.prices import MachinePrices
from stayfast.capacity.plan.grace_fit import GraceCheck
from stayfast.capacity.plan.options import Option
from stayfast.capacity.spec.workload import WorkloadKind, WorkloadSpec
from stayfast.model.capacity import CapacityClass


def reasons_for(
    prices: MachinePrices, options: Sequence[Option], choice: Option | None, grace: GraceCheck
) -> list[str]:
    """Sentences, the weightiest first."""
    if choice is None:
        return [f"{option.kind}: {'; '.join(option.obstacles)}" for option in options]
    reasons = []
    rivals = [option for option in options if option.feasible and option is not choice and option.cost_usd]
    if choice.cost_usd and rivals:
        best = min(rivals, key=lambda option: option.cost_usd.p50 if option.cost_usd else 0.0)
        assert best.cost_usd is not None
        less = best.cost_usd.p50 - choice.cost_usd.p50
        than = f"${less:,.2f} less than {best.kind}" if less >= 0.005 else f"as much as {best.kind}, with fewer parts"
        reasons.append(f"{choice.kind} costs ${choice.cost_usd.p50:,.2f} in the median replay, {than}")
    elif choice.cost_usd:
        reasons.append(
            f"{choice.kind} is the only class that keeps every promise; it costs ${choice.cost_usd.p50:,.2f}"
        )
    else:
        reasons.append(f"{choice.kind}: an endpoint must be there all the time, without waiting and without notice")
    reasons += _about(prices, choice)
    if choice.met_share is not None and choice.met_share < 0.995:
        reasons.append(f"in {1 - choice.met_share:.0%} of the replays it is not done in the time that was watched")
    for option in options:
        if option.obstacles and option is not choice:
            reasons.append(f"not {option.kind}: {'; '.join(option.obstacles)}")
    if choice.kind in (CapacityClass.SPOT, CapacityClass.HYBRID) and not grace.fits:
        reasons.append(
            f"a last save needs {grace.needed_seconds:.0f} s and the notice leaves {grace.window_seconds:.0f} s: "
            "work since the last checkpoint is lost at each preemption, which the replays include"
        )
    return reasons


def _about(prices: MachinePrices, choice: Option) -> list[str]:
    flex, spot = prices.flex_start, prices.spot
    if choice.kind == CapacityClass.FLEX_START and flex is not None and spot is not None and flex <= spot:
        return [
            f"flex-start is ${flex:.2f} per machine and hour here and Spot ${spot:.2f}: cheaper, and never preempted"
        ]
    if choice.kind == CapacityClass.FLEX_START:
        return ["its machines are not preempted for up to 7 days, and the queue is not billed"]
    if choice.kind == CapacityClass.SPOT and choice.interruptions is not None:
        return [f"{choice.interruptions:.1f} interruptions on average are cheaper than a dearer machine"]
    if choice.kind == CapacityClass.HYBRID and choice.hours:
        parts = [f"{hours:.1f} h {name}" for name, hours in choice.hours.items() if hours > 0.05]
        return [f"it blends {', '.join(parts)} and keeps the deadline where Spot alone does not"]
    return []


def workload_advice(spec: WorkloadSpec, machine: Machine, choice: Option | None, grace: GraceCheck) -> list[str]:
    """What to change about the workload itself."""
    advice: list[str] = []
    kind = choice.kind if choice else None
    if spec.nodes > 1 and kind in (CapacityClass.FLEX_START, CapacityClass.HYBRID):
        advice.append(
            f"{spec.nodes} nodes must start together: use queued provisioning (Kueue and a ProvisioningRequest), "
            "all or nothing"
        )
    if spec.nodes > 1 and spec.kind in (WorkloadKind.BATCH, WorkloadKind.SWEEP):
        advice.append(
            f"the items do not need {spec.nodes} nodes at once: ask for single nodes with a lower parallelism; "
            "one machine is found sooner than a gang"
        )
    if spec.nodes >= 8 and spec.kind == WorkloadKind.TRAIN:
        advice.append(f"{spec.nodes} × {machine.name} in one request may wait long: start smaller if the model allows")
    if choice is not None and choice.egress_usd >= 0.01:
        advice.append(
            f"${choice.egress_usd:,.2f} of the cost is transfer of checkpoints from and to {spec.bucket_region}: "
            "keep the bucket in the cluster's region"
        )
    if kind in (CapacityClass.SPOT, CapacityClass.HYBRID):
        advice += grace.advice
    return advice
