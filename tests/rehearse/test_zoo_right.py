"""No false alarm: the right programs of the zoo survive whatever the seed."""

from __future__ import annotations

import pytest
from zoo import ZOO, Animal
from zoo_visit import SEEDS, visit

RIGHT = [animal for animal in ZOO if not animal.codes]


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("animal", RIGHT, ids=lambda animal: animal.title)
def test_it_survives(animal: Animal, seed: int) -> None:
    visit(animal, seed)
