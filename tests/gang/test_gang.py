"""Real gangs: torchrun, gloo, real signals and kills; the result must equal the uninterrupted one bit for bit."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("torch")

PROGRAM = Path(__file__).parent / "programs" / "ddp.py"
SCRIPTS = Path(sys.executable).parent


class Gang:
    """Runs the program as one gang after another over the same URL."""

    def __init__(self, folder: Path, name: str, *, ranks: int = 2, steps: int = 40, pause: float = 0.02) -> None:
        self.folder, self.name, self.ranks, self.steps, self.pause = folder, name, ranks, steps, pause
        self.out = folder / name

    def start(self, **environ: str) -> subprocess.Popen[str]:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        launch = [SCRIPTS / "torchrun", f"--nproc_per_node={self.ranks}", f"--master-port={port}", PROGRAM]
        arguments = [f"file://{self.out}.run", self.out, self.steps, self.pause]
        command = [SCRIPTS / "stayfast", "exec", "--", *launch, *arguments]
        settings = {"OMP_NUM_THREADS": "1", "STAYFAST_CHECKPOINT_SECONDS": "300", **environ}
        return subprocess.Popen(
            [str(word) for word in command], env={**os.environ, **settings}, stderr=subprocess.PIPE, text=True
        )

    def lines(self, rank: int) -> list[int]:
        path = Path(f"{self.out}.steps-{rank}")
        return [int(line) for line in path.read_text().split()] if path.exists() else []

    def wait_for_steps(self, count: int, process: subprocess.Popen[str]) -> None:
        deadline = time.monotonic() + 90
        while min(len(self.lines(rank)) for rank in range(self.ranks)) < count:
            assert process.poll() is None, process.communicate()[1]
            assert time.monotonic() < deadline, "the gang made no progress"
            time.sleep(0.02)

    def finals(self) -> set[str]:
        return {Path(f"{self.out}.final-{rank}").read_text() for rank in range(self.ranks)}

    def head(self) -> dict:
        return json.loads(Path(f"{self.out}.run/HEAD.json").read_text())


def end(process: subprocess.Popen[str]) -> tuple[int, str]:
    _, errors = process.communicate(timeout=120)
    return process.returncode, errors


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    gang = Gang(tmp_path_factory.mktemp("gang"), "base")
    code, errors = end(gang.start())
    assert code == 0, errors
    return gang.finals()


def test_notice_stops_all_ranks_at_one_step_and_nothing_is_lost(tmp_path: Path, uninterrupted: set[str]) -> None:
    gang = Gang(tmp_path, "a")
    for count in (8, 22):
        process = gang.start()
        gang.wait_for_steps(count, process)
        process.send_signal(signal.SIGTERM)
        code, errors = end(process)
        assert code == 75, errors
        assert gang.lines(0) == gang.lines(1), "all ranks stop after the same step"
    code, errors = end(gang.start())
    assert code == 0, errors
    assert gang.finals() == uninterrupted
    assert gang.lines(0) == list(range(40)), "no step ran twice"
    outcomes = [row["outcome"] for row in gang.head()["attempts"]]
    assert outcomes == ["interrupted", "interrupted", "finished"]


def _rank_pids(process: subprocess.Popen[str]) -> list[int]:
    """The ranks are the grandchildren: exec, torchrun, ranks."""
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    launcher = children[0]
    return [int(pid) for pid in Path(f"/proc/{launcher}/task/{launcher}/children").read_text().split()]


def test_killed_rank_is_an_interruption_of_the_others(tmp_path: Path, uninterrupted: set[str]) -> None:
    gang = Gang(tmp_path, "k")
    process = gang.start(SAVE_EVERY="5")
    gang.wait_for_steps(18, process)
    os.kill(_rank_pids(process)[1], signal.SIGKILL)
    code, errors = end(process)
    assert code == 75, errors
    assert '"cause":"peer-lost"' in errors
    committed = gang.head()["checkpoints"][0]["step"]
    assert committed >= 10, "saves before the kill are committed for the whole world"
    code, errors = end(gang.start())
    assert code == 0, errors
    assert gang.finals() == uninterrupted


def test_after_a_damaged_checkpoint_all_ranks_save_at_the_next_notice(tmp_path: Path, uninterrupted: set[str]) -> None:
    """The notice comes before the step of the damaged one is reached again: no rank may take that step for saved."""
    gang = Gang(tmp_path, "d")
    process = gang.start(SAVE_EVERY="10")
    gang.wait_for_steps(16, process)
    process.send_signal(signal.SIGTERM)
    code, errors = end(process)
    assert code == 75, errors
    newest, before = gang.head()["checkpoints"][:2]
    part = next(Path(f"{gang.out}.run/checkpoints").glob(f"{newest['step']:012d}-*/*part*"))
    part.write_bytes(bytes(part.stat().st_size))

    slow = Gang(tmp_path, "d", pause=0.5)
    done = len(slow.lines(0))
    process = slow.start()
    slow.wait_for_steps(done + 1, process)
    process.send_signal(signal.SIGTERM)
    code, errors = end(process)
    assert code == 75, errors
    again = slow.lines(0)[done:]
    assert slow.lines(1)[done:] == again
    assert again[0] == before["step"] + 1
    assert again[-1] < newest["step"], "the machine was too slow for this test to mean anything"
    assert gang.head()["checkpoints"][0]["step"] == again[-1]

    code, errors = end(gang.start())
    assert code == 0, errors
    assert gang.finals() == uninterrupted
    assert gang.lines(0)[done + len(again) :] == list(range(again[-1] + 1, 40))


def test_another_world_size_is_refused_in_one_sentence(tmp_path: Path) -> None:
    gang = Gang(tmp_path, "w", steps=6)
    code, errors = end(gang.start())
    assert code == 0, errors
    wider = Gang(tmp_path, "w", ranks=3, steps=12)
    code, errors = end(wider.start())
    assert code == 1
    assert "was saved by 2 ranks, this world has 3" in errors


def test_periodic_checkpoints_are_agreed_without_asking(tmp_path: Path) -> None:
    gang = Gang(tmp_path, "p", steps=150, pause=0.01)
    code, errors = end(gang.start(STAYFAST_CHECKPOINT_SECONDS="0.5"))
    assert code == 0, errors
    head = gang.head()
    assert head["finished"] is True
    assert all(len(row["others"]) == 1 for row in head["checkpoints"])
    assert len(head["checkpoints"]) == 2, "the final one and one on the way"


@pytest.mark.parametrize(("leaving", "next_step"), [("01", 5), ("1", 0), ("0", 0)])
def test_ranks_that_leave_early_keep_their_code_and_wait_briefly_for_the_others(
    tmp_path: Path, leaving: str, next_step: int
) -> None:
    program = Path(__file__).parent / "programs" / "leaving.py"
    command = [SCRIPTS / "stayfast", "exec", "--", SCRIPTS / "torchrun", "--nproc_per_node=2", "--standalone", program]

    def start(ranks: str) -> tuple[int, str]:
        words = [str(word) for word in [*command, f"file://{tmp_path}/run", ranks]]
        environ = {**os.environ, "OMP_NUM_THREADS": "1"}
        ended = subprocess.run(words, env=environ, capture_output=True, text=True, timeout=90, check=False)
        return ended.returncode, ended.stderr

    code, errors = start(leaving)
    assert code == 3, errors
    head = json.loads((tmp_path / "run" / "HEAD.json").read_text())
    assert max((row["step"] + 1 for row in head["checkpoints"]), default=0) == next_step
    assert ("other ranks did not end there" in errors) == (next_step == 0)
    code, errors = start("none")
    assert code == 0, errors


# -- periodic checkpoints of a gang with short steps

CADENCE = Path(__file__).parent / "programs" / "cadence.py"


class Periodic:
    """Two ranks with a cadence of their own, under torchrun alone."""

    def __init__(self, folder: Path, cadence: str, *, steps: int = 30, pause: float = 0.005) -> None:
        self.out, self.cadence, self.steps, self.pause = folder / "p", cadence, steps, pause

    def run(self, **environ: str) -> subprocess.CompletedProcess[str]:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        launch = [SCRIPTS / "torchrun", "--nproc_per_node=2", f"--master-port={port}", CADENCE]
        command = [*launch, f"file://{self.out}.run", self.out, self.steps, self.pause, self.cadence]
        return subprocess.run(
            [str(word) for word in command],
            env={**os.environ, "OMP_NUM_THREADS": "1", **environ},
            capture_output=True,
            text=True,
            timeout=200,
            check=False,
        )

    def commits(self) -> list[int]:
        head = json.loads(Path(f"{self.out}.run/HEAD.json").read_text())
        return sorted(row["step"] for row in head["checkpoints"])

    def lines(self, rank: int) -> list[int]:
        return [int(line.split()[0]) for line in Path(f"{self.out}.steps-{rank}").read_text().splitlines()]

    def finals(self) -> set[str]:
        return {Path(f"{self.out}.final-{rank}").read_text() for rank in range(2)}

    def right(self) -> str:
        """What the program computes without an interruption: the sum of 3 * step."""
        return str([float(3 * sum(range(self.steps)))] * 8)


@pytest.mark.parametrize(("count", "pause"), [(3, 0.005), (4, 0.02), (10, 0.05)])
def test_short_steps_commit_as_often_as_asked(tmp_path: Path, count: int, pause: float) -> None:
    gang = Periodic(tmp_path, f"EverySteps({count})", pause=pause)
    done = gang.run(WAIT="1")
    assert done.returncode == 0, done.stderr
    assert gang.commits() == sorted({*range(count - 1, 30, count), 29})
    assert gang.finals() == {gang.right()}


@pytest.mark.parametrize("rank", ["0", "1"])
def test_killed_rank_costs_the_steps_after_the_newest_commit(tmp_path: Path, rank: str) -> None:
    gang = Periodic(tmp_path, "EverySteps(4)", pause=0.02)
    done = gang.run(WAIT="1", KILL_AT="14", KILL_RANK=rank)
    assert done.returncode != 0
    assert gang.commits() == [3, 7, 11]
    done = gang.run(WAIT="1")
    assert done.returncode == 0, done.stderr
    assert gang.lines(0) == gang.lines(1) == [*range(14), *range(12, 30)], "two steps ran twice"
    assert gang.finals() == {gang.right()}


@pytest.mark.parametrize("rank", ["0", "1"])
def test_rank_that_stalls_loses_no_checkpoint(tmp_path: Path, rank: str) -> None:
    gang = Periodic(tmp_path, "EverySteps(5) | EverySeconds(0.3)", steps=40, pause=0.02)
    done = gang.run(STALL_AT="12", STALL_RANK=rank)
    assert done.returncode == 0, done.stderr
    assert "could not be saved" not in done.stderr
    assert len(gang.commits()) >= 4
    assert gang.finals() == {gang.right()}


def test_seconds_are_kept_by_short_steps(tmp_path: Path) -> None:
    gang = Periodic(tmp_path, "EverySeconds(0.5)", steps=400, pause=0.005)
    done = gang.run()
    assert done.returncode == 0, done.stderr
    stamps = [line.split() for line in Path(f"{gang.out}.steps-0").read_text().splitlines()]
    ended = {int(step): float(at) for step, at in stamps}
    commits = gang.commits()
    seconds = ended[399] - ended[0]
    assert len(commits) >= seconds / 0.5 / 2, (commits, seconds)
    assert gang.finals() == {gang.right()}
