"""A launcher that rewrites exit codes: torchrun turns 75 into 1, and ``exec`` puts it right again."""

from __future__ import annotations

import os
import signal
import socket
import sys
import time
from pathlib import Path

import pytest
from runtime_children import STAYFAST, Child, environment

pytest.importorskip("torch")

PROGRAM = """
import os, sys, torch, torch.distributed as dist, stayfast
dist.init_process_group("gloo")
with stayfast.guard() as guard:
    print("rank", dist.get_rank(), "pid", os.getpid(), flush=True)
    step = 0
    while True:
        stop = torch.tensor([1.0 if guard.notice else 0.0])
        dist.all_reduce(stop)
        step += 1
        if step == 3:
            print("going", flush=True)
        if sys.argv[1:] == ["bug"] and step == 5 and dist.get_rank() == 1:
            raise ValueError("a bug of rank 1")
        if stop.item() and guard.should_stop():
            break
        if stop.item():
            guard.wait(5)
"""


def launch(tmp_path: Path, *arguments: str) -> Child:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node=2", f"--master-port={port}"]
    command = [*STAYFAST, "exec", "--", *torchrun, str(program), *arguments]
    return Child(command, environment(OMP_NUM_THREADS="1", STAYFAST_GRACE_SECONDS="10", GLOO_SOCKET_IFNAME="lo"))


def test_sigterm_to_exec_is_75(tmp_path: Path) -> None:
    child = launch(tmp_path)
    child.wait_for("going", 60)
    child.send()
    ended = child.end(30)
    assert ended.code == 75, ended.err
    assert ended.seconds < 10
    outcomes = [report["outcome"] for report in ended.reports if report["action"] == "attempt_ended"]
    assert outcomes == ["interrupted"] * 2


@pytest.mark.parametrize("victim", [0])
def test_a_killed_rank_is_75_with_cause_peer_lost_on_the_other(tmp_path: Path, victim: int) -> None:
    child = launch(tmp_path)
    pid = int(child.wait_for(f"rank {victim} pid", 60).split()[-1])
    child.wait_for("going")
    time.sleep(0.2)
    os.kill(pid, signal.SIGKILL)
    ended = child.end(40)
    assert ended.code == 75, ended.err
    other = next(report for report in ended.reports if report["action"] == "attempt_ended")
    assert other["rank"] == 1 - victim
    assert other["cause"] == "peer-lost"
    assert ended.reports[-1]["cause"] == "peer-lost"


def test_a_rank_with_a_bug_of_its_own_is_a_failure(tmp_path: Path) -> None:
    child = launch(tmp_path, "bug")
    ended = child.end(60)
    assert ended.code == 1, ended.err
    assert ended.reports[-1]["outcome"] == "failed"
    assert "a bug of rank 1" in ended.reports[-1]["detail"]
