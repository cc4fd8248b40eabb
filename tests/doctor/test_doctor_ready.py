"""``stayfast doctor`` waits until the program is ready, and says so where it never was."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

SOURCE = Path(__file__).resolve().parents[2] / "src"
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(SOURCE), "STAYFAST_METADATA": "off"}
PYTHON = sys.executable
HANDLES = "import signal, sys, time\nsignal.signal(signal.SIGTERM, lambda *_: sys.exit(75))\ntime.sleep(600)\n"
SHORT_WAIT = """
import sys
import stayfast.proof.doctor.observer as observe
observe.READY_SECONDS = {seconds}
from stayfast.cli.main import main
sys.exit(main(sys.argv[1:]))
"""


def doctor(
    *words: str, grace: float = 3, cwd: Path | None = None, seconds: float | None = None
) -> tuple[int, Any, str]:
    start = ["-m", "stayfast"] if seconds is None else ["-c", SHORT_WAIT.format(seconds=seconds)]
    command = [PYTHON, *start, "doctor", "--json", "--grace", str(grace), "--", *words]
    ended = subprocess.run(command, env=ENVIRONMENT, cwd=cwd, capture_output=True, text=True, timeout=250)
    assert ended.stdout, ended.stderr
    return ended.returncode, json.loads(ended.stdout), ended.stderr


def is_fine(code: int, result: Any) -> None:
    assert (result["problems"], result["exit_code"], code) == ([], 75, 0), result
    assert result["still_starting"] is False


@pytest.mark.parametrize("module", ["torch", "transformers", "lightning"])
def test_slow_imports(module: str) -> None:
    if importlib.util.find_spec(module) is None:
        pytest.skip(f"no {module}")
    code, result, _ = doctor(PYTHON, "-c", f"import {module}\n{HANDLES}", grace=30)
    is_fine(code, result)


@pytest.mark.parametrize("seconds", [3, 20])
def test_an_import_that_rests(tmp_path: Path, seconds: int) -> None:
    """It uses no processor time and opens nothing, as one that waits for a network does."""
    (tmp_path / "slow.py").write_text(f"import time\ntime.sleep({seconds})\n")
    (tmp_path / "train.py").write_text(f"import slow\n{HANDLES}")
    code, result, said = doctor(PYTHON, "train.py", cwd=tmp_path)
    is_fine(code, result)
    assert result["sent_after_seconds"] >= seconds
    assert seconds == 3 or "--after S sends the signal sooner" in said


def test_a_handler_before_the_slow_imports_is_waited_for_no_longer() -> None:
    code, result, _ = doctor(PYTHON, "-c", HANDLES.replace("600", "30"))
    is_fine(code, result)
    assert result["sent_after_seconds"] < 20


@pytest.mark.parametrize(
    "script",
    [
        "sleep 4; exec {python} train.py",
        "{python} train.py & pid=$!; trap 'kill -TERM $pid; wait $pid; exit $?' TERM; wait $pid",
    ],
    ids=["exec", "trap"],
)
@pytest.mark.parametrize("form", ["inline", "file"])
def test_a_shell_in_front(tmp_path: Path, script: str, form: str) -> None:
    (tmp_path / "slow.py").write_text("import time\ntime.sleep(2)\n")
    (tmp_path / "train.py").write_text(f"import slow\n{HANDLES}")
    text = script.format(python=PYTHON)
    (tmp_path / "run.sh").write_text(text)
    code, result, _ = doctor("bash", *(["-c", text] if form == "inline" else ["run.sh"]), cwd=tmp_path)
    is_fine(code, result)
    if result["traced"]:
        assert len(result["received"]) == (1 if "exec" in script else 2)


def test_a_program_behind_exec_is_waited_for(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(f"import time\ntime.sleep(4)\n{HANDLES}")
    code, result, _ = doctor(PYTHON, "-m", "stayfast", "exec", "--", PYTHON, "train.py", cwd=tmp_path, grace=10)
    is_fine(code, result)
    if result["traced"]:
        assert any(row["handler"] and "train.py" in row["cmd"] for row in result["received"]), result["received"]


LAUNCHER = """
import signal, subprocess, sys, time
worker = subprocess.Popen([sys.executable, "train.py"])
def end(*_):
    worker.terminate()
    sys.exit(worker.wait())
signal.signal(signal.SIGTERM, end)
time.sleep(600)
"""


def test_a_launchers_workers_are_waited_for(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(f"import time\ntime.sleep(4)\n{HANDLES}")
    code, result, _ = doctor(PYTHON, "-c", LAUNCHER, cwd=tmp_path, grace=10)
    is_fine(code, result)
    if result["traced"]:
        assert [row["handler"] for row in result["received"]] == [True, True]


def test_a_helper_that_never_handles_it_is_not_taken_for_the_program() -> None:
    """PID 1 handles SIGTERM, and doctor waits for the process beside it: the line says so."""
    program = (
        f"import subprocess, sys\nsubprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n{HANDLES}"
    )
    _, result, said = doctor(PYTHON, "-c", program, seconds=5)
    assert result["exit_code"] == 75
    assert "not every process of the program handles SIGTERM yet" in said


def test_what_is_no_interpreter_is_not_given_the_whole_time() -> None:
    for words in (["sleep", "600"], ["bash", "-c", "while true; do sleep 0.05; done"]):
        _, result, _ = doctor(*words, grace=1)
        assert result["problems"] == ["signal-not-delivered", "grace-overrun"]
        assert result["sent_after_seconds"] < 30


def test_a_program_that_ignores_it_after_slow_imports_is_found() -> None:
    program = "import time; time.sleep(3); import signal; signal.signal(15, signal.SIG_IGN); time.sleep(600)"
    code, result, _ = doctor(PYTHON, "-c", program, grace=1)
    assert (result["problems"], code) == (["ignored", "grace-overrun"], 1)


def test_a_program_that_never_handles_it_is_found() -> None:
    code, result, _ = doctor(PYTHON, "-c", "import time; time.sleep(600)", grace=1)
    assert (result["problems"], code) == (["signal-not-delivered", "grace-overrun"], 1)
    assert result["sent_after_seconds"] >= 60
    assert result["still_starting"] is False


def test_a_handler_that_comes_after_all_the_time_is_no_verdict() -> None:
    program = "import time; time.sleep(5)\n" + HANDLES
    code, result, _ = doctor(PYTHON, "-c", program, grace=30, seconds=2)
    assert (result["problems"], result["job_verdict"], code) == ([], "unknown", 1), result
    assert result["still_starting"] is True
    assert (result["exit_code"], result["seconds"]) == (None, None)
    assert "still starting" in result["advice"]
    start = [PYTHON, "-c", SHORT_WAIT.format(seconds=2), "doctor", "--grace", "30", "--"]
    ended = subprocess.run([*start, PYTHON, "-c", program], env=ENVIRONMENT, capture_output=True, text=True, timeout=60)
    assert "still starting: PID 1 did not handle SIGTERM within" in ended.stdout
    assert "problem" not in ended.stdout


def test_many_processes_of_one_command_share_a_line() -> None:
    command = [
        PYTHON,
        "-m",
        "stayfast",
        "doctor",
        "--grace",
        "2",
        "--",
        "bash",
        "-c",
        "while true; do sleep 0.05; done",
    ]
    ended = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, timeout=60)
    rows = [line for line in ended.stdout.splitlines() if "  sleep 0.05" in line]
    assert len(rows) == 1, ended.stdout
    assert rows[0].split()[1] == "x"
    assert int(rows[0].split()[0]) > 1


def test_a_program_that_had_finished_has_lost_nothing() -> None:
    for words in (["--", "true"], ["--after", "0.3", "--", "sh", "-c", "sleep 2; true"]):
        command = [PYTHON, "-m", "stayfast", "doctor", "--grace", "20", *words]
        ended = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, timeout=60)
        assert "Kubernetes: the Job is Complete: the program finished by itself\n" in ended.stdout
        assert "never runs" not in ended.stdout
