"""Our own training and batch programs, and the examples, survive every kind of interruption, two writers included."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from zoo import PROGRAMS

from stayfast.proof.rehearse.schedule import TWO_WRITERS, InterruptionKind
from stayfast.testing import Rehearsal, rehearse

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
STAYFAST = f"{sys.executable} -m stayfast"
ONE_AFTER_ANOTHER = tuple(kind for kind in InterruptionKind if kind not in TWO_WRITERS)
ALL_KINDS = pytest.mark.parametrize(("kinds", "trials"), [(ONE_AFTER_ANOTHER, 7), (TWO_WRITERS, 4)], ids=["one", "two"])
"""So many trials that each kind opens one at a plain moment, and others come at the points where files change."""
ITEMS = 60


def insist(found: Rehearsal, kinds: tuple[InterruptionKind, ...]) -> None:
    """That it survives, and that every kind was really done to it."""
    found.assert_survives()
    assert {kill.kind for trial in found.result.trials for kill in trial.delivered} == set(kinds)


@ALL_KINDS
def test_training(kinds: tuple[InterruptionKind, ...], trials: int) -> None:
    command, directory = [sys.executable, "stayfast_train.py"], PROGRAMS
    found = rehearse(
        command, compare=["result.txt"], directory=directory, kinds=kinds, trials=trials, kills=2, parallel=4
    )
    insist(found, kinds)


@ALL_KINDS
def test_the_batch_example(tmp_path: Path, kinds: tuple[InterruptionKind, ...], trials: int) -> None:
    for name in ("jobs.py", "make_items.py"):
        shutil.copy(EXAMPLES / "batch" / name, tmp_path)
    queue, sink = "sqlite://./work.db?queue=texts", "sqlite://./work.db?table=labels"
    given = {**os.environ, "STAYFAST_QUEUE": queue, "STAYFAST_SINK": sink, "PAUSE_SECONDS": "0.1"}
    make = f"{sys.executable} make_items.py && head -n {ITEMS} items.jsonl | {STAYFAST} enqueue --key id -"
    subprocess.run(["sh", "-c", make], cwd=tmp_path, env=given, check=True, capture_output=True)
    found = rehearse(
        [*STAYFAST.split(), "work", "jobs:infer", "--workers", "2", "--chunk", "5"],
        records=["work.db?table=labels"],
        key="key",
        check=f'test "$({STAYFAST} audit --sink "$STAYFAST_SINK" --json | grep -c {ITEMS})" -ge 1',
        directory=tmp_path,
        environment=given,
        kinds=kinds,
        trials=trials,
        kills=2,
        parallel=4,
    )
    insist(found, kinds)


def test_the_numpy_example_when_it_is_told(tmp_path: Path) -> None:
    """It is too short for a checkpoint between notices, so that a kill without one has nothing to go on from."""
    pytest.importorskip("numpy")
    shutil.copy(EXAMPLES / "numpy" / "train.py", tmp_path)
    kinds = (InterruptionKind.TERM, InterruptionKind.OVERLAP)
    command = [sys.executable, "train.py"]
    insist(rehearse(command, json_files=["result.json"], directory=tmp_path, kinds=kinds, trials=4, kills=2), kinds)


def test_the_program_of_the_readme(tmp_path: Path) -> None:
    """Its rehearsal there has two trials; a newcomer leaves the number out."""
    page = (EXAMPLES.parent / "README.md").read_text()
    program = page.split("<!-- file: train.py -->\n```python\n", 1)[1].split("```", 1)[0]
    (tmp_path / "train.py").write_text(program)
    often = next(
        line.split()[0] for line in page.splitlines() if "stayfast rehearse" in line and "=" in line.split()[0]
    )
    environment = {**os.environ, **dict([often.split("=")])}
    rehearse(
        [sys.executable, "train.py"], compare=["result.txt"], directory=tmp_path, environment=environment, parallel=4
    ).assert_survives()


def test_the_bash_example(tmp_path: Path) -> None:
    shutil.copy(EXAMPLES / "bash" / "job.sh", tmp_path)
    command = [*STAYFAST.split(), "exec", "--done-file", "result.json", "--", "./job.sh"]
    found = rehearse(
        command, compare=["result.json"], directory=tmp_path, kinds=ONE_AFTER_ANOTHER, trials=7, kills=2, parallel=4
    )
    insist(found, ONE_AFTER_ANOTHER)


def test_sync_cures_a_checkpoint_on_the_nodes_own_disk() -> None:
    program = f"{sys.executable} ephemeral_checkpoint.py"
    rehearse(
        ["sh", "-c", f'STEPS=120 exec {STAYFAST} exec --sync "scratch=file://$PWD/bucket" -- {program}'],
        compare=["result.txt"],
        directory=PROGRAMS,
        ephemeral=["scratch"],
        kinds=["term"],
        trials=3,
        kills=2,
        parallel=3,
    ).assert_survives()
