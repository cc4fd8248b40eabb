"""What a plan takes for granted when nobody says otherwise; every value is shown in the plan and can be overridden."""

from __future__ import annotations

from dataclasses import dataclass

GRACE_SECONDS = 15.0
"""GKE's default: 30 s for the node, the second half for system pods."""

LONG_GRACE_SECONDS = 105.0
"""With the pool's shutdown grace period at 120 s and 15 s of it for critical pods."""

LONG_GRACE_VERSION = (1, 35, 0, 1171000)
"""First control plane that allows the 120 s setting."""


@dataclass(frozen=True, slots=True)
class Assumptions:
    """Speeds, queues and transfer prices."""

    cold_start_seconds: float = 360.0
    """Node, image and process start: 0.1 h as in the published replays."""

    snapshot_bytes_per_second: float = 10e9
    """Device to host memory per node; a pinned copy on one H200 was measured at 55 GB/s, so this is careful."""

    upload_bytes_per_second: float = 1e9
    """Node to bucket. Assumed, not measured: give your own figure."""

    flex_wait_median_seconds: float = 3600.0
    flex_wait_sigma: float = 1.2
    """Queue times are not published. Assumed: half are below an hour per node, one in twenty above seven."""

    egress_usd_per_gib_continent: float = 0.02
    egress_usd_per_gib_world: float = 0.08
    """Transfer between regions. Assumed from memory of list prices: check your own contract."""

    windows: int = 2500
    """Replays of each capacity class."""

    most_ticks: int = 600
    """The horizon is cut into at most this many ticks."""

    seed: int = 0
    confidence: float = 0.95
    """Share of replays that must keep the deadline."""
