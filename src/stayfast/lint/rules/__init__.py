"""The rules, one module per pitfall; importing this package fills the table in ``stayfast.lint.rule``."""

from stayfast.lint.rules import (
    capacity_selection,
    checkpoint_storage,
    claims,
    control_plane,
    disruption_budgets,
    kueue,
    machine_shapes,
    pod_hygiene,
    provisioning,
    retries,
    termination,
    validity,
)

__all__ = [
    "capacity_selection",
    "checkpoint_storage",
    "claims",
    "control_plane",
    "disruption_budgets",
    "kueue",
    "machine_shapes",
    "pod_hygiene",
    "provisioning",
    "retries",
    "termination",
    "validity",
]
