"""How much each suite must inject per tier; chosen by ``HOLDFAST_TIER`` (pr, night, release)."""

from __future__ import annotations

import os
import random

from faults.counts import record

GOALS: dict[str, dict[str, int]] = {
    "A": {"pr": 100_000, "night": 5_000_000, "release": 50_000_000},
    "B": {"pr": 300, "night": 10_000, "release": 100_000},
    "C": {"pr": 300, "night": 3_000, "release": 20_000},
    "D": {"pr": 1_000, "night": 10_000, "release": 100_000},
    "G": {"pr": 200, "night": 2_000, "release": 20_000},
    "H": {"pr": 20_000, "night": 500_000, "release": 5_000_000},
    "I": {"pr": 500, "night": 50_000, "release": 1_000_000},
    "K": {"pr": 8 * 30, "night": 8 * 300, "release": 8 * 2_400},  # seconds of fuzzing over eight targets
    "L": {"pr": 300, "night": 300, "release": 500},
    "N": {"pr": 200, "night": 200, "release": 200},
    "P": {"pr": 10, "night": 25, "release": 25},
    "G-simulated": {"pr": 100_000, "night": 1_000_000, "release": 100_000_000},
}


class Lost(AssertionError):
    """Something acknowledged is gone, something unfinished is visible, or two things were mixed."""


def tier() -> str:
    """The tier of this run."""
    name = os.environ.get("HOLDFAST_TIER", "pr")
    if name not in ("pr", "night", "release"):
        raise ValueError(f"HOLDFAST_TIER is {name!r}; use pr, night or release")
    return name


def goal(suite: str) -> int:
    """How many faults this run must inject."""
    return GOALS[suite][tier()]


def seed_for(suite: str) -> int:
    """The seed of this run, printed; ``HOLDFAST_SEED`` replays one."""
    given = os.environ.get("HOLDFAST_SEED")
    seed = int(given) if given else random.SystemRandom().getrandbits(32)
    print(f"suite {suite}: seed {seed} (replay with HOLDFAST_SEED={seed})")
    return seed


def account(suite: str, injected: int, **more: int) -> None:
    """Write down what a suite did; a run below its goal is void."""
    record(suite, injected=injected, **more)
    if injected < goal(suite):
        raise AssertionError(f"void run: suite {suite} injected {injected}, its goal is {goal(suite)}")
