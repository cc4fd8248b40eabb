"""What kind of machine time, and how its machines are handed out."""

from __future__ import annotations

import enum


class CapacityClass(enum.StrEnum):
    """What kind of machine time."""

    SPOT = "spot"
    FLEX_START = "flex-start"
    ON_DEMAND = "on-demand"
    HYBRID = "hybrid"


class Provisioning(enum.StrEnum):
    """How the machines of a run are handed out; GKE calls the second one queued."""

    SINGLE = "single"
    ALL_OR_NONE = "all-or-none"
