"""Why, in words; and what would change the answer, in dollars."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from holdfast.catalogue.catalogue import Machine, Prices
from holdfast.model.workload import CapacityClass, Kind, WorkloadSpec
from holdfast.plan.grace import Grace
from holdfast.plan.options import Option
from holdfast.replay.optimum import load_numpy

PRICED_BY = {CapacityClass.SPOT: "spot", CapacityClass.FLEX_START: "flex-start", CapacityClass.ON_DEMAND: "on-demand"}


@dataclass(frozen=True, slots=True)
class Flip:
    """A price of the whole gang at which another class becomes the cheapest."""

    winner: CapacityClass
    price_of: CapacityClass
    usd_per_hour: float
    now_usd_per_hour: float

    @property
    def sentence(self) -> str:
        side = "below" if self.usd_per_hour < self.now_usd_per_hour else "above"
        what = "" if self.winner == self.price_of else f" for {self.price_of}"
        return f"{self.winner} wins {side} ${self.usd_per_hour:,.2f}/h{what} (now ${self.now_usd_per_hour:,.2f}/h)"


def explain(prices: Prices, options: Sequence[Option], choice: Option | None, grace: Grace) -> list[str]:
    """Sentences, the weightiest first."""
    if choice is None:
        return [f"{option.kind}: {'; '.join(option.obstacles)}" for option in options]
    reasons = []
    rivals = [option for option in options if option.feasible and option is not choice and option.cost_usd]
    if choice.cost_usd and rivals:
        best = min(rivals, key=lambda option: option.cost_usd.p50 if option.cost_usd else 0.0)
        assert best.cost_usd is not None
        less = best.cost_usd.p50 - choice.cost_usd.p50
        reasons.append(
            f"{choice.kind} costs ${choice.cost_usd.p50:,.2f} in the median replay, ${less:,.2f} less than {best.kind}"
        )
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


def _about(prices: Prices, choice: Option) -> list[str]:
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


def flips(options: Sequence[Option], choice: Option | None) -> list[Flip]:
    """For each rival its own price, and for the choice its own, at which the order of the two turns."""
    found: list[Flip] = []
    if choice is None or choice.costs is None:
        return found
    rivals = [option for option in options if option is not choice and option.feasible and option.costs is not None]
    if not rivals or choice.cost_usd is None:
        return found
    for rival in rivals:
        price = _price_for(rival, choice.cost_usd.p50)
        if price is not None and rival.usd_per_hour is not None:
            found.append(Flip(rival.kind, rival.kind, price, rival.usd_per_hour))
    best = min(rivals, key=lambda option: option.cost_usd.p50 if option.cost_usd else 0.0)
    if best.cost_usd is not None and choice.usd_per_hour is not None:
        price = _price_for(choice, best.cost_usd.p50)
        if price is not None and not _shares_price(choice, best):
            found.append(Flip(best.kind, choice.kind, price, choice.usd_per_hour))
    return found


def _shares_price(one: Option, other: Option) -> bool:
    """Spot and hybrid both pay the Spot price, hybrid and on-demand the on-demand price: moving one moves both."""
    return CapacityClass.HYBRID in (one.kind, other.kind)


def _price_for(option: Option, target_usd: float) -> float | None:
    """The price of this class's own machine hours at which its median cost is the target."""
    np = load_numpy()
    name = PRICED_BY.get(option.kind)
    if name is None or option.usd_per_hour is None:
        return None  # a blend has no price of its own
    hours = option.class_hours[name]
    rest = option.costs - hours * option.usd_per_hour

    def median(price: float) -> float:
        return float(np.quantile(hours * price + rest, 0.5, method="lower"))

    if median(0.0) >= target_usd or float(np.median(hours)) <= 0:
        return None
    low, high = 0.0, max(1.0, option.usd_per_hour)
    while median(high) < target_usd:
        high *= 2
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if median(middle) < target_usd else (low, middle)
    return (low + high) / 2


def advise_workload(spec: WorkloadSpec, machine: Machine, choice: Option | None, grace: Grace) -> list[str]:
    """What to change about the workload itself."""
    advice: list[str] = []
    kind = choice.kind if choice else None
    if spec.nodes > 1 and kind in (CapacityClass.FLEX_START, CapacityClass.HYBRID):
        advice.append(
            f"{spec.nodes} nodes must start together: use queued provisioning (Kueue and a ProvisioningRequest), "
            "all or nothing"
        )
    if spec.nodes > 1 and spec.kind in (Kind.BATCH, Kind.SWEEP):
        advice.append(
            f"the items do not need {spec.nodes} nodes at once: ask for single nodes with a lower parallelism; "
            "one machine is found sooner than a gang"
        )
    if spec.nodes >= 8 and spec.kind == Kind.TRAIN:
        advice.append(f"{spec.nodes} × {machine.name} in one request may wait long: start smaller if the model allows")
    if kind in (CapacityClass.SPOT, CapacityClass.HYBRID):
        advice += grace.advice
    return advice
