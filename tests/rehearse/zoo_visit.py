"""A visit to the zoo: rehearse one of its programs and insist on the exact verdict."""

from __future__ import annotations

import os
from collections.abc import Iterable

import pytest
from zoo import PROGRAMS, Animal

from stayfast.proof.rehearse.rehearsal import RehearsalOptions, rehearse

FEW_SEEDS = 2
SEEDS = [int(os.environ.get("STAYFAST_SEED", "0")) + number for number in range(int(os.environ.get("ZOO_SEEDS", "2")))]


def visits(animals: Iterable[Animal]) -> list[object]:
    """Every animal with every seed; a rare one with the first alone, unless there are many."""
    return [
        pytest.param(animal, seed, id=f"{animal.title}-{seed}")
        for animal in animals
        for seed in (SEEDS[:1] if animal.rare and len(SEEDS) <= FEW_SEEDS else SEEDS)
    ]


def visit(animal: Animal, seed: int) -> None:
    """With the default number of kills and trials."""
    if not animal.can_run:
        pytest.skip(f"no {animal.needs} here")
    result = rehearse(
        RehearsalOptions(
            command=animal.command,
            comparison=animal.comparison,
            kinds=animal.kinds,
            seed=seed,
            grace_seconds=animal.grace_seconds,
            ephemeral=animal.ephemeral,
            disk_limit_bytes=animal.disk_limit_bytes,
            parallel=5,
            directory=str(PROGRAMS),
        )
    )
    found = {reason.code for reason in result.reasons}
    assert found == animal.codes, [(reason.code, reason.detail, reason.kills) for reason in result.reasons]
    assert sum(len(trial.delivered) for trial in result.trials) >= len(result.trials)
    for reason in result.reasons:
        assert reason.kills
        assert reason.detail
