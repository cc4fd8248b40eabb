"""Policies by the names that people type."""

from __future__ import annotations

from collections.abc import Callable

from stayfast.capacity.policies.adaptive import AdaptivePolicy, Stayfast
from stayfast.capacity.policies.baselines import (
    BatchPolicy,
    flex_start,
    greedy,
    hybrid,
    on_demand,
    spot_only,
    uniform_progress,
)
from stayfast.capacity.policies.plain_policies import FlexStart, Greedy, Hybrid, OnDemand, SpotOnly, UniformProgress
from stayfast.capacity.policies.values import Policy
from stayfast.errors import SettingError
from stayfast.text.suggest import write_or_choose

OPTIMUM = "optimum"
"""Not a policy: it knows the future."""

POLICIES: dict[str, Callable[[], Policy]] = {
    "on-demand": OnDemand,
    "spot-only": SpotOnly,
    "greedy": Greedy,
    "uniform-progress": UniformProgress,
    "flex-start": FlexStart,
    "hybrid": Hybrid,
    "stayfast": Stayfast,
}

BATCH_POLICIES: dict[str, BatchPolicy] = {
    "on-demand": on_demand,
    "spot-only": spot_only,
    "greedy": greedy,
    "uniform-progress": uniform_progress,
    "flex-start": flex_start,
    "hybrid": hybrid,
    "stayfast": AdaptivePolicy(),
}

NAMES = (OPTIMUM, *POLICIES)
NEEDS_FLEX_PRICE = ("flex-start",)


def check_name(name: str) -> str:
    """The name itself if it is one."""
    if name not in NAMES:
        raise SettingError(f"there is no policy {name!r}", help=write_or_choose(name, NAMES))
    return name
