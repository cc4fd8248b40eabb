"""Kubernetes quantities (``500m``, ``80Gi``, ``"2"``) as plain numbers, and durations for people."""

from __future__ import annotations

import re
from typing import Any

_PATTERN = re.compile(r"([+-]?[0-9]*\.?[0-9]+)(?:[eE]([+-]?[0-9]{1,3}))?(m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei|n|u)?\Z")
_SUFFIXES = {"": 1.0, "n": 1e-9, "u": 1e-6, "m": 1e-3, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15, "E": 1e18}
_SUFFIXES |= {suffix + "i": 1024.0**power for power, suffix in enumerate("KMGTPE", start=1)}


def quantity(value: Any) -> float | None:
    """The number, or ``None`` where there is none (absent, or a placeholder)."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        return float(value)
    if not isinstance(value, str) or len(value) > 64:
        return None
    match = _PATTERN.match(value.strip())
    if match is None:
        return None
    amount, exponent, suffix = match.groups()
    return float(amount) * 10.0 ** int(exponent or 0) * _SUFFIXES[suffix or ""]


def duration(seconds: float) -> str:
    """``2 h 10 min`` for a person."""
    seconds = max(0.0, seconds)
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} min"
    if seconds < 172_800:
        return f"{int(seconds // 3600)} h {int(seconds % 3600 // 60)} min"
    return f"{int(seconds // 86_400)} d {int(seconds % 86_400 // 3600)} h"
