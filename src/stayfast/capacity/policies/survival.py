"""How long capacity stays and stays away, by age: Nelson-Aalen on what was seen.

Spells of capacity and of its absence are cut into age bands. Within a band the hazard is events per hour of exposure,
which are the increments of the Nelson-Aalen estimate; a spell that was still going on when watching ended counts as
exposure without an event. The first spell of a history has an unknown age: only what it spent beyond the last band's
beginning counts, because there age no longer matters.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

BANDS_HOURS = (0.0, 0.35, 1.0, 3.0, 9.0)
"""Where each age band begins; the last has no end. Spot spells are heavy-tailed, so the bands grow threefold."""

Table = tuple[tuple[float, ...], tuple[float, ...]]
"""Per band: first for absence (0), then for presence (1)."""


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
