"""Suite I: whole histories from seeds, on the product's own code; safety while everything fails, then liveness."""

from __future__ import annotations

import logging
import multiprocessing
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from faults.sim import bugs, command, world
from faults.tiers import Lost, account, goal, seed_for, shard, tier

pytestmark = pytest.mark.faults
TESTS = Path(__file__).resolve().parent.parent
KINDS = sorted(world.WORLDS)
WORKERS = 1 if shard()[1] > 1 else 2 if tier() == "pr" else len(os.sched_getaffinity(0))


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Thousands of warnings about simulated outages help nobody."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def test_safe_while_everything_fails_and_at_rest_when_it_stops() -> None:
    seed = seed_for("I")
    share = -(-goal("I") // WORKERS)
    with multiprocessing.get_context("fork").Pool(WORKERS) as pool:
        reports = pool.starmap(world.run, [(seed + number * share, share) for number in range(WORKERS)])
    faults: Counter[str] = sum((report.faults for report in reports), Counter())
    kinds: Counter[str] = sum((report.kinds for report in reports), Counter())
    print(dict(kinds), dict(faults))
    assert set(kinds) == set(KINDS)
    assert {"kill", "stop", "clock jump", "power cut", "answer lost", "late and twice", "stale list"} <= set(faults)
    ticks = sum(report.ticks for report in reports)
    account("I", sum(kinds.values()), faults=sum(faults.values()), ticks=ticks)


@pytest.mark.parametrize("kind", KINDS)
def test_a_seed_is_a_history(kind: str) -> None:
    assert world.play(11, kind=kind).fingerprint == world.play(11, kind=kind).fingerprint
    assert world.play(11, kind=kind).fingerprint != world.play(12, kind=kind).fingerprint


def test_a_seed_is_the_same_in_another_process() -> None:
    """The order of sets of strings differs from process to process; no history may depend on it."""
    script = (
        "import logging; logging.disable(50); from faults.sim import world;"
        f"print([world.play(7, kind=kind).fingerprint for kind in {KINDS}])"
    )
    said = set()
    for hash_seed in ("1", "2"):
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(TESTS), *sys.path]),
            "PYTHONHASHSEED": hash_seed,
        }
        run = subprocess.run(
            [sys.executable, "-c", script], env=environment, capture_output=True, text=True, timeout=120
        )
        assert run.returncode == 0, run.stderr
        said.add(run.stdout)
    assert len(said) == 1


@pytest.mark.parametrize("bug", ["remove-then-rename", "record before parts", "prune newest-by-name"])
def test_the_simulator_finds(bug: str) -> None:
    seeds, _, said = bugs.hunt(bug, seed_for("I"), 40)
    assert seeds, f"{bug!r} was not found in 40 seeds"
    print(f"{bug}: {seeds} seeds; {said}")


def test_a_failure_says_how_to_see_it_again() -> None:
    with bugs.BUGS["record before parts"]() as options:
        with pytest.raises(Lost, match=r"replay: python -m faults\.sim --seed \d+ --kind bucket") as found:
            world.run(0, 100, **options)
        number = int(str(found.value).partition("seed ")[2].partition(":")[0])
        skip = command.shrink(number, options)
        with pytest.raises(Lost):
            world.play(number, skip=skip, **options)


def test_the_command_prints_a_history(capsys: pytest.CaptureFixture[str]) -> None:
    command.main(["--seed", "3", "--kind", "disk"])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].endswith("seed 3: disk")
    assert lines[-1].startswith("fine: ")
    command.main(["--seed", "3", "--count", "2"])
    assert "seeds=2" in capsys.readouterr().out
