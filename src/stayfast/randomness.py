"""Random numbers for stayfast itself; the program's generators are never drawn from.

A seeded program gets the same numbers with stayfast and without. So jitter and ids come from the operating system, and
libraries that draw their jitter from the global ``random`` while they work for us get another generator in its place.
"""

from __future__ import annotations

import random
import sys
from types import BuiltinMethodType, MethodType
from typing import Any


class _Own(random.SystemRandom):
    """Can stand where a library expects the module ``random``: the module's other names are here, too."""

    def __getattr__(self, name: str) -> Any:
        return getattr(random, name)


own = _Own()
"""Draws from the operating system: it has no state that a fork could copy or a seed could set."""


def keep_apart(*packages: str) -> None:
    """Let the imported modules of these packages draw from ``own`` instead of the program's global generator."""
    shared = random.shuffle.__self__  # type: ignore[attr-defined]
    for name, module in list(sys.modules.items()):
        if any(name == package or name.startswith(f"{package}.") for package in packages):
            for attribute, value in list(vars(module).items()):
                if value is random:
                    setattr(module, attribute, own)
                elif isinstance(value, (BuiltinMethodType, MethodType)) and value.__self__ is shared:
                    setattr(module, attribute, getattr(own, value.__name__))
