"""Who tests the tests: every planted bug must be found by its suite, in time. The table goes to stdout and to JSON."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator

import pytest

from faults import attempts_sim, crash_states, damage, planted, power_cuts, powercut, syscall_faults
from faults.counts import counts_file
from faults.kill_service import serve
from faults.tiers import Lost, account, seed_for

pytestmark = pytest.mark.faults
LIMIT_SECONDS = {"A": 30.0, "B": 30.0, "C": 45.0, "D": 45.0, "G": 30.0, "damage": 20.0}
MANY = 10**9
found: dict[str, dict[str, object]] = {}


@pytest.fixture(scope="module", autouse=True)
def table() -> Iterator[None]:
    """Print and keep what was found by whom, how fast."""
    yield
    print(f"\n{'planted bug':34} suite  seconds  by")
    for bug, row in found.items():
        print(f"{bug:34} {row['suite']:6} {row['seconds']:7}  {str(row['by'])[:90]}")
    path = counts_file().with_name("planted.json")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(found, indent=1) + "\n")


def hunt(bug: str, seed: int) -> str:
    """Run the bug's suite on it; what the suite said, or nothing."""
    suite = planted.BUGS[bug]
    limit = LIMIT_SECONDS[suite]
    try:
        match suite:
            case "A":
                crash_states.run(seed, MANY, bug, limit)
            case "B":
                if reason := powercut.why_not():
                    pytest.skip(reason)
                powercut.in_private_mounts(power_cuts.run, seed, MANY, bug, limit)
            case "C":
                if reason := syscall_faults.why_not():
                    pytest.skip(reason)
                syscall_faults.run(seed, MANY, bug, limit)
            case "D":
                return str(serve(seed, MANY, bug, limit).get("lost", ""))
            case "G":
                attempts_sim.run(seed, MANY, bug, limit)
            case "damage":
                damage.run(seed, MANY, bug, limit)
    except Lost as error:
        return str(error)
    except AssertionError as error:
        if "Lost:" in str(error):
            return str(error).splitlines()[0]
        raise
    return ""


@pytest.mark.parametrize("bug", planted.BUGS)
def test_the_suite_finds(bug: str) -> None:
    started = time.monotonic()
    said = hunt(bug, seed_for(f"planted {bug}"))
    assert said, f"{bug!r} was not found by suite {planted.BUGS[bug]} in {LIMIT_SECONDS[planted.BUGS[bug]]:g} s"
    seconds = round(time.monotonic() - started, 2)
    found[bug] = {"suite": planted.BUGS[bug], "seconds": seconds, "by": said}


def test_without_a_bug_nothing_is_found() -> None:
    seed = seed_for("no bug")
    damage.run(seed, 200)
    attempts_sim.run(seed, 500)
    crash_states.run(seed, 2000)


def test_enough_bugs_were_found() -> None:
    account("P", len(found))
