"""Fits capacity regimes to recorded histories: how long capacity stays and stays away, by age (Nelson-Aalen).

Spells of capacity and of its absence are cut into age bands. Within a band the hazard is events per hour of exposure,
which are the increments of the Nelson-Aalen estimate; a spell that was still going on when watching ended counts as
exposure without an event. The first spell of a history has an unknown age: only what it spent beyond the last band's
beginning counts, because there age no longer matters.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from stayfast.capacity.policies.regimes import BANDS_HOURS, Regime, Row, Table, cross

ABSENT_KINDS, PRESENT_KINDS = 5, 4


class History(Protocol):
    """What a regime is fitted to, such as a recorded trace."""

    @property
    def tick_seconds(self) -> float:
        """Seconds between two counts."""

    def available(self, nodes: int) -> bytes:
        """One byte per tick: 1 where that many nodes could be had."""


@dataclass(frozen=True, slots=True)
class Exposure:
    """Events and hours at risk in each band."""

    events: Table
    hours: Table
    share: float
    """Of the time, how much had capacity."""


def band_of(age_hours: float) -> int:
    """The band that an age falls into."""
    return sum(age_hours >= begin for begin in BANDS_HOURS) - 1


def spells(available: Sequence[int]) -> Iterable[tuple[int, int]]:
    """(0 or 1, ticks), in order."""
    for there, group in itertools.groupby(available):
        yield there, sum(1 for _ in group)


def expose(available: Sequence[int], tick_seconds: float) -> Exposure:
    """Count a history."""
    events = [[0.0] * len(BANDS_HOURS) for _ in range(2)]
    hours = [[0.0] * len(BANDS_HOURS) for _ in range(2)]
    ends = (*BANDS_HOURS[1:], float("inf"))
    known = list(spells(available))
    for position, (there, ticks) in enumerate(known):
        length = ticks * tick_seconds / 3600
        if position == 0:
            if length > BANDS_HOURS[-1]:
                hours[there][-1] += length - BANDS_HOURS[-1]
                events[there][-1] += len(known) > 1
            continue
        for band, (begin, end) in enumerate(zip(BANDS_HOURS, ends, strict=True)):
            hours[there][band] += max(0.0, min(length, end) - begin)
        if position < len(known) - 1:
            events[there][band_of(length)] += 1
    share = sum(available) / len(available)
    return Exposure(_freeze(events), _freeze(hours), share)


def _freeze(rows: list[list[float]]) -> Table:
    return tuple(rows[0]), tuple(rows[1])


def hazards(exposure: Exposure, pool: Table, *, pseudo_hours: float = 2.0) -> Table:
    """Events per hour by band, drawn towards the pool where little was seen."""

    def row(state: int) -> tuple[float, ...]:
        return tuple(
            (events + pseudo_hours * common) / (hours + pseudo_hours)
            for events, hours, common in zip(exposure.events[state], exposure.hours[state], pool[state], strict=True)
        )

    return row(0), row(1)


def pooled(exposures: Sequence[Exposure]) -> Table:
    """Events per hour over all histories together."""

    def row(state: int) -> tuple[float, ...]:
        events = [sum(column) for column in zip(*(item.events[state] for item in exposures), strict=True)]
        hours = [sum(column) for column in zip(*(item.hours[state] for item in exposures), strict=True)]
        # Half an event in half an hour more: no band is ever certain.
        return tuple((event + 0.5) / (hour + 0.5) for event, hour in zip(events, hours, strict=True))

    return row(0), row(1)


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
