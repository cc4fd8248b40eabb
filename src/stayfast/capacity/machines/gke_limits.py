"""What GKE can do from which version on, how long it waits, and how long it lends a machine."""

from __future__ import annotations

import re
from typing import NamedTuple


class GkeVersion(NamedTuple):
    """A version of the control plane; versions compare as their numbers do."""

    major: int
    minor: int
    patch: int = 0
    build: int = 0
    """What follows ``-gke.``; 0 where the version does not say."""

    @classmethod
    def parse(cls, text: str) -> GkeVersion | None:
        """``v1.35.1-gke.1171000``, with or without the ``v``, the patch and the build; ``None`` for other text."""
        match = re.match(r"v?(\d+)\.(\d+)(?:\.(\d+))?(?:.*?-gke\.(\d+))?", text)
        return None if match is None else cls(*(int(part or 0) for part in match.groups()))


FLEX_START_GPU_VERSION = GkeVersion(1, 32, 2, 1652000)
FLEX_START_TPU_VERSION = GkeVersion(1, 33, 0, 1712000)
LONG_GRACE_VERSION = GkeVersion(1, 35, 0, 1171000)
"""First control plane that allows 120 s for the shutdown of a Spot node."""
FAILURE_POLICY_VERSION = GkeVersion(1, 31)
"""podFailurePolicy is stable from here on."""

SPOT_GRACE_SECONDS = 15
"""What a pod on Spot gets by default: 30 s for the node, the second half for system pods."""
LONG_SPOT_GRACE_SECONDS = 105
"""With the pool's shutdown grace period at 120 s and 15 s of it for critical pods."""
CRITICAL_SECONDS = 15
"""The share of a Spot node's shutdown that GKE keeps for system pods."""

SHORTEST_RUN_SECONDS, LONGEST_RUN_SECONDS = 600, 604_800
"""How long GKE lends a flex-start machine: ten minutes to seven days."""
SHORTEST_LEASE_SECONDS = 3600
"""The shortest that we ask for: below an hour, starting up would be most of it."""


def allows_long_grace(version: str | None) -> bool:
    """Whether this control plane knows the 120 s setting; unknown counts as no."""
    found = GkeVersion.parse(version or "")
    return found is not None and found >= LONG_GRACE_VERSION
