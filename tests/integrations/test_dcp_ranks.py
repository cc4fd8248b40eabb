"""Sharded state over real ranks: DCP's own result, a rank killed in a save, and worlds of other sizes."""

from __future__ import annotations

import json
import math
import re
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


def stored_numbers(folder: Path) -> int:
    """How many numbers all ranks together have stored for the sharded state."""
    entries = [
        entry
        for path in folder.glob("run/checkpoints/*/**/inventory.json")
        for entry in json.loads(path.read_text())["entries"]
        if entry[0].startswith("state.shards")
    ]
    return sum(math.prod(shape) for _, _, shape, *_ in entries)


def test_modules_outside_the_tensor_parallel_plan_are_saved_once_and_fit_4_2_and_1_ranks(
    tmp_path: Path, program: Callable[..., list[dict[str, Any]]]
) -> None:
    plain, killed, *worlds, state = program("dcp_two_dimensions.py", tmp_path)
    assert (plain["codes"], killed["codes"]) == ([0] * 4, [-9] * 4)
    assert [world["size"] for world in worlds] == [4, 2, 1]
    assert all(world["restored"] for world in worlds), worlds
    assert worlds[0]["finished"], "the same world ends where the program without stayfast ends"
    assert stored_numbers(tmp_path) == state["numbers"], "no number is stored twice"


def test_checkpoints_with_a_copy_in_every_tensor_parallel_column_are_restored(
    tmp_path: Path, program: Callable[..., list[dict[str, Any]]]
) -> None:
    _, _, *worlds, state = program("dcp_two_dimensions.py", tmp_path, OLD_LAYOUT="1", WORLDS="4 1")
    assert stored_numbers(tmp_path) > state["numbers"], "the old layout stores copies"
    assert all(world["restored"] for world in worlds), worlds
    assert worlds[0]["finished"]
    assert not any("different copies" in world["log"] for world in worlds)


def test_copies_that_differ_are_named(tmp_path: Path, program: Callable[..., list[dict[str, Any]]]) -> None:
    settings = {"OLD_LAYOUT": "1", "DIFFERENT_COPIES": "1", "WORLDS": "2"}
    _, _, world, _ = program("dcp_two_dimensions.py", tmp_path, **settings)
    assert world["restored"], "the copy of the first column is used"
    assert "different copies of model:norm.weight; the copy of the first rank is used" in world["log"]


@pytest.mark.parametrize(
    ("shards", "problem"),
    [
        ([((0, 0), (2, 4)), ((2, 0), (1, 4))], "hold 12 of 16 numbers"),  # a gap
        ([((0, 0), (2, 4)), ((0, 0), (1, 4)), ((3, 0), (1, 4))], "different sizes at [0, 0]"),
        ([((0, 0), (2, 4)), ((1, 0), (2, 4))], "the shard at [1, 0] lies over another one"),
        ([((0, 0), (4, 2)), ((1, 1), (2, 4))], "at [1, 1] is larger than the tensor [4, 4]"),
        ([((0, 0), (4, 2)), ((0, 2), (2, 2)), ((1, 1), (2, 2))], "the shard at [1, 1] lies over another one"),
        ([((0, 0), (4, 2)), ((0, 2), (4, 2)), ((0, 2), (4, 2))], None),  # a copy
        ([((0, 0), (2, 2)), ((0, 2), (2, 2)), ((2, 0), (2, 2)), ((2, 2), (2, 2))], None),
    ],
)
def test_shards_that_leave_gaps_or_lie_over_each_other_are_refused(
    shards: list[tuple[tuple[int, int], tuple[int, int]]], problem: str | None
) -> None:
    from stayfast.errors import CorruptError
    from stayfast.integrations.dcp_sharded import FORMAT, _merge
    from stayfast.runtime.checkpoint.sharded_reader import UnreadTensor

    outlines = [
        {"format": FORMAT, "shards": [["w", [4, 4], list(offsets), UnreadTensor(0, "float32", sizes)]], "values": {}}
        for offsets, sizes in shards
    ]
    keys = [f"rank-{number}" for number in range(len(outlines))]
    if problem is None:
        assert sum(chunk.sizes.numel() for chunk in _merge(outlines, keys).saved["w"].chunks) == 16
    else:
        with pytest.raises(CorruptError, match=re.escape(problem)):
            _merge(outlines, keys)
