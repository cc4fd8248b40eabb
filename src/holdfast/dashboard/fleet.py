"""The seam for what the cluster layer knows: pods, nodes, and why something is pending."""

from __future__ import annotations

from typing import Any, Protocol


class Fleet(Protocol):
    """What the dashboard asks of a cluster; a call may block, and is made from a thread every few seconds."""

    def look(self) -> dict[str, Any]:
        """``{"name": str, "workloads": [{"name", "state", "reason", "since_seconds", "capacity", "zone"}]}``."""

    def close(self) -> None:
        """Give back connections."""
