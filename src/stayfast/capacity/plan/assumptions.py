"""What a plan takes for granted when nobody says otherwise; every value is shown in the plan and can be overridden."""

from __future__ import annotations

from dataclasses import dataclass

from stayfast.capacity.plan.measurements import RehearsalMeasurements


@dataclass(frozen=True, slots=True)
class Assumptions:
    """Speeds, queues and transfer prices."""

    cold_start_seconds: float = 360.0
    """Node, image and process start: 0.1 h, as the published replays of GCP traces take it. Yours may differ a lot."""

    snapshot_bytes_per_second: float = 10e9
    """Device to host memory per node; a pinned copy on one H200 was measured at 55 GB/s, so this is careful."""

    upload_bytes_per_second: float = 1e9
    """Node to bucket. Assumed, not measured: give your own figure."""

    flex_wait_median_seconds: float = 3600.0
    flex_wait_sigma: float = 1.2
    """Queue times are not published. Assumed for one node: half are below an hour, one in twenty above seven; for a
    gang the median grows with the square root of its nodes."""

    egress_usd_per_gib_near: float = 0.02
    """Between regions of North America, or of Europe. List price of SKU 8878-37D4-D2AC (within Northern America), as
    quoted in public in 2025; for Europe public guides of 2026 give the same."""

    egress_usd_per_gib_far: float = 0.08
    """Between continents, and inside Asia. Public guides of 2026 give 0.02 to 0.08 by pair; the dear end is taken."""

    egress_usd_per_gib_remote: float = 0.157
    """From or to Oceania, Africa, the Middle East and South America: what a reseller's public list asked for the first
    two in 2026, taken for the others too. Google's own table for these pairs was not read."""

    windows: int = 2500
    """Replays of each capacity class."""

    most_ticks: int = 600
    """The horizon is cut into at most this many ticks."""

    seed: int = 0
    confidence: float = 0.95
    """Share of replays that must keep the deadline."""

    measured: RehearsalMeasurements | None = None
    """What a rehearsal of the program has shown."""

    @property
    def start_seconds(self) -> float:
        """From a machine to the first useful second: with a rehearsal, the cold start is node and image alone."""
        restart = self.measured.restart_seconds if self.measured else None
        return self.cold_start_seconds + (restart or 0.0)
