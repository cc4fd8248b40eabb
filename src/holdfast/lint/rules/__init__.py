"""The rules, one module per pitfall; importing this package fills the table in ``holdfast.lint.rule``."""

from holdfast.lint.rules import (
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
