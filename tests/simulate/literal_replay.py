"""The rules of a replay, sentence by sentence, in exact fractions: slow, plain, and written without a look at ours.

Each comment is a rule as it was agreed on. Nothing here is shared with the product.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

IDLE, SPOT, PAID = "idle", "spot", "on-demand"


@dataclass
class Case:
    counts: list[int]
    tick: Fraction
    nodes: int
    work: Fraction
    deadline: Fraction
    cold: Fraction
    start: Fraction
    paid_usd: Fraction = Fraction(3)
    spot_usd: Fraction = Fraction(1)

    @property
    def first(self):
        # The start is ceiled to the next tick.
        return math.ceil(self.start / self.tick)

    @property
    def last(self):
        # The deadline is floored.
        return math.floor(self.deadline / self.tick)

    def there(self, tick):
        # A preemption is seen where the count drops below the gang; past the end of the trace there is nothing.
        place = self.first + tick
        return place < len(self.counts) and self.counts[place] >= self.nodes


@dataclass
class Story:
    spot: int = 0
    paid: int = 0
    interruptions: int = 0
    attempts: int = 0
    finish: int | None = None
    met: bool = False

    def cost(self, case):
        # A tick is billed whole; prices are those of the whole gang per hour.
        return (self.spot * case.spot_usd + self.paid * case.paid_usd) * case.tick / 3600


def tell(case, policy):
    story, mode, done, cold_left, tick = Story(), IDLE, Fraction(0), Fraction(0), 0
    while done < case.work:
        there = case.there(tick)
        if mode == SPOT and not there:
            mode, cold_left = IDLE, Fraction(0)
            story.interruptions += 1
        wish = decide(case, policy, mode, done, cold_left, tick, there)
        # Past the end of the trace and of the deadline, waiting for Spot is waiting for nothing.
        if wish == IDLE and case.first + tick >= len(case.counts) and tick >= case.last:
            return story
        # A cold start consumes run time of the new machine.
        if wish != IDLE and wish != mode:
            story.attempts += 1
            cold_left = case.cold
        mode = wish
        story.spot += mode == SPOT
        story.paid += mode == PAID
        if mode != IDLE:
            starting = min(cold_left, case.tick)
            cold_left -= starting
            done = min(case.work, done + case.tick - starting)
        tick += 1
    story.finish, story.met = tick, tick <= case.last
    return story


def decide(case, policy, mode, done, cold_left, tick, there):
    if policy == "on-demand":
        return PAID  # on-demand is always obtainable
    if policy == "spot-only":
        return SPOT if there else IDLE
    # Remaining time floored, work + d (or 2d) ceiled to ticks.
    remaining = case.last - tick
    one, two = (math.ceil((case.work - done + starts * case.cold) / case.tick) for starts in (1, 2))
    if one >= remaining:
        # At need(1d) >= remaining keep a Spot machine only if its own cold start is over; a free change costs nothing.
        if mode == SPOT and cold_left == 0:
            return SPOT
        return SPOT if case.cold == 0 and there else PAID
    if mode in (IDLE, PAID) and two >= remaining:
        return PAID  # the safety net
    if policy == "greedy":
        return SPOT if there else IDLE
    # Uniform progress: the line is t C0 / R0.
    behind = done < tick * case.tick * case.work / case.deadline
    ahead = done > (tick * case.tick + 2 * case.cold) * case.work / case.deadline
    if mode == PAID:
        return SPOT if there and ahead else PAID  # left only for Spot, never for idle
    if there:
        return SPOT
    return PAID if behind else IDLE


def optimum(case):
    """The least cost over all assignments of modes to ticks, state by state; None where nothing is in time."""
    states = {(IDLE, Fraction(0), Fraction(0)): Fraction(0)}
    best = None
    for tick in range(case.last):
        after = {}
        for (mode, done, left), cost in states.items():
            for wish in (IDLE, PAID) + ((SPOT,) if case.there(tick) else ()):
                if wish == IDLE:
                    key, price = (IDLE, done, Fraction(0)), cost
                else:
                    cold = left if wish == mode else case.cold
                    starting = min(cold, case.tick)
                    usd = case.spot_usd if wish == SPOT else case.paid_usd
                    price = cost + usd * case.tick / 3600
                    key = (wish, min(case.work, done + case.tick - starting), cold - starting)
                    if key[1] >= case.work:
                        best = price if best is None else min(best, price)
                        continue
                if price < after.get(key, price + 1):
                    after[key] = price
        states = after
    return best
