"""``stayfast doctor`` where a program cannot show itself: its files are not here, an init is in front, it starts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from stayfast.proof.doctor.static_check import judge_command

SOURCE = Path(__file__).resolve().parents[2] / "src"
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(SOURCE), "STAYFAST_METADATA": "off"}
PYTHON = sys.executable
LATE = "import time; time.sleep(2); import signal, sys; signal.signal(15, lambda *_: sys.exit(75)); time.sleep(60)"
MANIFEST = """\
apiVersion: batch/v1
kind: Job
metadata: {name: train}
spec:
  template:
    spec:
      containers:
        - {name: main, image: x, command: [sh, -c, "no-such-trainer /app/train.py; echo done"]}
"""


def doctor(*arguments: str) -> tuple[dict[str, Any], str]:
    words = [PYTHON, "-m", "stayfast", "doctor", "--json", "--grace", "3", *arguments]
    ended = subprocess.run(words, env=ENVIRONMENT, capture_output=True, text=True, timeout=60)
    assert ended.stdout, ended.stderr
    return json.loads(ended.stdout), ended.stderr


def test_an_entrypoint_whose_files_are_not_here_is_judged_by_its_text() -> None:
    """That the echo after it leaves with 0 here says nothing about the Job."""
    result, said = doctor("--image-entrypoint", "sh -c 'no-such-trainer /app/train.py; echo done'")
    assert result["problems"] == ["signal-not-delivered", "grace-overrun"]
    assert set(result["cures"]) == set(result["problems"])
    assert (result["job_verdict"], result["exit_code"], result["ended_by"]) == ("resumes", None, "sigkill")
    assert result["ended_before_signal"] is True
    assert "ended by itself with 0 before the signal: judged by its text alone" in said


def test_a_command_of_a_manifest_whose_files_are_not_here(tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text(MANIFEST)
    result, _ = doctor("-f", str(tmp_path / "job.yaml"), "--run")
    assert result["problems"] == ["signal-not-delivered", "grace-overrun"]
    assert result["job_verdict"] == "resumes"


def test_a_program_in_the_background_by_the_text_alone() -> None:
    result = judge_command(["sh", "-c", "mkdir -p logs; nohup python train.py > logs/out &"])
    assert result["problems"] == ["orphans"]
    assert result["job_verdict"] == "complete"
    assert judge_command(["sh", "-c", "python train.py & wait"])["problems"] == [
        "signal-not-delivered",
        "grace-overrun",
    ]


@pytest.mark.parametrize("init", [["tini", "--"], ["/sbin/catatonit", "--"]], ids=["tini", "catatonit"])
def test_an_init_in_front_ends_the_shell_but_not_the_program(init: list[str]) -> None:
    result = judge_command([*init, "sh", "-c", "python train.py; echo done"])
    assert result["problems"] == ["signal-not-delivered", "orphans"]
    assert (result["job_verdict"], result["ended_by"]) == ("resumes", "exit")
    assert f"{init[0]} passes SIGTERM to sh alone" in result["by_text"]


def test_an_init_that_signals_the_whole_group_reaches_the_program() -> None:
    assert judge_command(["tini", "-g", "--", "sh", "-c", "python train.py; echo done"])["problems"] == []


def test_a_handler_that_shows_after_the_signal_is_told_apart() -> None:
    result, _ = doctor("--after", "0.3", "--", PYTHON, "-c", LATE)
    assert result["problems"] == ["signal-not-delivered", "grace-overrun"]
    assert "--after" in result["advice"]
    result, _ = doctor("--after", "0.3", "--", PYTHON, "-c", "import time; time.sleep(60)")
    assert result["problems"] == ["signal-not-delivered", "grace-overrun"]
    assert result["advice"] is None
