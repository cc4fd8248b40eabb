"""Real processes that save in a loop and are killed at any moment: what is committed restores, nothing else does."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np

from stayfast.clock import SystemClock
from stayfast.runtime.checkpoint.checkpointer import Checkpointer
from stayfast.runtime.run_record.commit_protocol import read_head, run_protocol
from stayfast.storage.stores.file import FileStore

KILLS = 25

# Started once; forks a saver for every line on stdin, so that a kill costs no start-up.
SERVER = r"""
import itertools, os, sys
from dataclasses import replace
import numpy as np
from stayfast.runtime.run_record.commit_protocol import run_protocol
from stayfast.runtime.checkpoint.checkpointer import Checkpointer
from stayfast.runtime.checkpoint.cleanup import delete_unreferenced
from stayfast.runtime.run_record.record import AttemptRecord, CheckpointRecord
from stayfast.runtime.run_record.commit_protocol import claim, commit
from stayfast.runtime.checkpoint.policies import KeepLast, apply_retention
from stayfast.clock import SystemClock
from stayfast.storage.stores.file import FileStore

WHEN = "2026-11-15T12:00:00.000Z"

def saver(root):
    store, clock = FileStore(root), SystemClock()
    token = lambda: os.urandom(8).hex()
    held = run_protocol(claim("run", AttemptRecord(0, WHEN), token), store, clock)
    engine = Checkpointer(store, threads=3, part_bytes=64 << 10)
    found = engine.restore_newest(held.head)
    frozen = np.arange(40_000)
    first = 0 if found is None else found[0].step + 1
    if found is not None:
        assert (found[1]["hot"] == found[0].step).all() and (found[1]["frozen"] == frozen).all()
    for step in itertools.count(first):
        state = {"frozen": frozen, "hot": np.full(30_000, step)}
        persisted = engine.persist(engine.snapshot(step, state), held.head.attempt)
        row = CheckpointRecord(step, held.head.attempt, WHEN, persisted.size, persisted.inventory_sha256)
        kept = apply_retention(KeepLast(2), (row, *held.head.checkpoints))
        held = run_protocol(commit(held, replace(held.head, checkpoints=kept), token), store, clock)
        engine.mark_committed(persisted)
        os.write(1, b"committed %d\n" % step)
        run_protocol(delete_unreferenced(held.head.attempt, engine.unfinished_folders), store, clock)

for line in sys.stdin:
    pid = os.fork()
    if pid == 0:
        saver(line.strip())
    os.write(1, b"pid %d\n" % pid)
    os.waitpid(pid, 0)
    os.write(1, b"gone\n")
"""


def test_savers_killed_at_any_moment(tmp_path: Path) -> None:
    root = str(tmp_path / "run")
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[2] / "src")}
    server = subprocess.Popen(
        [sys.executable, "-c", SERVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
    )
    assert server.stdin is not None
    assert server.stdout is not None
    generator = random.Random(6)
    acknowledged = -1
    try:
        for _ in range(KILLS):
            server.stdin.write(root.encode() + b"\n")
            server.stdin.flush()
            timer = None
            while (line := server.stdout.readline().split())[0] != b"gone":
                if line[0] == b"committed":
                    acknowledged = int(line[1])
                else:
                    delay = 0.05 + generator.random() * 0.3
                    timer = threading.Timer(delay, os.kill, (int(line[1]), signal.SIGKILL))
                    timer.start()
            assert timer is not None
            timer.join()
            _check(root, acknowledged)
    finally:
        server.stdin.close()
        server.wait(30)
    assert acknowledged > 3
    folders = os.listdir(Path(root) / "checkpoints")
    assert len(folders) < 20  # the collectors of later attempts have cleaned up after the killed ones


def _check(root: str, acknowledged: int) -> None:
    store = FileStore(root)
    held = run_protocol(read_head(), store, SystemClock())
    assert held is not None
    engine = Checkpointer(store, threads=2, part_bytes=64 << 10)
    try:
        for committed in held.head.checkpoints:
            state = engine.restore(committed)
            assert (state["hot"] == committed.step).all()
            assert (state["frozen"] == np.arange(40_000)).all()
        assert held.head.checkpoints[0].step >= acknowledged
    finally:
        engine.close()
