"""Kinds of capacity history that were seen somewhere: the hypotheses that our policy weighs against what it sees.

The bundled ones are fitted to public traces by ``benchmarks/fit_regimes.py``; ``regimes.json`` names the traces.
"""

from __future__ import annotations

import importlib.resources
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

BANDS_HOURS = (0.0, 0.35, 1.0, 3.0, 9.0)
"""Where each age band begins; the last has no end. Spot spells are heavy-tailed, so the bands grow threefold."""

Table = tuple[tuple[float, ...], tuple[float, ...]]
"""Per band: first for absence (0), then for presence (1)."""

Row = tuple[float, ...]
"""Events per hour, by age band."""


@dataclass(frozen=True, slots=True)
class Regime:
    """Hazards per hour by age band, of absence and of presence, and the share of time with capacity that follows."""

    absent: Row
    present: Row

    @property
    def hazards(self) -> Table:
        return self.absent, self.present

    @property
    def share(self) -> float:
        there, away = mean_hours(self.present), mean_hours(self.absent)
        return min(0.99, max(0.01, there / (there + away)))


def mean_hours(row: Row) -> float:
    """How long a spell lasts on average under these hazards."""
    mean, alive = 0.0, 1.0
    ends = (*BANDS_HOURS[1:], math.inf)
    for hazard, begin, end in zip(row, BANDS_HOURS, ends, strict=True):
        survives = math.exp(-hazard * (end - begin))
        mean += alive * (1 - survives) / hazard
        alive *= survives
    return mean


def cross(absent: Sequence[Row], present: Sequence[Row]) -> tuple[Regime, ...]:
    """Every kind of absence with every kind of presence."""
    return tuple(Regime(away, there) for away in absent for there in present)


@lru_cache(maxsize=1)
def bundled_regimes() -> tuple[Regime, ...]:
    """What ships with the package."""
    body = _bundled()
    assert tuple(body["bands_hours"]) == BANDS_HOURS, "regimes.json was fitted with other age bands"
    return cross([tuple(row) for row in body["absent_per_hour"]], [tuple(row) for row in body["present_per_hour"]])


def _bundled() -> dict[str, Any]:
    text = importlib.resources.files("stayfast.capacity.policies").joinpath("regimes.json").read_text(encoding="utf-8")
    body: dict[str, Any] = json.loads(text)
    return body
