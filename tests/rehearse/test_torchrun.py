"""Programs that torchrun starts are rehearsed like any other: two ranks, gloo, on the name of their own host."""

from __future__ import annotations

import functools
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

PYTHON = sys.executable
TORCHRUN = (PYTHON, "-m", "torch.distributed.run")
RANKS = ("--nproc-per-node=2", "train.py")
ONCE = ("--trials", "1", "--kills", "1", "--compare", "result.txt", "--json")
SECONDS = 280  # at most: a rendezvous that fails takes 300 s, and there is more than one of them
START_SECONDS, LOAD = 10.0, 2.0
"""A rehearsal is two baselines and one trial: three runs, measured to take 2.7 to 3.3 times as long as one. It may take
twice as long, because other programs may use the machine more than they did beside the plain run."""

pytestmark = [
    pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed"),
    pytest.mark.timeout(2 * SECONDS + 20),
]

TRAIN = """
import json, os, time
import torch, torch.distributed as dist
from torch.utils.data import DataLoader, TensorDataset

dist.init_process_group("gloo")
rank, total, first = dist.get_rank(), torch.zeros(4), 0
if os.path.exists("state.json"):
    with open("state.json") as file:
        first, kept = json.load(file)
    total = torch.tensor(kept)
loader = DataLoader(TensorDataset(torch.arange(24.0)), batch_size=4, num_workers=int(os.environ.get("WORKERS", "0")))
for step, (batch,) in enumerate(loader):
    if step < first:
        continue
    batch = batch * (rank + 1)
    dist.all_reduce(batch)
    total += batch
    time.sleep(0.2)
    if rank == 0:
        with open("state.tmp", "w") as file:
            json.dump([step + 1, total.tolist()], file)
        os.replace("state.tmp", "state.json")
    dist.barrier()
if rank == 0:
    with open("result.txt", "w") as file:
        file.write(str(total.tolist()))
dist.destroy_process_group()
"""


def run(folder: Path, words: tuple[str, ...], seconds: float, workers: int) -> subprocess.CompletedProcess[str]:
    (folder / "train.py").write_text(TRAIN)
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "WORKERS": str(workers)}
    return subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, timeout=seconds)


@functools.cache
def plain_seconds(workers: int) -> float:
    """How long the program takes by itself."""
    with tempfile.TemporaryDirectory() as folder:
        began = time.monotonic()
        ended = run(Path(folder), (*TORCHRUN, "--standalone", *RANKS), SECONDS, workers)
        assert ended.returncode == 0, ended.stderr
        return time.monotonic() - began


def rehearse(folder: Path, *words: str, workers: int = 0) -> dict[str, object]:
    seconds = min(SECONDS, START_SECONDS + LOAD * 3 * plain_seconds(workers))
    ended = run(folder, (PYTHON, "-m", "stayfast", "rehearse", *words), seconds, workers)
    assert ended.stdout, ended.stderr
    told = json.loads(ended.stdout)
    assert (told["verdict"], ended.returncode) == ("survives", 0), told["reasons"]
    return told


@pytest.mark.parametrize(
    "how",
    [(), ("--standalone",), ("--rdzv-backend=c10d", "--rdzv-endpoint=localhost:0")],
    ids=["plain", "standalone", "c10d"],
)
def test_two_ranks_find_each_other(tmp_path: Path, how: tuple[str, ...]) -> None:
    told = rehearse(tmp_path, *ONCE, "--kinds", "kill", "--", *TORCHRUN, *how, *RANKS)
    assert [row["exit_code"] for row in told["attempts"]] == [137, 0]


def test_two_ranks_without_a_namespace(tmp_path: Path) -> None:
    told = rehearse(tmp_path, *ONCE, "--kinds", "kill", "--no-namespace", "--", *TORCHRUN, "--standalone", *RANKS)
    assert told["pid_namespace"] is False


def test_two_ranks_with_loader_workers_behind_exec(tmp_path: Path) -> None:
    behind = (PYTHON, "-m", "stayfast", "exec", "--", *TORCHRUN, "--standalone", *RANKS)
    told = rehearse(tmp_path, *ONCE, "--kinds", "term", "--", *behind, workers=2)
    assert [row["exit_code"] for row in told["attempts"]][-1] == 0
