"""No miss: each wrong program of the zoo gets its own code, and no other, whatever the seed."""

from __future__ import annotations

import pytest
from zoo import ZOO, Animal
from zoo_visit import visit, visits

WRONG = [animal for animal in ZOO if animal.codes]


def test_every_code_has_its_animal() -> None:
    from stayfast.proof.rehearse.verdict import CODES

    assert {code for animal in WRONG for code in animal.codes} == CODES.keys()


@pytest.mark.parametrize(("animal", "seed"), visits(WRONG))
def test_it_gets_its_verdict(animal: Animal, seed: int) -> None:
    visit(animal, seed)
