"""What can be chosen about a run, in one value."""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from stayfast.errors import UsageError
from stayfast.settings import Settings

if TYPE_CHECKING:
    from stayfast.runtime.checkpoint.policies import Cadence, Retention


@dataclass(frozen=True, slots=True)
class RunOptions:
    """Options of ``stayfast.run``; the defaults are what most programs want."""

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


def parse_total_steps(total: Any) -> int | None:
    """A number of steps as it may be written: 100_000, 1e5, a NumPy integer, or None for no end."""
    if total is None:
        return None
    try:
        steps = int(total) if isinstance(total, float) and total.is_integer() else operator.index(total)
    except TypeError:
        raise UsageError(
            f"total_steps={total!r} is not a whole number", help="give the number of steps, or None for no end"
        ) from None
    if steps < 0:
        raise UsageError(f"total_steps={steps} is negative", help="give the number of steps, or None for no end")
    return steps
