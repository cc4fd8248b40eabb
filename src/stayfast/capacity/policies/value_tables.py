"""What being idle, on Spot or on-demand will cost from here, if capacity behaves like a regime.

Backward induction over time left and work left, both in steps, for every state of capacity (absent or present, by age
band). Prices are shares of the on-demand price. A value answers: choose this mode for the next step, decide well
afterwards; what will the rest cost?
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from stayfast.capacity.policies.regimes import BANDS_HOURS, Regime
from stayfast.extras import load_numpy

STEPS = 180
"""Steps from start to deadline; finer ones gained nothing in the benchmark."""

SHORTEST_STEP_HOURS = 1 / 12
_LATE = 100.0
"""Price of a step of work that is not done at the deadline: high enough to be avoided whenever it can be."""


@dataclass(frozen=True, slots=True)
class ValueTableInputs:
    """All that the values depend on."""

    regimes: tuple[Regime, ...]
    work_hours: float
    deadline_hours: float
    start_hours: float
    spot_ratio: float

    @property
    def step_hours(self) -> float:
        return max(SHORTEST_STEP_HOURS, self.deadline_hours / STEPS)


@dataclass(frozen=True, slots=True)
class Values:
    """Expected cost to go: steps left x (absent, present) x band x work left x regimes; Spot has no absence.

    The regimes come last, because whoever asks for a state asks for all of them at once.
    """

    step_hours: float
    start_steps: float
    idle: Any
    on_demand: Any
    spot: Any


@lru_cache(maxsize=6)
def solve_value_tables(question: ValueTableInputs) -> Values:
    """Solve it; cached, because every window of a scenario asks the same."""
    return _Induction(question).solve()


class _Induction:
    def __init__(self, question: ValueTableInputs) -> None:
        np = self.np = load_numpy()
        self.question = question
        self.step = question.step_hours
        self.steps = max(1, math.floor(question.deadline_hours / self.step + 1e-6))
        self.start = question.start_hours / self.step
        # Beyond the work itself: the start that may come on top, and one for interpolation. More than there is time
        # for need not be told apart: there the safety net decides.
        most = self.steps + 1
        work, start = math.ceil(question.work_hours / self.step - 1e-6), math.ceil(self.start)
        self.width = min(work, most) + min(start, most) + 2
        rates = np.array([regime.hazards for regime in question.regimes], dtype=np.float32)
        lives = np.exp(-rates * self.step)
        widths = np.append(np.diff(BANDS_HOURS), np.inf)
        ages = np.minimum(1.0, self.step / widths)
        self.stay = (lives * (1 - ages))[..., None].astype(np.float32)
        self.age = (lives * ages)[..., None].astype(np.float32)
        self.flip = (1 - lives)[..., None].astype(np.float32)
        self.work = np.arange(self.width)

    def solve(self) -> Values:
        np, count, bands = self.np, len(self.question.regimes), len(BANDS_HOURS)
        shape = (self.steps + 1, 2, bands, self.width, count)
        idle, paid = np.zeros(shape, dtype=np.float32), np.zeros(shape, dtype=np.float32)
        spot = np.zeros((self.steps + 1, bands, self.width, count), dtype=np.float32)
        late = (self.work * (self.step + _LATE)).astype(np.float32)
        from_idle = np.broadcast_to(late, (count, 2, bands, self.width)).copy()
        from_paid, from_spot = from_idle.copy(), from_idle[:, 1].copy()
        spot_step = self.step * self.question.spot_ratio
        for left in range(1, self.steps + 1):
            idle_now = self._next(from_idle)
            paid_now = self.step + self._done(self._next(from_paid))
            spot_now = spot_step + self._done(self._next_on_spot(from_spot, from_idle))
            for value in (idle_now, paid_now, spot_now):
                value[..., 0] = 0.0
            for table, value in ((idle, idle_now), (paid, paid_now), (spot, spot_now)):
                table[left] = np.moveaxis(value, 0, -1)
            start_paid, start_spot = self._start(paid_now), self._start(spot_now)
            # The safety net: with no more than two starts of slack, whoever is not on Spot runs on-demand to the end.
            forced = self.work + 2 * self.start >= left
            from_idle = np.minimum(np.where(forced, np.inf, idle_now), start_paid)
            np.minimum(from_idle[:, 1], np.where(forced, np.inf, start_spot), out=from_idle[:, 1])
            from_paid = paid_now.copy()
            np.minimum(from_paid[:, 1], np.where(forced, np.inf, start_spot), out=from_paid[:, 1])
            from_spot = np.minimum(spot_now, start_paid[:, 1])
            for value in (from_idle, from_paid, from_spot):
                value[..., 0] = 0.0
        return Values(self.step, self.start, idle, paid, spot)

    def _next(self, value: Any) -> Any:
        """The mean over what capacity does next: the same, one band older, or turned over."""
        mean = self.stay * value
        mean[:, :, :-1] += self.age[:, :, :-1] * value[:, :, 1:]
        mean += self.flip * value[:, ::-1, :1]
        return mean

    def _next_on_spot(self, on_spot: Any, idle: Any) -> Any:
        """Like ``_next`` for a Spot machine: when capacity goes, we are idle."""
        mean = self.stay[:, 1] * on_spot
        mean[:, :-1] += self.age[:, 1, :-1] * on_spot[:, 1:]
        mean += self.flip[:, 1] * idle[:, 0, :1]
        return mean

    def _done(self, value: Any) -> Any:
        """After a step of work: the column one to the left."""
        after = self.np.empty_like(value)
        after[..., 1:] = value[..., :-1]
        after[..., 0] = 0.0
        return after

    def _start(self, value: Any) -> Any:
        """With a start on top of the work, between columns if need be."""
        np = self.np
        whole = math.floor(self.start)
        part = np.float32(self.start - whole)
        low = np.minimum(self.work + whole, self.width - 1)
        high = np.minimum(low + 1, self.width - 1)
        return value[..., low] * (1 - part) + value[..., high] * part
