"""Where two runs that should be the same part: the first step whose fingerprint differs, and in what."""

from __future__ import annotations

import json
from collections.abc import Mapping

Steps = Mapping[tuple[int, int], Mapping[str, str]]
"""Digests by step and rank."""

RNG = "~rng"


def read_steps(path: str) -> Steps:
    """What the attempts of a trial have left; a step that ran again counts as it was at last."""
    steps: dict[tuple[int, int], dict[str, str]] = {}
    try:
        with open(path, encoding="utf-8") as file:
            for line in file:
                try:
                    row = json.loads(line)
                    steps[int(row["step"]), int(row["rank"])] = dict(row["parts"])
                except (ValueError, KeyError, TypeError):
                    continue  # killed while writing it
    except OSError:
        pass
    return steps


def first_divergence(baseline: Steps, found: Steps) -> str:
    """Such as ``differs first at step 1312: loader position, rank 1``; empty when nothing is known to differ."""
    common = sorted(baseline.keys() & found.keys())
    # What differs from the very start differs without our help: a generator that nobody seeded.
    unstable = {name for place in common[:1] for name in _differing(baseline[place], found[place])}
    for step, rank in common:
        names = _differing(baseline[step, rank], found[step, rank]) - unstable
        if names:
            told = ", ".join(_spoken(name) for name in sorted(names, key=_by_cause))
            return f"differs first at step {step}: {told}, rank {rank}"
    missing = sorted(baseline.keys() - found.keys())
    return f"step {missing[0][0]} was never run by rank {missing[0][1]}" if missing and found else ""


def _differing(want: Mapping[str, str], got: Mapping[str, str]) -> set[str]:
    return {name for name in want.keys() | got.keys() if want.get(name) != got.get(name)}


def _by_cause(name: str) -> tuple[int, str]:
    """What data came, then which numbers were drawn, then what they did to the state."""
    return (0 if _is_position(name) else 1 if name == RNG else 2), name


def _is_position(name: str) -> bool:
    return any(word in name.lower() for word in ("loader", "sampler", "sample", "data", "shuffle", "position"))


def _spoken(name: str) -> str:
    if name == RNG:
        return "random numbers"
    return f"{name} position" if "loader" in name.lower() or "sampler" in name.lower() else name
