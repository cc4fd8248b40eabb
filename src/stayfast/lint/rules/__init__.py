"""The rules, one module per pitfall; importing this package fills the table in ``stayfast.lint.rule``."""

from stayfast.lint.rules import (
    budgets,
    claims,
    infrastructure,
    kueue,
    leftovers,
    loss,
    queueing,
    retries,
    selection,
    shapes,
    storage,
    validity,
)

__all__ = [
    "budgets",
    "claims",
    "infrastructure",
    "kueue",
    "leftovers",
    "loss",
    "queueing",
    "retries",
    "selection",
    "shapes",
    "storage",
    "validity",
]
