"""One run of a cell: start, signal in the middle, look at what was saved, resume, compare with a run left alone."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from stayfast.process.tree import descendants_of

HERE = Path(__file__).resolve().parent
SOURCE = HERE.parents[1] / "src"
PROGRAMS = {
    "plain": "plain.py",
    "persistent": "persistent.py",
    "stateful": "stateful.py",
    "sampler": "sampler.py",
    "lightning": "lightning_fit.py",
    "hugging-face": "hugging_face.py",
    "accelerate": "accelerate_loop.py",
}
LAUNCHERS = ("python", "exec", "torchrun", "exec-torchrun")
SIGNALS = ("term-main", "term-group", "int-group")
TOTAL = 36
LONGEST_SECONDS = 240.0


class Starter(Protocol):
    """How a command becomes a process: a fresh one, or a fork of one that has imported everything."""

    def start(self, argv: list[str], env: dict[str, str], folder: Path) -> int: ...

    def poll(self, pid: int) -> int | None: ...


class Fresh:
    """Ordinary processes."""

    def __init__(self) -> None:
        self._running: dict[int, subprocess.Popen[bytes]] = {}

    def start(self, argv: list[str], env: dict[str, str], folder: Path) -> int:
        with open(folder / "log", "ab") as log:
            process = subprocess.Popen(
                argv, env=env, cwd=folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        self._running[process.pid] = process
        return process.pid

    def poll(self, pid: int) -> int | None:
        return self._running[pid].poll()


class Preloaded:
    """Forks of a process that has imported everything: see preloaded.py."""

    def __init__(self) -> None:
        values = environment(PYTHONPATH=f"{SOURCE}:{HERE / 'programs'}")
        self._process = subprocess.Popen(
            [sys.executable, str(HERE / "preloaded.py")],
            env=values,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self._lock = threading.Lock()
        ready = json.loads(self._read())
        assert ready["threads"] == 1, "a fork would lose the other threads"

    def start(self, argv: list[str], env: dict[str, str], folder: Path) -> int:
        pid: int = self._ask({"start": argv, "env": env, "cwd": str(folder), "err": str(folder / "log")})
        return pid

    def poll(self, pid: int) -> int | None:
        code: int | None = self._ask({"poll": pid})
        return code

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(30)

    def _ask(self, order: dict[str, Any]) -> Any:
        assert self._process.stdin is not None
        with self._lock:
            self._process.stdin.write(json.dumps(order) + "\n")
            self._process.stdin.flush()
            return json.loads(self._read())

    def _read(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline()


@dataclass
class Result:
    """What one run showed; ``problems`` is empty when all of it is right."""

    cell: str
    signalled_after: int = -1
    seconds: float = 0.0
    saved: bool = False
    code: bool = False
    nothing_left: bool = False
    equal: bool = False
    problems: list[str] = field(default_factory=list)


def environment(**variables: object) -> dict[str, str]:
    """Without what the caller's own launcher has set."""
    drop = ("STAYFAST_", "MATRIX_", "TORCHELASTIC_", "PYTEST_", "COV_")
    names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT", "JOB_COMPLETION_INDEX")
    values = {name: value for name, value in os.environ.items() if not name.startswith(drop) and name not in names}
    values |= dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    values |= {"PYTHONPATH": str(SOURCE), "GLOO_SOCKET_IFNAME": "lo", "STAYFAST_METADATA": "off"}
    values |= {"TOKENIZERS_PARALLELISM": "false", "HF_HUB_OFFLINE": "1", "STAYFAST_GRACE_SECONDS": "60"}
    return values | {name: str(value) for name, value in variables.items()}


def command(kind: str, launcher: str) -> list[str]:
    program = [sys.executable, str(HERE / "programs" / PROGRAMS[kind])]
    if launcher.endswith("torchrun"):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        options = ["--nproc-per-node=2", "--master-addr=127.0.0.1", f"--master-port={port}"]
        program = [sys.executable, "-m", "torch.distributed.run", *options, program[1]]
    if launcher.startswith("exec"):
        program = [sys.executable, "-m", "stayfast", "exec", "--", *program]
    return program


def ranks(launcher: str) -> range:
    return range(2 if launcher.endswith("torchrun") else 1)


class Expected:
    """The results, per rank, of programs that are left alone and open no run; each is run once."""

    def __init__(self, starter: Starter, folder: Path) -> None:
        self._starter, self._folder = starter, folder
        self._known: dict[tuple[str, int], list[str]] = {}

    def of(self, kind: str, launcher: str) -> list[str]:
        world = len(ranks(launcher))
        if (kind, world) not in self._known:
            self._known[kind, world] = self._run(kind, "torchrun" if world == 2 else "python")
        return self._known[kind, world]

    def _run(self, kind: str, launcher: str) -> list[str]:
        folder = self._folder / f"{kind}-{launcher}"
        folder.mkdir()
        code = wait(self._starter, begin(self._starter, kind, launcher, folder))
        assert code == 0, (folder / "log").read_text()[-3000:]
        return results(folder, launcher)


def begin(starter: Starter, kind: str, launcher: str, folder: Path, url: str = "") -> int:
    variables = {"MATRIX_FOLDER": folder, "MATRIX_PAUSE_SECONDS": "0.04"} | ({"MATRIX_URL": url} if url else {})
    return starter.start(command(kind, launcher), environment(**variables), folder)


def wait(starter: Starter, pid: int, seconds: float = LONGEST_SECONDS) -> int | None:
    """The exit code, or None when the program had to be killed."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        code = starter.poll(pid)
        if code is not None:
            return code
        time.sleep(0.05)
    for each in [*descendants_of(pid), pid]:
        os.kill(each, signal.SIGKILL)
    while starter.poll(pid) is None:
        time.sleep(0.05)
    return None


def steps(folder: Path, rank: int) -> list[int]:
    try:
        return [int(line) for line in (folder / f"steps-{rank}").read_text().split()]
    except FileNotFoundError:
        return []


def results(folder: Path, launcher: str) -> list[str]:
    paths = [folder / f"result-{rank}" for rank in ranks(launcher)]
    return [path.read_text() if path.exists() else "none" for path in paths]


def reports(folder: Path) -> dict[int, dict[str, Any]]:
    """The outcome of each rank; `exec` with a single program reports in its place."""
    ranked: dict[int, dict[str, Any]] = {}
    supervised: dict[int, dict[str, Any]] = {}
    text = (folder / "log").read_text(errors="replace")
    for place in re.finditer(re.escape('{"outcome"'), text):  # other processes may write to the same line
        try:
            value, _end = json.JSONDecoder().raw_decode(text, place.start())
        except ValueError:
            continue
        if value.get("action") == "attempt_ended":
            ranked[value["rank"]] = value
        elif value.get("action") == "program_ended":
            supervised[value["rank"]] = value
    return ranked or supervised


def send(pid: int, how: str) -> None:
    if how == "term-main":
        os.kill(pid, signal.SIGTERM)
    else:
        os.killpg(pid, signal.SIGINT if how == "int-group" else signal.SIGTERM)


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def run_once(
    starter: Starter, kind: str, launcher: str, how: str, folder: Path, expected: list[str], seed: int
) -> Result:
    """Interrupt a run at a moment that the seed chooses, resume it, and judge both."""
    began = time.monotonic()
    result = Result(f"{kind} / {launcher} / {how}")
    chance = random.Random(f"{kind}/{launcher}/{how}/{seed}")
    folder.mkdir()
    url = f"file://{folder}/run"
    pid = begin(starter, kind, launcher, folder, url)
    after, delay = chance.randint(3, 18), chance.uniform(0, 0.06)
    until = time.monotonic() + LONGEST_SECONDS
    while len(steps(folder, 0)) < after and starter.poll(pid) is None and time.monotonic() < until:
        time.sleep(0.01)
    time.sleep(delay)
    result.signalled_after = after
    processes = [pid, *descendants_of(pid)]
    code = starter.poll(pid)
    if code is None:
        send(pid, how)
        code = wait(starter, pid, 120)
    judge_ending(result, folder, launcher, code)
    until = time.monotonic() + 15
    while any(map(is_alive, processes)) and time.monotonic() < until:
        time.sleep(0.1)
    left = [each for each in processes if is_alive(each)]
    result.nothing_left = not left
    for each in left:
        result.problems.append(f"process {each} is left")
        os.kill(each, signal.SIGKILL)
    (folder / "log").rename(folder / "log-interrupted")
    code = wait(starter, begin(starter, kind, launcher, folder, url))
    result.equal = code == 0 and results(folder, launcher) == expected
    if not result.equal:
        result.problems.append(f"resumed: code {code}, results {results(folder, launcher)} instead of {expected}")
    for rank in ranks(launcher):
        if steps(folder, rank) != list(range(TOTAL)):
            result.problems.append(f"rank {rank} ran the steps {steps(folder, rank)}")
            result.saved = False
    result.seconds = time.monotonic() - began
    return result


def judge_ending(result: Result, folder: Path, launcher: str, code: int | None) -> None:
    said = reports(folder)
    codes = [said.get(rank, {}).get("code") for rank in ranks(launcher)]
    if launcher == "torchrun":  # it turns every code into 1
        result.code = codes == [75, 75] and code not in (None, 0)
    else:
        result.code = code == 75
    if not result.code:
        result.problems.append(f"exit code {code}, the ranks' {codes}")
    result.saved = True
    try:
        newest = max(item["step"] for item in json.loads((folder / "run" / "HEAD.json").read_text())["checkpoints"])
    except (OSError, ValueError):
        newest = -1
    for rank in ranks(launcher):
        last = len(steps(folder, rank)) - 1
        saved = said.get(rank, {}).get("saved")
        if newest != last or saved != f"step {last}":
            result.saved = False
            result.problems.append(f"rank {rank} finished step {last}, reported {saved!r}, the newest is {newest}")
    if result.problems:
        result.problems.append((folder / "log").read_text(errors="replace")[-1500:])
