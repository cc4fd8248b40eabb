"""Programs of accelerate: prepared loaders, optimizers and schedulers are kept, and resume bit for bit."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

accelerate = pytest.importorskip("accelerate")
torch = pytest.importorskip("torch")
pytest.importorskip("torchdata")

from stayfast.errors import UsageError  # noqa: E402
from stayfast.runtime.state.tracked_state import make_tracked  # noqa: E402


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


@pytest.mark.parametrize("stateful", [False, True])
def test_a_prepared_loader_itself_is_not_tracked(stateful: bool) -> None:
    kind = accelerate.utils.DataLoaderConfiguration(use_stateful_dataloader=stateful)
    loader = accelerate.Accelerator(cpu=True, dataloader_config=kind).prepare(
        torch.utils.data.DataLoader(range(37), 8, shuffle=True)
    )
    with pytest.raises(UsageError, match="position of a loader that accelerate has prepared cannot be restored"):
        make_tracked("loader", loader)
