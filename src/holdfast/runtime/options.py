"""What can be chosen about a run, in one value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from holdfast.runtime.environment import Settings

if TYPE_CHECKING:
    from holdfast.checkpoint.cadence import Cadence
    from holdfast.checkpoint.retention import Retention


@dataclass(frozen=True, slots=True)
class RunOptions:
    """Options of ``holdfast.run``; the defaults are what most programs want."""

    cadence: Cadence | None = None
    """When to save; by default the interval that loses least, from measured costs, between 30 s and 30 min."""
    retention: Retention | None = None
    """Which checkpoints to keep; by default the newest two."""
    buffers: int = 2
    """Copies of the state in host memory; 1 halves the memory and makes a second save wait for the first."""
    rng: bool = True
    """Track the global random number generators (random, NumPy, torch, CUDA) beside what is tracked by name."""
    strict: bool = True
    """Names that stand only in the checkpoint or only in the program are errors."""
    chain: bool = False
    """Call the signal handlers that were there before, after the drain."""
    settings: Settings | None = None
    """The environment, already parsed; read from ``os.environ`` when absent."""
