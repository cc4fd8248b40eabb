"""Ranks as forked children of one process that has imported torch: the import is paid once, not per rank."""

import json
import os
import sys
import time
import traceback
from collections.abc import Callable
from datetime import timedelta

import torch
import torch.distributed as dist
import torch.distributed.checkpoint
import torch.distributed.fsdp
import torch.distributed.tensor

from stayfast.errors import UsageError

torch.set_num_threads(1)


def start(size: int, work: Callable[[int], object], meeting: str) -> list[int]:
    """Fork ``size`` ranks that meet at a file and run ``work(rank)``; returns their pids."""
    pids = []
    for rank in range(size):
        pid = os.fork()
        if pid == 0:
            os._exit(_rank(rank, size, work, meeting))
        pids.append(pid)
    return pids


def _rank(rank: int, size: int, work: Callable[[int], object], meeting: str) -> int:
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(size)}
    try:
        torch.set_num_threads(1)
        dist.init_process_group(
            "gloo", init_method=f"file://{meeting}", rank=rank, world_size=size, timeout=timedelta(seconds=60)
        )
        work(rank)
        dist.destroy_process_group()
        return 0
    except SystemExit as error:
        return int(error.code or 0)
    except BaseException:
        traceback.print_exc()
        return 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()


def end(pids: list[int]) -> list[int]:
    """Their exit codes, in order; a signal is negative."""
    deadline = time.monotonic() + 100
    codes: dict[int, int] = {}
    while len(codes) < len(pids) and time.monotonic() < deadline:
        for pid in pids:
            if pid not in codes:
                found, status = os.waitpid(pid, os.WNOHANG)
                if found:
                    codes[pid] = os.waitstatus_to_exitcode(status)
        time.sleep(0.02)
    for pid in pids:
        if pid not in codes:
            os.kill(pid, 9)
            os.waitpid(pid, 0)
    return [codes.get(pid, -999) for pid in pids]


def say(**words: object) -> None:
    """One line of JSON for the test to read, in one write: other ranks write to the same pipe."""
    sys.stdout.flush()
    os.write(1, json.dumps(words).encode() + b"\n")


def child(work: Callable[[], object]) -> int:
    """Fork one process that runs ``work`` and leaves by its exit code; returns its pid."""
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        work()
        code = 0
    except SystemExit as error:
        code = int(error.code or 0)
    except BaseException:
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def refusal(work: Callable[[], object]) -> None:
    """Say what it was refused with."""
    try:
        work()
    except UsageError as error:
        say(refusal=str(error))


def lines(path: str) -> list[str]:
    """What is in a file by now."""
    if not os.path.exists(path):
        return []
    with open(path) as file:
        return file.read().split()


def signal_after(pid: int, path: str, count: int, number: int) -> int:
    """Wait until the file has so many lines, one at least by this process, send the signal, return the exit code."""
    count = max(count, len(lines(path)) + 1)  # the attempt before may have got further before it saw its own signal
    deadline = time.monotonic() + 60
    while len(lines(path)) < count and time.monotonic() < deadline:
        found, status = os.waitpid(pid, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.002)
    os.kill(pid, number)
    return end([pid])[0]
