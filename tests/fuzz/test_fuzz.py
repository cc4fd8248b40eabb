"""Suite K: eight targets, so many seconds each; only declared errors, at most 1 s and 200 MB for one input.

CI and ``make faults`` run the seconds of the tier; without ``STAYFAST_TIER``, as in ``make test``, it is a second each.
Every change is judged by the same mutations, in their order; the night looks for others.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from faults.counts import record
from faults.tiers import account, goal, seed_for, tier
from fuzz.fuzzing import FINDS, check, fuzz, keep
from fuzz.targets import TARGETS, Target

SMOKE_SECONDS = 1.0
IS_SMOKE = "STAYFAST_TIER" not in os.environ
SECONDS = SMOKE_SECONDS if IS_SMOKE else goal("K") / len(TARGETS)
spent: list[float] = []
by_name = [pytest.param(target, id=target.name) for target in TARGETS]


@pytest.mark.faults
@pytest.mark.timeout(SECONDS + 300)
@pytest.mark.parametrize("target", by_name)
def test_only_declared_errors(target: Target) -> None:
    seed = seed_for("K", always=20_261_116 if tier() == "pr" else None)
    outcome = fuzz(target, SECONDS, seed)
    spent.append(SECONDS)
    record("K", inputs=outcome.inputs, answers=outcome.kept)
    if outcome.found is not None:
        path = keep(target, outcome.found)
        pytest.fail(f"seed {seed}, input kept in {path}: {outcome.found.why}", pytrace=False)
    assert outcome.inputs > 10
    assert outcome.kept > 2, "all inputs got the same answer: the corpus does not reach the code"


@pytest.mark.faults
def test_as_long_as_the_tier_asks_for() -> None:
    if IS_SMOKE:
        record("K-smoke", injected=round(sum(spent)))
    else:
        account("K", injected=round(sum(spent)))


@pytest.mark.parametrize("target", by_name)
def test_good_inputs_are_fine(target: Target) -> None:
    for data in target.corpus():
        assert check(target, data)[1] == ""


FOUND = sorted(path for path in FINDS.rglob("*.bin"))


@pytest.mark.parametrize("path", [pytest.param(path, id=f"{path.parent.name}-{path.stem}") for path in FOUND])
def test_what_was_found_once_stays_mended(path: Path) -> None:
    target = next(target for target in TARGETS if target.name == path.parent.name)
    assert check(target, path.read_bytes())[1] == ""


def test_the_fuzzer_finds_what_is_broken() -> None:
    """The canary: a crash, a hang, a glutton and a dead process are each found, with the input that did it."""

    def crash(data: bytes) -> object:
        return data.decode("utf-8")

    def hang(data: bytes) -> object:
        while b"\xff" in data:
            pass
        return data

    def glutton(data: bytes) -> object:
        return b"\xff" in data and len(bytearray(400 << 20))

    def dies(data: bytes) -> object:
        if b"\xff" in data:
            os.kill(os.getpid(), 9)
        return data

    for read, why in ((crash, "UnicodeDecodeError"), (hang, "longer than"), (glutton, "200 MB"), (dies, "signal 9")):
        outcome = fuzz(Target("canary", read, lambda: [b"hello"]), 20.0, 1)
        assert outcome.found is not None, why
        assert why in outcome.found.why
        assert outcome.found.data
