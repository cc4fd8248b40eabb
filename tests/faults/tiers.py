"""How much each suite must inject per tier, and the share of it that this run has to do.

``STAYFAST_TIER`` is pr, night or release. ``STAYFAST_SHARD=3/16`` makes this run the fourth of sixteen equal parts,
with a seed of its own; ``STAYFAST_SEED`` replays one. A run below its share is void, and fails.
"""

from __future__ import annotations

import os
import random
import time

from faults.counts import add_seed, read, record

GOALS: dict[str, dict[str, int]] = {
    "A": {"pr": 100_000, "night": 5_000_000, "release": 50_000_000},
    "B": {"pr": 300, "night": 10_000, "release": 100_000},
    "C": {"pr": 300, "night": 3_000, "release": 20_000},
    "D": {"pr": 1_000, "night": 10_000, "release": 100_000},
    "E": {"pr": 500, "night": 5_000, "release": 20_000},
    "F": {"pr": 5_000, "night": 1_000_000, "release": 20_000_000},
    "G": {"pr": 200, "night": 2_000, "release": 20_000},
    "G-simulated": {"pr": 100_000, "night": 1_000_000, "release": 100_000_000},
    "H": {"pr": 20_000, "night": 500_000, "release": 5_000_000},
    "I": {"pr": 500, "night": 50_000, "release": 1_000_000},
    "J": {"pr": 20_000, "night": 500_000, "release": 8_400_000},
    "K": {"pr": 240, "night": 2_400, "release": 19_200},
    "L": {"pr": 300, "night": 300, "release": 500},
    "M": {"pr": 5, "night": 100, "release": 1_000},
    "N": {"pr": 200, "night": 200, "release": 200},
    "O": {"pr": 29, "night": 29, "release": 29},
    "P": {"pr": 10, "night": 40, "release": 40},
}
"""H counts for each machine by itself; K is in seconds of fuzzing, over all its targets; O is every right there is."""

WHAT: dict[str, str] = {
    "A": "crash states of a save, recovered from",
    "B": "real power cuts on ext4",
    "C": "single system calls that fail, stop short or are the last",
    "D": "SIGKILLs of real trainers and workers",
    "E": "programs signalled twice in a storm of log lines",
    "F": "lost requests, lost answers and other faults of a store",
    "G": "attempts stopped, overtaken and woken",
    "G-simulated": "simulated schedules of overlapping attempts",
    "H": "rule calls of each state machine",
    "I": "simulator seeds, faults first, then none",
    "J": "damaged bytes in stored checkpoints",
    "K": "seconds of fuzzing",
    "L": "bad inputs, each with its one sentence",
    "M": "servers stopped or cut off under load",
    "N": "requests to the dashboard",
    "O": "rights, each taken away once",
    "P": "planted bugs found",
}

_started: dict[str, tuple[float, float]] = {}
_at_first = dict(os.environ)  # some tests clear our variables for the product's sake; these are the run's


class Lost(AssertionError):
    """Something acknowledged is gone, something unfinished is visible, or two things were mixed."""


def tier() -> str:
    """The tier of this run."""
    name = _variable("STAYFAST_TIER", "pr")
    if name not in ("pr", "night", "release"):
        raise ValueError(f"STAYFAST_TIER is {name!r}; use pr, night or release")
    return name


def shard() -> tuple[int, int]:
    """Which part of how many this run is; (0, 1) when it is the whole."""
    given = _variable("STAYFAST_SHARD", "0/1")
    number, _, parts = given.partition("/")
    if not (number.isdecimal() and parts.isdecimal() and int(number) < int(parts)):
        raise ValueError(f"STAYFAST_SHARD is {given!r}; the first of four is 0/4, the last 3/4")
    return int(number), int(parts)


def goal(suite: str) -> int:
    """How much this run must inject: its share of the tier's goal."""
    _begin(suite)
    return -(-GOALS[suite][tier()] // shard()[1])


def seed_for(suite: str, *, always: int | None = None) -> int:
    """The seed of this run, printed and kept with the counts; ``STAYFAST_SEED`` replays one.

    ``always`` is for suites that would otherwise find something new in a change that is not to blame for it.
    """
    _begin(suite)
    given = _variable("STAYFAST_SEED", "")
    seed = int(given) if given else random.SystemRandom().getrandbits(32) if always is None else always
    print(f"suite {suite}: seed {seed} (replay with STAYFAST_SEED={seed})")
    add_seed(suite, seed)
    return seed


def account(suite: str, injected: int, *, part: str = "", **more: int) -> None:
    """Write down what a suite did; a run below its goal is void. ``part`` names one of several that count each."""
    began, cpu = _started.pop(suite, (time.monotonic(), _cpu_seconds()))
    spent = {
        "milliseconds": int(1000 * (time.monotonic() - began)),
        "cpu_milliseconds": int(1000 * (_cpu_seconds() - cpu)),
    }
    record(f"{suite} {part}".strip(), injected=injected, **more, **spent)
    if injected < goal(suite):
        raise AssertionError(f"void run: suite {suite} injected {injected}, its goal is {goal(suite)}")
    _started.pop(suite, None)


def conclude(suite: str) -> None:
    """For suites whose count comes from many tests, each of which has recorded ``injected``: the last one asks."""
    found = read().get("suites", {}).get(suite, {}).get("injected", 0)
    if found < goal(suite):
        raise AssertionError(f"void run: the tests of suite {suite} injected {found}, its goal is {goal(suite)}")


def _variable(name: str, otherwise: str) -> str:
    return os.environ.get(name) or _at_first.get(name) or otherwise


def _begin(suite: str) -> None:
    _started.setdefault(suite, (time.monotonic(), _cpu_seconds()))


def _cpu_seconds() -> float:
    """Of this process and of all children it has waited for."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system
