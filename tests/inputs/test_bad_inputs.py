"""Suite L: bad inputs and situations, each with its one sentence; the table is in ``tests/inputs/cases``."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from faults.tiers import account
from inputs.bad_inputs import Answer, Case, answer, build, complaints, look
from inputs.cases import clusters, figures, machine, queues, runs, spec

CASES: list[Case] = [
    case for part in (spec, queues, figures, runs, clusters, machine) for case in part.CASES
]  # fmt: skip
tried: set[str] = set()


@pytest.mark.faults
@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_bad_input(case: Case, tmp_path: Path) -> None:
    if case.root_only and os.geteuid() != 0:
        pytest.skip("needs a mount namespace or another user: run as root")
    tried.add(case.name)
    world = tmp_path / "w"
    world.mkdir()
    build(case, world)
    before = look(world)
    given = answer(case, world)
    wrong = complaints(case, given, before, look(world))
    assert not wrong, f"{wrong}\ncode {given.code}\nstderr: {given.err[:3000]}\nstdout: {given.out[:1000]}"


@pytest.mark.faults
def test_as_many_as_the_tier_asks_for() -> None:
    if os.geteuid() != 0:
        pytest.skip("the cases that need root were left out")
    account("L", injected=len(tried))


def test_every_case_has_its_own_name() -> None:
    names = [case.name for case in CASES]
    assert len(names) == len(set(names)), sorted(name for name in names if names.count(name) > 1)


GOOD = Answer(2, "", "stayfast: x.yaml:3:1: wrong; do this\n")
CASE = Case("c", ("plan",), "x.yaml:3:1")


@pytest.mark.parametrize(
    ("given", "changed", "complaint"),
    [
        (GOOD, False, None),
        (Answer(1, "", GOOD.err), False, "left with 1"),
        (Answer(2, "", "Traceback (most recent call last):\nstayfast: x.yaml:3:1; a"), False, "a traceback"),
        (Answer(2, "", "stayfast: something else; do this\n"), False, "does not say"),
        (Answer(2, "", "stayfast: x.yaml:3:1: wrong\n"), False, "does not say what to do"),
        (Answer(2, "", GOOD.err + "more\n"), False, "2 lines"),
        (Answer(2, "{}", GOOD.err), False, "something on stdout"),
        (Answer(2, "", GOOD.err.replace("wrong", "\x1b[2J")), False, "control characters"),
        (Answer(2, "", "x.yaml:3:1: wrong; do this\n"), False, "does not begin"),
        (Answer(2, "", GOOD.err.replace("wrong", "w" * 3000)), False, "longer than"),
        (GOOD, True, "touched ['x.yaml']"),
    ],
)
def test_the_judge_can_say_no(given: Answer, changed: bool, complaint: str | None) -> None:
    found = complaints(CASE, given, {"x.yaml": "a"}, {"x.yaml": "b" if changed else "a"})
    assert (complaint is None and not found) or (complaint is not None and any(complaint in item for item in found))
