"""Sharded state over real ranks: DCP's own result, a rank killed in a save, and worlds of other sizes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")


def test_4_ranks_saved_one_killed_in_the_next_save_2_ranks_load_what_dcp_loads(
    tmp_path: Path, program: Callable[..., list[dict[str, Any]]]
) -> None:
    saved, compared, loaded = program("dcp_standalone.py", tmp_path)
    assert saved["saved"][2] == -9, "the rank was killed while it wrote"
    assert 0 not in saved["saved"], "no rank believes that the save succeeded"
    head = json.loads((tmp_path / "ours" / "HEAD.json").read_text())
    assert [row["step"] for row in head["checkpoints"]] == [2], "a save that died is not listed"
    leavings = list((tmp_path / "ours" / "checkpoints").glob("000000000003-*/**/*.bin"))
    assert leavings, "the other ranks had written parts"
    assert loaded["loaded"] == [0, 0]
    assert compared["keys_match"] is True
    assert compared["same"] == compared["keys"] > 20
    assert compared["step"] == 7


def test_a_run_goes_from_4_ranks_to_2_to_1_and_equals_plain_training(
    tmp_path: Path, program: Callable[..., list[dict[str, Any]]]
) -> None:
    _, four, two, one, result = program("dcp_run.py", tmp_path)
    assert four["codes"] == [75] * 4
    assert two["codes"] == [75] * 2
    assert one["codes"] == [0]
    assert 8 <= four["steps"] < two["steps"] < one["steps"] == 40
    assert result["steps_once"] is True, "no step ran twice and none was left out"
    assert all(result["same"].values()), result
