"""Each program of the zoo gets its exact verdict: no false alarm on the right ones, no miss on the wrong ones."""

from __future__ import annotations

import os

import pytest
from zoo import PROGRAMS, ZOO, Animal

from holdfast.rehearse.rehearsal import Options, Result, rehearse

SEEDS = range(int(os.environ.get("HOLDFAST_ZOO_SEEDS", "2")))
FIRST = int(os.environ.get("HOLDFAST_SEED", "0"))


def visit(animal: Animal, seed: int) -> Result:
    return rehearse(
        Options(
            command=animal.command,
            comparison=animal.comparison,
            kinds=animal.kinds,
            seed=seed,
            grace_seconds=animal.grace_seconds,
            ephemeral=animal.ephemeral,
            parallel=5,
            directory=str(PROGRAMS),
        )
    )


@pytest.mark.parametrize("seed", [FIRST + number for number in SEEDS])
@pytest.mark.parametrize("animal", ZOO, ids=lambda animal: animal.name)
def test_the_verdict_is_exact(animal: Animal, seed: int) -> None:
    if not animal.can_run:
        pytest.skip(f"no {animal.needs} here")
    result = visit(animal, seed)
    found = {reason.code for reason in result.reasons}
    assert found == animal.codes, [(reason.code, reason.detail, reason.kills) for reason in result.reasons]
    assert sum(len(trial.delivered) for trial in result.trials) >= len(result.trials)
    for reason in result.reasons:
        assert reason.kills
        assert reason.detail
