"""What is decided on: the priced workload, its checkpoints, and what a run can stand on."""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass

from stayfast.capacity.machines.gke_limits import LONGEST_RUN_SECONDS
from stayfast.errors import UsageError

EPSILON_SECONDS = 1e-3
"""Less than a millisecond of work is none: hours given as decimals carry that much noise."""

FLEX_LEASE_SECONDS = float(LONGEST_RUN_SECONDS)


class Mode(enum.IntEnum):
    """What the run stands on during a tick."""

    IDLE = 0
    SPOT = 1
    ON_DEMAND = 2
    FLEX_START = 3


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


def ceil_ticks(seconds: float, tick_seconds: float) -> int:
    """Whole ticks that cover this time; noise of a millisecond does not make one more."""
    return math.ceil((seconds - EPSILON_SECONDS) / tick_seconds)


def floor_ticks(seconds: float, tick_seconds: float) -> int:
    """Whole ticks that fit into this time."""
    return math.floor((seconds + EPSILON_SECONDS) / tick_seconds)
