"""The published policies once more, for one window and one method each: what the fast ones are held against.

Symbols as in the literature: C work left, R time to the deadline, d cold start. Times are compared in whole ticks:
time left is rounded down, need is rounded up.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol

from stayfast.capacity.policies.adaptive import AdaptivePolicy
from stayfast.capacity.policies.policy import PolicyView
from stayfast.capacity.policies.values import EPSILON_SECONDS, Mode, Scenario, ceil_ticks
from stayfast.extras import load_numpy


class Placement(NamedTuple):
    """A mode, and for Spot the zone by its position."""

    mode: Mode
    zone: int = 0


IDLE = Placement(Mode.IDLE)
ON_DEMAND = Placement(Mode.ON_DEMAND)
FLEX_START = Placement(Mode.FLEX_START)
SPOT = Placement(Mode.SPOT)


@dataclass(slots=True)
class View:
    """What a policy may know at a tick: the past and the present, never the future."""

    scenario: Scenario
    tick_seconds: float
    deadline_ticks: int
    tick: int = 0
    placement: Placement = IDLE
    available: tuple[bool, ...] = ()
    """Per zone: could the gang be had now."""
    spot_usd_per_hour: tuple[float, ...] = ()
    flex_ready: bool = False
    done_seconds: float = 0.0
    need_seconds: float = 0.0
    """Machine time for the work that is not yet safe, saving included, starts not."""
    start_left_seconds: float = 0.0
    """What is left of the present machine's cold start."""
    start_seconds: float = 0.0
    """What a start would cost now."""

    @property
    def elapsed_seconds(self) -> float:
        return self.tick * self.tick_seconds

    @property
    def remaining_ticks(self) -> int:
        """Whole ticks until the deadline."""
        return self.deadline_ticks - self.tick

    def need_ticks(self, starts: int) -> int:
        """Whole ticks for the rest of the work and this many starts."""
        return ceil_ticks(self.need_seconds + starts * self.start_seconds, self.tick_seconds)


class Policy(Protocol):
    """Where to be during the next tick. An object serves one replay: it may remember what it has seen."""

    def decide(self, view: View) -> Placement:
        """Spot may be asked for only where it is available now, flex-start only when it is ready or held."""


class OnDemand:
    """Start at once, pay the full price, never wait."""

    def decide(self, view: View) -> Placement:
        return ON_DEMAND


class SpotOnly:
    """Spot when there is some, else wait; no deadline is watched."""

    def decide(self, view: View) -> Placement:
        return best_spot(view) or IDLE


class Greedy:
    """Spot when there is some, else wait, until the safety net says that waiting is over."""

    def decide(self, view: View) -> Placement:
        return safety_net(view) or best_spot(view) or IDLE


class UniformProgress:
    """Keep up with the straight line from nothing done to all done at the deadline (Can't Be Late, NSDI '24)."""

    def decide(self, view: View) -> Placement:
        return safety_net(view) or self.follow_line(view)

    def follow_line(self, view: View) -> Placement:
        """On-demand when behind and idle; from on-demand to Spot only with two cold starts of lead."""
        spot = best_spot(view)
        if view.placement.mode == Mode.ON_DEMAND:
            ahead = lead_seconds(view, view.elapsed_seconds + 2 * view.start_seconds) > EPSILON_SECONDS
            return spot if spot and ahead else ON_DEMAND
        if spot:
            return spot
        behind = lead_seconds(view, view.elapsed_seconds) < -EPSILON_SECONDS
        return ON_DEMAND if behind else IDLE


class FlexStart:
    """Wait in the flex-start queue and chain leases; on-demand only when the deadline forces it."""

    def decide(self, view: View) -> Placement:
        if view.placement.mode == Mode.FLEX_START:
            return FLEX_START
        forced = must_run(view)
        if forced and not (view.flex_ready and view.placement.mode == Mode.IDLE):
            return ON_DEMAND
        if view.placement.mode == Mode.ON_DEMAND:
            return ON_DEMAND
        return FLEX_START if view.flex_ready else IDLE


class Hybrid:
    """Uniform progress with flex-start in it: first choice where it is cheapest, else the on-demand to fall back on.

    Where flex-start costs less than Spot it is taken when the queue lets it through, and kept. Where it costs more, it
    stands in for on-demand whenever it is there.
    """

    def __init__(self) -> None:
        self._line = UniformProgress()

    def decide(self, view: View) -> Placement:
        flex = view.scenario.flex_start_usd_per_hour
        if flex is None:
            return self._line.decide(view)
        held = view.placement.mode == Mode.FLEX_START
        cheapest = flex <= min(view.spot_usd_per_hour)
        if cheapest and held:
            return FLEX_START
        before = view.placement
        if held:
            view.placement = ON_DEMAND
        target = self._line.decide(view)
        view.placement = before
        room = before.mode == Mode.IDLE or view.need_ticks(1) <= view.remaining_ticks
        wants = target.mode == Mode.ON_DEMAND or (cheapest and before.mode == Mode.IDLE)
        return FLEX_START if wants and (held or (view.flex_ready and room)) else target


def best_spot(view: View) -> Placement | None:
    """The zone we are in while it lasts; else the cheapest one that is available."""
    if view.placement.mode == Mode.SPOT:
        return view.placement
    if len(view.available) == 1:
        return SPOT if view.available[0] else None
    open_zones = [zone for zone, there in enumerate(view.available) if there]
    if not open_zones:
        return None
    return Placement(Mode.SPOT, min(open_zones, key=lambda zone: (view.spot_usd_per_hour[zone], zone)))


def must_run(view: View) -> bool:
    """Idle or on on-demand, waiting any longer (or one more change of machine) would risk the deadline."""
    return view.placement.mode != Mode.SPOT and view.need_ticks(2) >= view.remaining_ticks


def safety_net(view: View) -> Placement | None:
    """The placement that the deadline forces, if it does.

    With time for one start left, a Spot machine is kept only when its own cold start is over: then losing it later
    costs nothing more than losing it now; not so where unsaved work would go with it. Where a change of machine costs
    nothing at all, Spot serves to the end.
    """
    if view.need_ticks(1) >= view.remaining_ticks:
        warm = view.start_left_seconds < EPSILON_SECONDS
        keeps = view.placement.mode == Mode.SPOT and warm and view.scenario.loses_nothing
        if keeps:
            return view.placement
        free = view.start_seconds < EPSILON_SECONDS and view.scenario.loses_nothing
        return (best_spot(view) if free else None) or ON_DEMAND
    return ON_DEMAND if must_run(view) else None


def lead_seconds(view: View, moment_seconds: float) -> float:
    """Work done beyond what the straight line asks for at this moment.

    A tie neither starts an on-demand machine nor lets go of one: that is what the published simulators do.
    """
    scenario = view.scenario
    # Divided last, so that ties in whole seconds are exact.
    return (view.done_seconds * scenario.deadline_seconds - moment_seconds * scenario.work_seconds) / (
        scenario.deadline_seconds
    )


class Stayfast:
    """The same policy for one window, as the plain engine wants it."""

    def __init__(self, regimes=None) -> None:
        self._policy = AdaptivePolicy(regimes)
        self._view: PolicyView | None = None

    def decide(self, view: View) -> Placement:
        np = load_numpy()
        if self._view is None:
            prices = np.array(view.spot_usd_per_hour)
            self._view = PolicyView(np, view.scenario, view.tick_seconds, view.deadline_ticks, prices)
        many = self._view
        many.tick = view.tick
        many.mode, many.zone = np.array([int(view.placement.mode)]), np.array([view.placement.zone])
        many.available = np.array(view.available)[:, None]
        many.done_seconds, many.need_seconds = np.array([view.done_seconds]), np.array([view.need_seconds])
        many.start_left_seconds, many.start_seconds = np.array([view.start_left_seconds]), view.start_seconds
        mode, zone = self._policy.decide(many)
        chosen = Mode(int(mode[0]))
        return Placement(chosen, int(zone[0]) if chosen == Mode.SPOT else 0)


PLAIN_POLICIES = {
    "on-demand": OnDemand,
    "spot-only": SpotOnly,
    "greedy": Greedy,
    "uniform-progress": UniformProgress,
    "flex-start": FlexStart,
    "hybrid": Hybrid,
    "stayfast": Stayfast,
}
