"""``stayfast checkpoints``: exit codes, JSON on stdout alone, damaged files by name."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from saving import head_of, save

from stayfast.cli.main import main
from stayfast.runtime.checkpoint.checkpointer import Checkpointer
from stayfast.runtime.run_record.record import RECORD_KEY, CheckpointRecord, encode
from stayfast.storage.stores.file import FileStore


@pytest.fixture
def run_url(tmp_path: Path, make_engine: Callable[..., Checkpointer]) -> str:
    store = FileStore(str(tmp_path / "run"))
    engine = make_engine(store)
    rows: list[CheckpointRecord] = [save(engine, step, {"a": np.full(40_000, step)}) for step in (10, 20)]
    engine.persist(engine.snapshot(5, {"a": np.zeros(9000)}), 1)  # never committed
    store.put(RECORD_KEY, encode(head_of(*reversed(rows))))
    return store.url


def call(capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, Any, str]:
    code = main(["checkpoints", *argv, "--output", "json"])
    captured = capsys.readouterr()
    return code, json.loads(captured.out) if captured.out else None, captured.err


def test_ls(run_url: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, body, _ = call(capsys, "ls", run_url)
    assert code == 0
    assert [row["step"] for row in body["checkpoints"]] == [20, 10]
    assert all(row["bytes"] > 320_000 and row["age_seconds"] >= 0 for row in body["checkpoints"])
    assert main(["checkpoints", "ls", run_url]) == 0
    text = capsys.readouterr().out
    assert "STEP" in text
    assert "000000000020-000001" in text


def test_verify_whole_and_damaged(run_url: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, body, error = call(capsys, "verify", run_url)
    assert (code, error) == (0, "")
    assert {row["verdict"] for row in body["checkpoints"]} == {"whole"}
    part = Path(run_url.removeprefix("file://")) / "checkpoints/000000000020-000001/part-00001.bin"
    data = bytearray(part.read_bytes())
    data[77] ^= 1
    part.write_bytes(data)
    code, body, _ = call(capsys, "verify", run_url)
    assert code == 1
    assert [row["verdict"] for row in body["checkpoints"]] == ["damaged", "whole"]
    assert body["checkpoints"][0]["damage"][0]["file"].endswith("part-00001.bin")
    assert call(capsys, "verify", run_url, "--step", "10")[0] == 0
    assert main(["checkpoints", "verify", run_url]) == 1
    assert "part-00001.bin" in capsys.readouterr().out
    assert call(capsys, "verify", run_url, "--step", "11")[0] == 2


def test_prune(run_url: str, capsys: pytest.CaptureFixture[str]) -> None:
    root = Path(run_url.removeprefix("file://"))
    code, body, _ = call(capsys, "prune", run_url, "--dry-run")
    assert code == 0
    assert body["deleted"]
    assert all("000000000005-000001" in key for key in body["deleted"])
    assert (root / "checkpoints/000000000005-000001").exists()
    assert call(capsys, "prune", run_url)[1]["deleted"] == body["deleted"]
    assert not (root / "checkpoints/000000000005-000001").exists()
    assert call(capsys, "verify", run_url)[0] == 0
    (root / "checkpoints/000000000020-000001/inventory.json").unlink()
    code, body, error = call(capsys, "prune", run_url)
    assert (code, body) == (1, None)
    assert "nothing was deleted" in error


def test_bad_input(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for action in ("ls", "verify"):
        code, body, error = call(capsys, action, f"file://{tmp_path}/nothing")
        assert (code, body) == (2, None)
        assert "there is no run" in error
    assert call(capsys, "ls", "ftp://x")[0] == 2
    (tmp_path / RECORD_KEY).write_text("{}")
    code, _, error = call(capsys, "ls", f"file://{tmp_path}")
    assert code == 1
    assert RECORD_KEY in error
    assert error.count("\n") == 1
