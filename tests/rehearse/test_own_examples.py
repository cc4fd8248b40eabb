"""Our own training and batch programs survive every kind of interruption, two writers included."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from zoo import PROGRAMS

from holdfast.rehearse.plan import Kind
from holdfast.testing import rehearse

HOLDFAST = f"{sys.executable} -m holdfast"
ITEMS = 60


@pytest.mark.parametrize("kind", list(Kind))
def test_training(kind: Kind) -> None:
    rehearse(
        [sys.executable, "holdfast_train.py"],
        compare=["result.txt"],
        directory=PROGRAMS,
        kinds=[kind],
        trials=3,
        kills=2,
        parallel=3,
    ).assert_survives()


@pytest.mark.parametrize("kinds", [("term", "kill"), ("overlap", "freeze")], ids="+".join)
def test_batch(tmp_path: Path, kinds: tuple[str, ...]) -> None:
    shutil.copy(PROGRAMS / "holdfast_tasks.py", tmp_path)
    items = tmp_path / "items.jsonl"
    items.write_text("".join(json.dumps({"id": f"item-{number:03d}"}) + "\n" for number in range(ITEMS)))
    queue, sink = "sqlite:///$PWD/queue.db?queue=a", "sqlite:///$PWD/sink.db?table=r"
    enqueue = f'{HOLDFAST} enqueue --queue "{queue}" --key id items.jsonl'
    subprocess.run(["sh", "-c", enqueue], cwd=tmp_path, check=True, capture_output=True)
    work = f'work holdfast_tasks:measure --queue "{queue}" --sink "{sink}" --chunk 3 --workers 2'
    rehearse(
        ["sh", "-c", f"exec {HOLDFAST} {work}"],
        records=["sink.db?table=r"],
        key="key",
        check=f'{HOLDFAST} audit --queue "{queue}" --sink "{sink}"',
        directory=tmp_path,
        kinds=kinds,
        trials=4,
        kills=2,
        parallel=3,
    ).assert_survives()


def test_sync_cures_a_checkpoint_on_the_nodes_own_disk() -> None:
    program = f"{sys.executable} ephemeral_checkpoint.py"
    rehearse(
        ["sh", "-c", f'STEPS=120 exec {HOLDFAST} exec --sync "scratch=file://$PWD/bucket" -- {program}'],
        compare=["result.txt"],
        directory=PROGRAMS,
        ephemeral=["scratch"],
        kinds=["term"],
        trials=3,
        kills=2,
        parallel=3,
    ).assert_survives()
