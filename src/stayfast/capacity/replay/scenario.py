"""What is replayed and what comes out: plain values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from stayfast.capacity.policies.values import Mode, ceil_ticks
from stayfast.capacity.replay.traces import Trace
from stayfast.errors import UsageError


@dataclass(frozen=True, slots=True)
class TraceWindow:
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


def window_of(traces: Sequence[Trace], *, nodes: int, start_seconds: float) -> TraceWindow:
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
    return TraceWindow(tick, tuple(trace.available(nodes)[first:] for trace in traces))


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
