"""How long machines live: measured or fitted survival curves, and the checkpoint schedule that fits one exactly."""

from __future__ import annotations

import bisect
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from stayfast.errors import UsageError
from stayfast.extras import load_numpy


class Lifetime(Protocol):
    """A distribution of lifetimes, by its survival curve."""

    def survival(self, age_seconds: float) -> float:
        """The share of machines that live longer than this."""


@dataclass(frozen=True, slots=True)
class Exponential:
    """No memory."""

    mean_seconds: float

    def survival(self, age_seconds: float) -> float:
        return math.exp(-age_seconds / self.mean_seconds)


@dataclass(frozen=True, slots=True)
class Weibull:
    """Shape below 1: the young die first."""

    scale_seconds: float
    shape: float

    def survival(self, age_seconds: float) -> float:
        return math.exp(-((age_seconds / self.scale_seconds) ** self.shape))


@dataclass(frozen=True, slots=True)
class Bathtub:
    """F(t) = A (1 - e^(-t/t1) + e^((t-b)/t2)): early deaths, a calm middle, a cap (Kadupitiya et al., HPDC '20)."""

    share: float
    early_seconds: float
    late_seconds: float
    cap_seconds: float

    def survival(self, age_seconds: float) -> float:
        late = min(50.0, (age_seconds - self.cap_seconds) / self.late_seconds)
        # The curve starts a hair above 0; a machine of age 0 lives.
        offset = math.exp(-self.cap_seconds / self.late_seconds)
        dead = self.share * (1 - math.exp(-age_seconds / self.early_seconds) + math.exp(late) - offset)
        return min(1.0, max(0.0, 1 - dead))


class Empirical:
    """Lifetimes as they were measured."""

    def __init__(self, lifetimes_seconds: Sequence[float]) -> None:
        if not lifetimes_seconds or min(lifetimes_seconds) < 0:
            raise UsageError("an empirical lifetime needs at least one value, none below 0")
        self._ordered = sorted(lifetimes_seconds)

    @property
    def mean_seconds(self) -> float:
        return sum(self._ordered) / len(self._ordered)

    def survival(self, age_seconds: float) -> float:
        return 1 - bisect.bisect_right(self._ordered, age_seconds) / len(self._ordered)


@dataclass(frozen=True, slots=True)
class Timing:
    """What a schedule works with; the grid is the finest step that it distinguishes."""

    work_seconds: float
    save_seconds: float
    restart_seconds: float
    grid_seconds: float = 120.0


class Schedules:
    """Expected completion times under one lifetime distribution, on a grid of ages.

    With J work left on a machine of age a, working i and then saving succeeds if the machine outlives i+δ:
    M(J,a) = min over i of E[min(life, i+δ) | a] + P(lives) M(J-i, a+i+δ) + P(dies) (r + M(J,0)).
    A machine older than every known one is taken to be as good as the oldest: it never gets there in practice.
    """

    def __init__(self, lifetime: Lifetime, timing: Timing) -> None:
        np = load_numpy()
        self._np = np
        self._solved: dict[int | None, tuple[Any, Any]] = {}
        grid = timing.grid_seconds
        self.timing = timing
        self._work = max(1, math.ceil(timing.work_seconds / grid - 1e-9))
        self._save = timing.save_seconds / grid
        self._ages = self._horizon(lifetime, grid)
        # A finer mesh than the grid for the integrals of the survival curve.
        fine = 4
        size = (self._ages + self._work + math.ceil(self._save) + 2) * fine + 1
        curve = np.array([lifetime.survival(point * grid / fine) for point in range(size)])
        area = np.concatenate([[0.0], np.cumsum((curve[1:] + curve[:-1]) / 2)]) * grid / fine
        self._curve, self._area, self._fine = curve, area, fine

    def _horizon(self, lifetime: Lifetime, grid: float) -> int:
        age = 1
        while age < 200_000 and lifetime.survival(age * grid) > 1e-3:
            age += 1
        return age

    def optimal_seconds(self, age_seconds: float = 0.0) -> float:
        """Expected time under the best schedule."""
        values, _ = self._solve(None)
        return float(values[self._work][self._age(age_seconds)])

    def fixed_seconds(self, interval_seconds: float | None, age_seconds: float = 0.0) -> float:
        """Expected time with one interval throughout; None for no checkpoint at all."""
        steps = self._work if interval_seconds is None else max(1, round(interval_seconds / self.timing.grid_seconds))
        values, _ = self._solve(steps)
        return float(values[self._work][self._age(age_seconds)])

    def schedule_seconds(self, age_seconds: float = 0.0) -> list[float]:
        """The best intervals, one after the other, if the machine lives."""
        _, choices = self._solve(None)
        left, age, intervals = self._work, self._age(age_seconds), []
        while left:
            step = int(choices[left][min(age, self._ages)])
            intervals.append(step * self.timing.grid_seconds)
            left -= step
            age += step + math.ceil(self._save)
        return intervals

    def _age(self, age_seconds: float) -> int:
        return min(self._ages, round(age_seconds / self.timing.grid_seconds))

    def _solve(self, fixed: int | None) -> tuple[Any, Any]:
        """M over work left (rows) and ages (columns), and the interval chosen at each."""
        if fixed not in self._solved:
            self._solved[fixed] = self._induct(fixed)
        return self._solved[fixed]

    def _induct(self, fixed: int | None) -> tuple[Any, Any]:
        np = self._np
        ages = np.arange(self._ages + 1)
        values = np.zeros((self._work + 1, self._ages + 1))
        choices = np.zeros((self._work + 1, self._ages + 1), dtype=np.int32)
        pieces = [self._piece(ages, step, self._save) for step in range(1, self._work + 1)]
        # The last piece needs no save: finishing is what it was for.
        last = [self._piece(ages, step, 0.0) for step in range(1, self._work + 1)]
        restart = self.timing.restart_seconds
        for left in range(1, self._work + 1):
            steps = range(1, left + 1) if fixed is None else (min(fixed, left),)
            fresh = math.inf
            for step in steps:
                spent, lives, later = (last if step == left else pieces)[step - 1]
                if lives[0] > 0:
                    tries = spent[0] + lives[0] * values[left - step][later[0]] + (1 - lives[0]) * restart
                    fresh = min(fresh, tries / lives[0])
            best = np.full(self._ages + 1, np.inf)
            for step in steps:
                spent, lives, later = (last if step == left else pieces)[step - 1]
                value = spent + lives * values[left - step][later] + (1 - lives) * (restart + fresh)
                better = value < best
                best[better] = value[better]
                choices[left][better] = step
            values[left] = best
        return values, choices

    def _piece(self, ages: Any, step: int, save: float) -> tuple[Any, Any, Any]:
        """For every age: expected time of one piece, the chance to survive it, and the age after it."""
        np = self._np
        first = ages * self._fine
        last = np.minimum(first + round((step + save) * self._fine), len(self._curve) - 1)
        alive = np.maximum(self._curve[first], 1e-12)
        spent = (self._area[last] - self._area[first]) / alive
        return spent, self._curve[last] / alive, np.minimum(ages + step + math.ceil(save), self._ages)
