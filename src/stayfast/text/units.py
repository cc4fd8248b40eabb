"""Durations, sizes and Kubernetes quantities (``500m``, ``80Gi``, ``"2"``): from text to numbers, and for people."""

from __future__ import annotations

import re
from typing import Any

_PATTERN = re.compile(r"([+-]?[0-9]*\.?[0-9]+)(?:[eE]([+-]?[0-9]{1,3}))?(m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei|n|u)?\Z")
_SUFFIXES = {"": 1.0, "n": 1e-9, "u": 1e-6, "m": 1e-3, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15, "E": 1e18}
_SUFFIXES |= {suffix + "i": 1024.0**power for power, suffix in enumerate("KMGTPE", start=1)}

_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
_BYTES = {"B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
_BYTES |= {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}


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


def parse_duration(text: str) -> float:
    """``90m`` as seconds."""
    match = re.fullmatch(r"([0-9.]+)\s*([smhd])", text)
    if match is None:
        raise ValueError(text)
    return float(match[1]) * _UNITS[match[2]]


def parse_size(text: str) -> int:
    """``14GB`` as bytes."""
    match = re.fullmatch(r"([0-9.]+)\s*([A-Za-z]+)", text)
    if match is None:
        raise ValueError(text)
    return round(float(match[1]) * _BYTES[match[2]])


def hours_or_minutes(seconds: float) -> str:
    """``45 min`` or ``2.5 h``."""
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def age(seconds: float | None) -> str:
    """One number with the unit that suits it: ``50 s``, ``3 h``, ``4 d``; a question mark where nothing is known."""
    if seconds is None:
        return "?"
    for limit, length, unit in ((120, 1, "s"), (7200, 60, "min"), (172_800, 3600, "h")):
        if seconds < limit:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds / 86_400:.0f} d"


def size(count: float) -> str:
    """``1.5 GB``, in powers of a thousand."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"
