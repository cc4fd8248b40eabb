"""What can be chosen about a run, in one value."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.runtime.environment import Settings


@dataclass(frozen=True, slots=True)
class RunOptions:
    """Options of ``holdfast.run``; the defaults are what most programs want."""

    chain: bool = False
    """Call the signal handlers that were there before, after the drain."""
    settings: Settings | None = None
    """The environment, already parsed; read from ``os.environ`` when absent."""
