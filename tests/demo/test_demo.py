"""The demo proves itself, says so in JSON, and leaves nothing behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from stayfast.batch.queue.open_queue import open_queue
from stayfast.dashboard.sources import find_queues, find_runs
from stayfast.proof.demo import image_features, training
from stayfast.runtime.run_record.record import RECORD_KEY, decode


def demo(*arguments: str, folder: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "stayfast.cli.main", "demo", *arguments]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, "TMPDIR": str(folder)}
    )


def processes_under(folder: Path) -> list[str]:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if str(folder) in path.read_bytes().decode(errors="replace"):
                found.append(path.parent.name)
        except OSError:
            continue
    return found


def test_storm_loses_nothing_and_can_be_kept(tmp_path: Path) -> None:
    kept, empty = tmp_path / "kept", tmp_path / "tmp"
    empty.mkdir()
    given = ("--items", "400", "--steps", "120", "--kills", "6", "--seed", "2", "--output", "json", "--keep", str(kept))
    process = demo(*given, folder=empty)
    out, errors = process.communicate(timeout=150)
    assert process.returncode == 0, errors
    result = json.loads(out)
    assert (result["items"], result["lost"], result["duplicates"]) == (400, 0, 0)
    assert result["bit_identical"] is True
    assert result["kills"] >= 1
    assert result["sigterm"] + result["sigkill"] == result["kills"]
    assert result["computed"] >= 400
    assert list(empty.iterdir()) == []
    assert [Path(url).name for url in find_runs(f"file://{kept}")] == ["training", "uninterrupted"]
    (queue,) = find_queues(f"file://{kept}")
    opened = open_queue(queue, create=False)
    assert opened.depth().done == 400
    opened.close()
    head = decode((kept / "training" / RECORD_KEY).read_bytes())
    assert head.finished
    assert head.attempts[-1].usd_per_hour == 0.512
    again = demo("--keep", str(kept), folder=empty)
    assert again.communicate(timeout=60)[1].strip().endswith("is not empty; name a new directory")
    assert again.returncode == 2


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_interrupted_demo_leaves_nothing_behind(tmp_path: Path, number: signal.Signals) -> None:
    process = demo(folder=tmp_path)
    deadline = time.monotonic() + 30
    while len(processes_under(tmp_path)) < 3 and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(number)
    process.communicate(timeout=30)
    assert process.returncode != 0
    deadline = time.monotonic() + 5
    while processes_under(tmp_path) and time.monotonic() < deadline:
        time.sleep(0.02)  # a killed grandchild is gone when the kernel gets to it
    assert processes_under(tmp_path) == []
    assert list(tmp_path.iterdir()) == []


def test_bad_numbers_are_one_sentence(tmp_path: Path) -> None:
    process = demo("--workers", "0", folder=tmp_path)
    _, errors = process.communicate(timeout=30)
    assert process.returncode == 2
    assert errors.strip() == "stayfast: --workers 0 is too small; use at least 1"


def test_a_place_that_cannot_be_kept_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    process = demo("--keep", str(tmp_path / "file"), folder=tmp_path)
    _, errors = process.communicate(timeout=30)
    assert process.returncode == 2
    assert len(errors.strip().splitlines()) == 1


def test_features_depend_on_the_image_alone() -> None:
    first = image_features.features([{"image": "a", "seed": 1}, {"image": "b", "seed": 2}])
    assert first[0] == image_features.describe(1)
    assert first[0] != first[1]
    assert sum(first[0]["grey"]) == (image_features.SIDE - 2) ** 2


def test_the_demo_training_really_learns(capsys: pytest.CaptureFixture[str]) -> None:
    network, shuffle, data = training.Network(), training.Shuffle(), training._samples()

    def error() -> float:
        gradient = [0.0] * len(network.weights)
        total = 0.0
        for inputs, wanted in data:
            before = list(gradient)
            network._accumulate(inputs, wanted, gradient)
            total += sum((a - b) ** 2 for a, b in zip(gradient, before, strict=True))
        return total

    start = error()
    for _ in range(300):
        network.learn([data[number] for number in shuffle.batch()])
    assert error() < 0.8 * start
    with tempfile.TemporaryDirectory() as folder:
        training.main(f"file://{folder}/run", 5, f"{folder}/log")
    assert len(capsys.readouterr().out.strip()) == 64
