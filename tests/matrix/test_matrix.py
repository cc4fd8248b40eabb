"""Loader workers and signals: every kind of program under every launcher and signal saves, exits with 75 and resumes.

`make test-matrix` runs every cell STAYFAST_MATRIX_RUNS times (5) and the plain ones under `stayfast exec -- torchrun`
STAYFAST_MATRIX_PLAIN_RUNS times (20), and writes build/matrix.json. Those runs are forks of one process that has
imported everything; one more of each launcher starts ordinary processes. Without STAYFAST_MATRIX=full only a few cells
run, once. A run is judged right when the checkpoint of the last finished step is there and reported, the exit code is
75 (under torchrun alone, which turns every code into 1: the code that each rank reported), no process is left, and the
resumed run ends with the weights that the same program without stayfast has when it is left alone. For the
ResumableSampler that program uses the sampler, but opens no run.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import cells
import pytest

for name in ("torch", "torchdata", "lightning", "transformers", "accelerate"):
    pytest.importorskip(name)

pytestmark = [pytest.mark.matrix, pytest.mark.slow, pytest.mark.timeout(3600)]

FULL = os.environ.get("STAYFAST_MATRIX") == "full"
RUNS = int(os.environ.get("STAYFAST_MATRIX_RUNS", "5"))
PLAIN_RUNS = int(os.environ.get("STAYFAST_MATRIX_PLAIN_RUNS", "20"))
CELLS = [(kind, launcher, how) for kind in cells.PROGRAMS for launcher in cells.LAUNCHERS for how in cells.SIGNALS]
PART = [
    ("plain", "exec-torchrun", "term-group"),
    ("sampler", "python", "int-group"),
    ("stateful", "exec", "term-group"),
    ("accelerate", "exec-torchrun", "int-group"),
    ("lightning", "torchrun", "term-group"),
    ("hugging-face", "exec", "int-group"),
]
BUILD = Path(__file__).resolve().parents[2] / "build" / "matrix"


def group(cell: tuple[str, str, str]) -> pytest.param:
    """Cells of one kind run in one process of xdist: they share what the program left alone ends with."""
    return pytest.param(*cell, marks=pytest.mark.xdist_group(cell[0]), id="-".join(cell))


@pytest.fixture(scope="session")
def preloaded() -> Iterator[cells.Starter]:
    if sys.version_info[:2] != (3, 11):  # preloaded.py stands in for Popen's inner function of this version
        yield cells.Fresh()
        return
    starter = cells.Preloaded()
    yield starter
    starter.close()


@pytest.fixture(scope="session")
def expected(preloaded: cells.Starter, tmp_path_factory: pytest.TempPathFactory) -> cells.Expected:
    return cells.Expected(preloaded, tmp_path_factory.mktemp("alone"))


@pytest.mark.parametrize(("kind", "launcher", "how"), [group(cell) for cell in (CELLS if FULL else PART)])
def test_every_run_of_a_cell_saves_and_resumes(
    kind: str, launcher: str, how: str, preloaded: cells.Starter, expected: cells.Expected, tmp_path: Path
) -> None:
    count = PLAIN_RUNS if (kind, launcher) == ("plain", "exec-torchrun") else RUNS
    wanted = expected.of(kind, launcher)
    done = [
        cells.run_once(preloaded, kind, launcher, how, tmp_path / str(seed), wanted, seed)
        for seed in range(count if FULL else 1)
    ]
    if FULL:
        BUILD.mkdir(parents=True, exist_ok=True)
        (BUILD / f"{kind}-{launcher}-{how}.json").write_text(json.dumps([asdict(result) for result in done]))
    problems = [f"run {number}: {problem}" for number, result in enumerate(done) for problem in result.problems]
    assert not problems, "\n".join(problems)


@pytest.mark.xdist_group("plain")
@pytest.mark.parametrize("launcher", cells.LAUNCHERS if FULL else ["exec-torchrun"])
def test_processes_that_share_nothing_do_the_same(launcher: str, expected: cells.Expected, tmp_path: Path) -> None:
    wanted = expected.of("plain", launcher)
    result = cells.run_once(cells.Fresh(), "plain", launcher, "term-group", tmp_path / "run", wanted, 0)
    assert not result.problems, "\n".join(result.problems)
