"""Lightning and Hugging Face trainers, interrupted by real signals at the worst steps: bit for bit as if never."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
Program = Callable[..., list[dict[str, Any]]]


def head(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "HEAD.json").read_text())


def last_step(record: dict[str, Any]) -> int:
    assert record["finished"] is True
    return record["checkpoints"][0]["step"]


def test_lightning_fit_survives_notices_and_kills(
    tmp_path: Path, program: Program, guide: Callable[[str], list[Path]]
) -> None:
    pytest.importorskip("lightning")
    (snippet,) = guide("lightning.md")
    base, term, kill, val, again, refused, shown = program("lightning_fit.py", tmp_path, snippet)
    assert (base["base"], base["batches"]) == ([0], 30)
    assert term["term"] == [75] * 6 + [0]
    assert term["order"] is True, "every batch once, in the order of the uninterrupted run"
    assert term["same"] is True, "the same weights, steps and epochs"
    assert kill["kill"] == [-9, -9, 0]
    assert kill["same"] is True
    assert 0 < kill["repeated"] < 20, "only what was not committed ran again"
    assert val["val"] == [75, 0]
    assert 2 <= val["given_up"] < 4, "a notice does not wait for the validation's four batches"
    assert val["order"] is True
    assert val["same"] is True
    assert "a plain DataLoader cannot say where it is" in refused["refusal"]
    assert (again["again"], again["batches"]) == ([0], 0), "a finished run has nothing to do"
    assert [row["outcome"] for row in head(tmp_path / "kill")["attempts"]] == ["lost", "lost", "finished"]
    assert shown["guide"] == [0], "the guide's snippet runs as it stands"
    assert last_step(head(tmp_path / "guide")) == 31


def test_lightning_ranks_and_manual_optimization_equal_the_program_without_stayfast(
    tmp_path: Path, program: Program
) -> None:
    pytest.importorskip("lightning")
    manual, ranks, injected, _ = program("lightning_cases.py", tmp_path, timeout_seconds=400)
    assert manual["base"] == [0]
    assert manual["codes"] == [[75]] * 5 + [[0]]
    assert manual["order"] == [True]
    assert manual["same"] is True, "gradients between two optimizer steps are kept"
    assert ranks["base"] == [0, 0]
    assert ranks["codes"] == [[75, 75]] * 7 + [[0, 0]]
    assert ranks["order"] == [True, True], "each epoch in its own order on every rank, no batch twice"
    assert ranks["same"] is True
    assert "give the loader sampler=DistributedSampler(dataset)" in injected["refusal"]


def test_hugging_face_trainer_survives_notices_and_kills(
    tmp_path: Path, program: Program, guide: Callable[[str], list[Path]]
) -> None:
    pytest.importorskip("transformers")
    (snippet,) = guide("hugging-face.md")
    base, term, kill, val, again, alone, skips, shown = program("trainer_train.py", tmp_path, snippet)
    assert (base["base"], base["steps"]) == ([0], 15)
    assert term["term"] == [75] * 6 + [0]
    assert term["steps"] is True, "every step once"
    assert term["batches"] is True, "the same batches, masked the same"
    assert term["same"] is True, "the same weights, steps and learning rate"
    assert kill["kill"] == [-9, -9, 0]
    assert kill["same"] is True
    assert 0 < kill["repeated"] < 10, "only what was not committed ran again"
    assert val["val"] == [75, 0]
    assert 1 <= val["given_up"] < 3, "a notice does not wait for the evaluation's three steps"
    assert val["batches"] is True
    assert val["same"] is True
    assert "start the training with callback.train(trainer)" in alone["refusal"]
    assert "ignore_data_skip repeats samples" in skips["refusal"]
    assert (again["again"], again["steps"]) == ([0], 0), "a finished run has nothing to do"
    assert shown["guide"] == [0], "the guide's snippet runs as it stands"
    assert last_step(head(tmp_path / "guide")) == 15


def test_hugging_face_data_without_a_length_is_exact_in_its_first_pass_and_refused_after_it(
    tmp_path: Path, program: Program
) -> None:
    pytest.importorskip("transformers")
    refused, ended = program("trainer_stream.py", tmp_path)
    assert "its first pass ended at step 8" in refused["refusal"]
    assert ended["refused_at"] == 8
    assert ended["codes"] == [0, 75, 0, 75, 0]
    assert ended["steps"] == list(range(1, 21)), "with data that repeats itself the run resumes, and no step is lost"
    assert ended["same"] is True, "as the program without stayfast"
