"""Programs of accelerate: prepared loaders, optimizers and schedulers are kept, and resume bit for bit."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("accelerate")


def test_an_interrupted_program_equals_the_program_without_stayfast(
    tmp_path: Path, program: Callable[..., list[dict[str, Any]]]
) -> None:
    *terminated, killed = program("accelerate_train.py", tmp_path, timeout_seconds=600)
    for row, size, times in zip(terminated, (1, 1, 2), (4, 4, 2), strict=True):
        assert row["base"] == [0] * size
        assert row["codes"] == [[75] * size] * times + [[0] * size]
        assert row["order"] == [True] * size, "every batch once, in the order of the program alone"
        assert row["same"] is True, "the same weights, learning rate and random numbers"
    assert killed["codes"] == [[-9], [-9], [0]]
    assert killed["same"] is True
