"""A digest per step: equal for equal states, different for any bit, and nothing at all unless asked for."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

import stayfast
from stayfast.errors import SettingError
from stayfast.runtime.state.step_digests import StepDigests, state_digest


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"a": 1}, {"a": 2}),
        ({"a": 1}, {"a": 1.0}),
        ([1, 2], [2, 1]),
        ([[1], 2], [[1, 2]]),
        (b"ab", b"ac"),
        ("1", 1),
        (0.1, 0.1 + 1e-17 + 1e-16),
        (None, False),
    ],
)
def test_different_values_differ(one: object, other: object) -> None:
    assert state_digest(one) != state_digest(other)


def test_a_file_that_cannot_be_written_is_one_sentence(tmp_path: Path) -> None:
    digests = StepDigests(str(tmp_path / "missing" / "prints"), 0, dict)
    with pytest.raises(SettingError, match=r"STAYFAST_FINGERPRINTS: .*prints cannot be written \(No such file"):
        digests.record(0)


def test_equal_values_are_equal_whatever_their_order() -> None:
    assert state_digest({"a": [1, (2.5, None)], "b": b"x"}) == state_digest(
        {"b": bytearray(b"x"), "a": [1, (2.5, None)]}
    )


def test_arrays_and_tensors() -> None:
    numpy = pytest.importorskip("numpy")
    torch = pytest.importorskip("torch")
    array = numpy.arange(6.0).reshape(2, 3)
    assert state_digest(array) == state_digest(array.copy())
    assert state_digest(array) != state_digest(array.reshape(3, 2))
    for kind in (torch.float32, torch.bfloat16, torch.int64, torch.bool):
        tensor = torch.ones(4, 4).to(kind)
        assert state_digest(tensor) == state_digest(tensor.clone())
        changed = tensor.clone()
        changed[3, 3] = 0
        assert state_digest(tensor) != state_digest(changed)
    assert state_digest(torch.ones(4, 4)) != state_digest(torch.ones(4, 4).T.reshape(2, 8))
    assert state_digest(torch.tensor([])) != state_digest(torch.tensor([0.0]))


def lines(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def train(folder: Path, *, until: int) -> None:
    state = {"sum": 0.0}
    with stayfast.run(f"file://{folder}", total_steps=until) as run:
        run.track(state=(lambda: dict(state), state.update))
        for step in run.steps():
            run.fingerprint(samples=[step])
            state["sum"] += random.random()


def test_every_step_leaves_a_line_and_a_resumed_run_the_same_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STAYFAST_METADATA", "off")
    train(tmp_path / "none", until=3)  # nothing is asked for: nothing is written
    for name, pieces in (("whole", [6]), ("resumed", [3, 6])):
        monkeypatch.setenv("STAYFAST_FINGERPRINTS", str(tmp_path / f"{name}.jsonl"))
        random.seed(3)
        for until in pieces:
            train(tmp_path / name, until=until)
            random.seed(99)  # another process would have another generator
    whole = lines(tmp_path / "whole.jsonl")
    assert [row["step"] for row in whole] == list(range(6))
    assert whole[0]["parts"].keys() == {"~rng", "state", "samples"}
    assert lines(tmp_path / "resumed.jsonl") == whole
