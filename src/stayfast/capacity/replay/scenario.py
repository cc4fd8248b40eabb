"""What is replayed and what comes out: plain values that the plain and the vectorised engine share."""

from __future__ import annotations

import enum
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from stayfast.capacity.replay.traces import Trace
from stayfast.errors import UsageError

EPSILON_SECONDS = 1e-3
"""Less than a millisecond of work is none: hours given as decimals carry that much noise."""

FLEX_LEASE_SECONDS = 7 * 86_400.0
BACKOFF_FIRST_SECONDS, BACKOFF_CAP_SECONDS = 10.0, 600.0
"""The Job controller's own delay before it replaces a disrupted pod: it doubles, and only a success resets it."""


_FROM_ZERO = (
    "work_seconds",
    "cold_start_seconds",
    "on_demand_usd_per_hour",
    "spot_usd_per_hour",
    "flex_start_usd_per_hour",
    "flex_wait_seconds",
)


class Mode(enum.IntEnum):
    """What the run stands on during a tick."""

    IDLE = 0
    SPOT = 1
    ON_DEMAND = 2
    FLEX_START = 3


class Placement(NamedTuple):
    """A mode, and for Spot the zone by its position."""

    mode: Mode
    zone: int = 0


IDLE = Placement(Mode.IDLE)
ON_DEMAND = Placement(Mode.ON_DEMAND)
FLEX_START = Placement(Mode.FLEX_START)
SPOT = Placement(Mode.SPOT)


@dataclass(frozen=True, slots=True)
class Saving:
    """Checkpoints: what they cost and what they keep. Without one, a lost machine loses no work but its start-up."""

    interval_seconds: float
    save_seconds: float = 0.0
    restore_seconds: float = 0.0
    notice_saves: bool = False
    """The flush fits the grace window, so that a preemption with notice loses at most a step."""

    @property
    def stretch(self) -> float:
        """Wall time per unit of work while saving at this interval."""
        return 1.0 + self.save_seconds / self.interval_seconds


@dataclass(frozen=True, slots=True)
class Scenario:
    """One workload on priced capacity; prices are those of the whole gang per hour."""

    work_seconds: float
    deadline_seconds: float
    cold_start_seconds: float
    on_demand_usd_per_hour: float
    spot_usd_per_hour: float
    nodes: int = 1
    saving: Saving | None = None
    job_backoff: bool = False
    flex_start_usd_per_hour: float | None = None
    flex_wait_seconds: float = 0.0
    flex_lease_seconds: float = FLEX_LEASE_SECONDS

    def __post_init__(self) -> None:
        if not (math.isfinite(self.deadline_seconds) and self.deadline_seconds > 0):
            raise UsageError(f"deadline seconds must be a number above 0, not {self.deadline_seconds!r}")
        names = ["work_seconds", "cold_start_seconds", "on_demand_usd_per_hour", "spot_usd_per_hour"]
        names += ["flex_wait_seconds"] + (
            ["flex_start_usd_per_hour"] if self.flex_start_usd_per_hour is not None else []
        )
        for name in names:
            if not (math.isfinite(getattr(self, name)) and getattr(self, name) >= 0):
                raise UsageError(f"{name.replace('_', ' ')} must be a number from 0, not {getattr(self, name)!r}")

    @property
    def loses_nothing(self) -> bool:
        """Whether a preemption costs no work: nothing modelled, or the notice is long enough to save."""
        return self.saving is None or self.saving.notice_saves

    @property
    def is_done(self) -> bool:
        """Whether there is no work at all: then nothing is started, and it is done when it begins."""
        return self.work_seconds <= EPSILON_SECONDS


@dataclass(frozen=True, slots=True)
class Window:
    """A stretch of one or several zones' traces on a common tick, from which a run may take Spot capacity."""

    tick_seconds: float
    zones: tuple[bytes, ...]
    """One byte per tick and zone: 1 where the gang could be had; the window starts at index 0."""
    spot_usd_per_hour: tuple[float, ...] | None = None
    """Per zone; the scenario's price where absent."""
    spot_price_by_tick: tuple[Sequence[float], ...] | None = None
    """Per zone and tick; past its end the last price stays."""

    @property
    def ticks(self) -> int:
        return min(len(zone) for zone in self.zones)


def cut(traces: Sequence[Trace], *, nodes: int, start_seconds: float) -> Window:
    """The window of these traces from a start that is moved up to the next tick."""
    ticks = {trace.tick_seconds for trace in traces}
    if len(ticks) != 1:
        raise UsageError(f"traces with ticks of {sorted(ticks)} seconds cannot be replayed together")
    tick = ticks.pop()
    first = ceil_ticks(start_seconds, tick)
    for trace in traces:
        if first >= trace.ticks:
            raise UsageError(
                f"the start at {start_seconds / 3600:g} h is past the end of trace {trace.id!r} ({trace.hours:.1f} h)",
                help="start earlier",
            )
    return Window(tick, tuple(trace.available(nodes)[first:] for trace in traces))


def ceil_ticks(seconds: float, tick_seconds: float) -> int:
    """Whole ticks that cover this time; noise of a millisecond does not make one more."""
    return math.ceil((seconds - EPSILON_SECONDS) / tick_seconds)


def floor_ticks(seconds: float, tick_seconds: float) -> int:
    """Whole ticks that fit into this time."""
    return math.floor((seconds + EPSILON_SECONDS) / tick_seconds)


@dataclass(slots=True)
class Outcome:
    """What a replay cost and how it went; hours of machine time are whole ticks, as they are billed."""

    policy: str
    cost_usd: float = 0.0
    spot_hours: float = 0.0
    on_demand_hours: float = 0.0
    flex_start_hours: float = 0.0
    finish_hours: float | None = None
    met_deadline: bool = False
    interruptions: int = 0
    attempts: int = 0
    useful_seconds: float = 0.0
    start_seconds: float = 0.0
    restore_seconds: float = 0.0
    save_seconds: float = 0.0
    lost_seconds: float = 0.0
    waiting_seconds: float = 0.0
    tail_seconds: float = 0.0
    """Billed after the work was done, because ticks are billed whole."""
    timeline: list[tuple[Mode, int, int]] = field(default_factory=list)
    """Mode, zone and ticks, in order."""

    @property
    def paid_seconds(self) -> float:
        return (self.spot_hours + self.on_demand_hours + self.flex_start_hours) * 3600

    @property
    def goodput(self) -> float:
        """Useful share of the paid machine time."""
        return self.useful_seconds / self.paid_seconds if self.paid_seconds else 0.0
