"""Made-up capacity histories and queue times, for when no trace of the place is at hand."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from stayfast.capacity.policies.regimes import BANDS_HOURS, Regime
from stayfast.extras import load_numpy


def draw_from_regimes(regimes: Sequence[Regime], *, windows: int, ticks: int, tick_seconds: float, seed: int) -> Any:
    """Windows x ticks of 0 and 1; each window follows one regime, whose hazards fall with the age of a spell."""
    np = load_numpy()
    rng = np.random.default_rng(seed)
    kind = rng.integers(0, len(regimes), windows)
    rates = np.array([regime.hazards for regime in regimes])
    ends = -np.expm1(-rates * tick_seconds / 3600)
    there = (rng.random(windows) < np.array([regime.share for regime in regimes])[kind]).astype(int)
    # A spell that is met at a random moment is in its middle: draw its age as if it had been going on for a while.
    age = rng.exponential(1.0, windows)
    table = np.zeros((windows, ticks), dtype=np.uint8)
    for tick in range(ticks):
        table[:, tick] = there
        band = np.searchsorted(BANDS_HOURS, age, side="right") - 1
        turns = rng.random(windows) < ends[kind, there, band]
        there = np.where(turns, 1 - there, there)
        age = np.where(turns, 0.0, age + tick_seconds / 3600)
    return table


def lognormal_waits(*, median_seconds: float, sigma: float, windows: int, seed: int) -> Any:
    """Queue times: most are short, a few are very long."""
    np = load_numpy()
    if median_seconds <= 0:
        return np.zeros(windows)
    return np.random.default_rng(seed).lognormal(math.log(median_seconds), sigma, windows)
