"""Kinds of capacity history that were seen somewhere: the hypotheses that our policy weighs against what it sees.

The bundled ones are fitted to public traces; ``regimes.json`` names them. A benchmark that leaves a trace out fits its
own from the others with the same functions.
"""

from __future__ import annotations

import importlib.resources
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Protocol

from stayfast.capacity.policies.survival import BANDS_HOURS, Table, expose, hazards, pooled

ABSENT_KINDS, PRESENT_KINDS = 5, 4

Row = tuple[float, ...]
"""Events per hour, by age band."""


class History(Protocol):
    """What a regime is fitted to, such as a recorded trace."""

    @property
    def tick_seconds(self) -> float:
        """Seconds between two counts."""

    def available(self, nodes: int) -> bytes:
        """One byte per tick: 1 where that many nodes could be had."""


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


def fit_regimes(histories: Sequence[tuple[History, int]]) -> tuple[Regime, ...]:
    """A few kinds of absence, a few of presence, and every pair of them.

    How capacity goes and how it comes back are weighed apart: a new place may go like one history and come back like
    another.
    """
    seen = [expose(trace.available(nodes), trace.tick_seconds) for trace, nodes in histories]
    pool = pooled(seen)
    tables = [hazards(item, pool) for item in seen]
    absent = choose_rows([table[0] for table in tables], ABSENT_KINDS)
    present = choose_rows([table[1] for table in tables], PRESENT_KINDS)
    return cross(absent, present)


def cross(absent: Sequence[Row], present: Sequence[Row]) -> tuple[Regime, ...]:
    """Every kind of absence with every kind of presence."""
    return tuple(Regime(away, there) for away in absent for there in present)


def choose_rows(rows: Sequence[Row], count: int) -> list[Row]:
    """A few that stand for all: k-medoids on the logarithms, farthest first; no chance involved."""
    points = [[math.log(value) for value in row] for row in rows]
    if count >= len(points):
        return list(rows)
    middle = [sum(column) / len(points) for column in zip(*points, strict=True)]
    chosen = [min(range(len(points)), key=lambda item: _distance(points[item], middle))]
    while len(chosen) < count:
        near = [min(_distance(point, points[item]) for item in chosen) for point in points]
        chosen.append(max(range(len(points)), key=near.__getitem__))
    for _ in range(10):
        owners = [_nearest(point, chosen, points) for point in points]
        moved = [_medoid([index for index, owner in enumerate(owners) if owner == item], points) for item in chosen]
        if moved == chosen:
            break
        chosen = moved
    return [rows[item] for item in chosen]


def _distance(left: Sequence[float], right: Sequence[float]) -> float:
    return sum((one - other) ** 2 for one, other in zip(left, right, strict=True))


def _nearest(point: Sequence[float], chosen: Sequence[int], points: Sequence[Sequence[float]]) -> int:
    return min(chosen, key=lambda item: _distance(point, points[item]))


def _medoid(members: Sequence[int], points: Sequence[Sequence[float]]) -> int:
    centre = [sum(column) / len(members) for column in zip(*(points[item] for item in members), strict=True)]
    return min(members, key=lambda item: _distance(points[item], centre))


def to_json(regimes: Sequence[Regime], source: str) -> str:
    """The bundled form: the rows, not their pairs."""
    rows = {
        "absent_per_hour": list(dict.fromkeys(regime.absent for regime in regimes)),
        "present_per_hour": list(dict.fromkeys(regime.present for regime in regimes)),
    }
    body = {"source": source, "bands_hours": BANDS_HOURS}
    lists = {name: [[round(value, 5) for value in row] for row in table] for name, table in rows.items()}
    return json.dumps({**body, **lists}, indent=None, separators=(",", ": ")).replace(',"', ',\n"') + "\n"


def regimes_source() -> str:
    """What the bundled regimes were fitted to."""
    return str(_bundled()["source"])


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
