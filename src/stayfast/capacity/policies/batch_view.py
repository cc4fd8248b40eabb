"""What a policy may know when it decides for many windows at once, one NumPy row each."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from stayfast.capacity.policies.values import EPSILON_SECONDS, Mode, Scenario

IDLE, SPOT, ON_DEMAND, FLEX_START = (int(mode) for mode in Mode)


@dataclass(slots=True)
class BatchView:
    """What a policy may know, for all windows; the names are those of ``engine.View``."""

    np: Any
    scenario: Scenario
    tick_seconds: float
    deadline_ticks: int
    spot_prices: Any
    """Per zone."""
    tick: int = 0
    active: Any = None
    """Windows that are neither finished nor hopeless; what is decided for the others counts for nothing."""
    mode: Any = None
    zone: Any = None
    available: Any = None
    flex_ready: Any = None
    done_seconds: Any = None
    need_seconds: Any = None
    start_left_seconds: Any = None
    start_seconds: Any = None
    memory: dict[str, Any] = field(default_factory=dict)
    """Where a policy keeps what it has seen."""

    @property
    def elapsed_seconds(self) -> float:
        return self.tick * self.tick_seconds

    @property
    def remaining_ticks(self) -> int:
        return self.deadline_ticks - self.tick

    def need_ticks(self, starts: int) -> Any:
        """Whole ticks for the rest of the work and this many starts."""
        need = self.need_seconds + starts * self.start_seconds
        return self.np.ceil((need - EPSILON_SECONDS) / self.tick_seconds)
