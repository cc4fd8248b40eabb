"""Starting the real ``stayfast`` command on a task module written for the test."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from stayfast.batch.queue.open_queue import open_queue

ENTRY = "from stayfast.cli.main import entry; entry()"
QUIET = {"STAYFAST_OUTCOME_FILE": os.devnull}


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-c", ENTRY, *arguments]


def stayfast(*arguments: str, cwd: Path | None = None, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(*arguments),
        cwd=cwd,
        input=stdin,
        capture_output=True,
        text=True,
        timeout=90,
        env={**os.environ, **QUIET},
    )


def write_task(folder: Path, body: str, decorator: str = "@stayfast.task", name: str = "job") -> str:
    (folder / f"{name}.py").write_text(f"import ctypes, os, signal, sys, time, stayfast\n{decorator}\n{body}\n")
    return f"{name}:work"


def start_work(folder: Path, task: str, queue: str, sink: str, *more: str, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        command("work", task, "--queue", queue, "--sink", sink, "--output", "json", *more),
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**os.environ, **QUIET, **environment},
    )


def shorten_leases(folder: Path, seconds: float) -> str:
    """The PYTHONPATH under which every process of the command has leases this short."""
    (folder / "sitecustomize.py").write_text(
        "import stayfast.batch.queue.postgres as p, stayfast.batch.queue.sqlite as s\n"
        "for queue in (p.PostgresQueue, s.SqliteQueue):\n"
        f"    queue.__init__.__kwdefaults__['lease_seconds'] = {seconds}\n"
    )
    return os.pathsep.join([str(folder), *sys.path])


def finish(process: subprocess.Popen[str], timeout: float = 60) -> tuple[int, dict[str, Any], str]:
    out, err = process.communicate(timeout=timeout)
    lines = [line for line in out.splitlines() if line.startswith("{")]
    return process.returncode, json.loads(lines[-1]) if lines else {}, err


def until(condition: Callable[[], Any], seconds: float = 20.0) -> Any:
    """The first true answer; a test that waits for real waits no longer than it must."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        answer = condition()
        if answer:
            return answer
        time.sleep(0.02)
    raise AssertionError(f"did not happen within {seconds} s")


def pairs(count: int) -> list[tuple[str, str]]:
    return [(f"k{n:05d}", json.dumps({"id": f"k{n:05d}", "v": n})) for n in range(count)]


def fill(place: Any, count: int) -> None:
    queue = open_queue(place.queue)
    queue.enqueue(pairs(count))
    queue.close()


def log_pid(path: Path) -> str:
    """A line of a task that writes down its process."""
    return f"    open({str(path)!r}, 'a').write(f'{{os.getpid()}}\\n')\n"
