"""No false alarm: the right programs of the zoo survive whatever the seed."""

from __future__ import annotations

import pytest
from zoo import ZOO, Animal
from zoo_visit import visit, visits

RIGHT = [animal for animal in ZOO if not animal.codes]


@pytest.mark.parametrize(("animal", "seed"), visits(RIGHT))
def test_it_survives(animal: Animal, seed: int) -> None:
    visit(animal, seed)
