"""The rules, one module per pitfall: each module of this folder, and what installed packages add.

May import: what lint may import, but not the engine.
Start reading: ``termination.py``.
"""

from __future__ import annotations

import functools
from pkgutil import iter_modules
from types import ModuleType

from stayfast.lint.rule import RULES, Rule
from stayfast.registry import Registry

RULE_MODULES: Registry[ModuleType] = Registry(
    "stayfast.lint_rules", {module.name: f"{__name__}.{module.name}" for module in iter_modules(__path__)}
)


@functools.cache
def load_rules() -> tuple[Rule, ...]:
    """Every rule; importing a module enters its rules into the table."""
    RULE_MODULES.parts()
    return tuple(RULES)


def names() -> dict[str, str]:
    """Code -> name of every rule, in order."""
    return {known.code: known.name for known in sorted(load_rules(), key=lambda entry: entry.code)}
