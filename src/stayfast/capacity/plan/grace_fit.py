"""Does the state fit the grace window, and what to do if it does not."""

from __future__ import annotations

from dataclasses import dataclass

from stayfast.capacity.machines.gke_limits import LONG_SPOT_GRACE_SECONDS, SPOT_GRACE_SECONDS, allows_long_grace
from stayfast.capacity.plan.assumptions import Assumptions
from stayfast.capacity.spec.workload import WorkloadSpec

MARGIN_SECONDS = 2.0
"""Before the deadline: signal to step boundary, and the commit itself."""


@dataclass(frozen=True, slots=True)
class GraceCheck:
    """The window, the need, and advice."""

    window_seconds: float
    needed_seconds: float
    snapshot_seconds: float
    persist_seconds: float
    advice: tuple[str, ...] = ()

    @property
    def fits(self) -> bool:
        return self.needed_seconds <= self.window_seconds


def check_grace(spec: WorkloadSpec, assumptions: Assumptions) -> GraceCheck:
    """Each node saves its share of the state: first to memory, then to the bucket."""
    share = (spec.state_bytes or 0) / spec.nodes
    snapshot = share / assumptions.snapshot_bytes_per_second
    persist = share / assumptions.upload_bytes_per_second
    needed = snapshot + persist + MARGIN_SECONDS
    measured = assumptions.measured.last_save_seconds if assumptions.measured else None
    needed = max(needed, measured or 0.0)  # the state of a rehearsal may be smaller, its other steps are real
    advice: list[str] = []
    if needed > SPOT_GRACE_SECONDS:
        if needed <= LONG_SPOT_GRACE_SECONDS and allows_long_grace(spec.cluster_version):
            advice.append(
                "set the Spot pool's shutdown grace period to 120 s (15 s for critical pods): pods then get 105 s"
            )
        elif needed <= LONG_SPOT_GRACE_SECONDS:
            advice.append("a control plane from 1.35.0-gke.1171000 allows 120 s of shutdown grace; yours may not")
        room = int(SPOT_GRACE_SECONDS - MARGIN_SECONDS)
        nodes = max(2, -(-int(share / assumptions.upload_bytes_per_second + 1) // room))
        advice.append(f"shard the state: saved by {nodes * spec.nodes} nodes at once, each part would fit")
        advice.append("stage snapshots: copy in the background all the time, so that a notice only has to commit")
        advice.append("or take flex-start, whose end is known days ahead")
    return GraceCheck(float(SPOT_GRACE_SECONDS), needed, snapshot, persist, tuple(advice))
