"""Made-up capacity histories from fitted models, for when no trace of the place is at hand.

Each model says how long capacity stays; how long it stays away is exponential unless the model says otherwise. The
parameters and where they come from are in ``MODELS``. The bursty model is apart: its hazards, of presence and of
absence, fall with age, and each window follows one of the fitted regimes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from stayfast.capacity.policies.regimes import Regime, bundled_regimes, regimes_source
from stayfast.capacity.policies.survival import BANDS_HOURS
from stayfast.capacity.replay.lifetimes import Bathtub, Exponential, Lifetime, Weibull
from stayfast.errors import UsageError
from stayfast.extras import load_numpy

HOUR = 3600.0


@dataclass(frozen=True, slots=True)
class Model:
    """A distribution of lifetimes and a mean absence."""

    lifetime: Lifetime
    absence_seconds: float
    source: str


_GCP_2019 = "1,442 preemptible GCP VMs of 2019 (Kadupitiya, Jadhao, Sharma, HPDC '20), least squares on the CDF"

MODELS: dict[str, Model] = {
    "exponential": Model(Exponential(8.41 * HOUR), 0.5 * HOUR, f"mean life of {_GCP_2019}; the absence is assumed"),
    "weibull": Model(Weibull(5.1 * HOUR, 0.56), 0.5 * HOUR, f"shape fitted to {_GCP_2019}; the absence is assumed"),
    "bathtub": Model(
        Bathtub(0.638, 0.96 * HOUR, 1.09 * HOUR, 25.4 * HOUR),
        0.5 * HOUR,
        f"fitted to {_GCP_2019}; the absence is assumed",
    ),
}


BURSTY = "bursty"
MODEL_NAMES = (*MODELS, BURSTY)


def model_source(name: str) -> str:
    """Where the parameters of a model come from."""
    return MODELS[name].source if name in MODELS else regimes_source()


def draw_model(name: str, *, windows: int, ticks: int, tick_seconds: float, seed: int) -> Any:
    """Windows x ticks of 0 and 1 under a named model."""
    if name == BURSTY:
        return draw_from_regimes(bundled_regimes(), windows=windows, ticks=ticks, tick_seconds=tick_seconds, seed=seed)
    if name not in MODELS:
        raise UsageError(f"there is no capacity model {name!r}", help=f"choose from {', '.join(MODEL_NAMES)}")
    np = load_numpy()
    model = MODELS[name]
    step, longest = tick_seconds / 4, 60 * 24 * HOUR
    curve = np.array([model.lifetime.survival(point * step) for point in range(int(longest / step))])
    rng = np.random.default_rng(seed)

    def life(count: int) -> Any:
        return (np.searchsorted(-curve, -rng.random(count), side="left") * step).clip(max=longest)

    def away(count: int) -> Any:
        return rng.exponential(model.absence_seconds, count)

    return _alternate(np, rng, life, away, windows=windows, ticks=ticks, tick_seconds=tick_seconds)


def _alternate(
    np: Any,
    rng: Any,
    life: Callable[[int], Any],
    away: Callable[[int], Any],
    *,
    windows: int,
    ticks: int,
    tick_seconds: float,
) -> Any:
    table = np.zeros((windows, ticks), dtype=np.uint8)
    moment = np.zeros(windows)
    there = rng.random(windows) < 0.9
    columns = np.arange(ticks) * tick_seconds
    while (moment < ticks * tick_seconds).any():
        spell = np.maximum(tick_seconds, np.where(there, life(windows), away(windows)))
        inside = (columns >= moment[:, None]) & (columns < (moment + spell)[:, None])
        table[inside & there[:, None]] = 1
        moment, there = moment + spell, ~there
    return table


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
