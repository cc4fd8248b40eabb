"""``stayfast doctor`` on programs right and wrong: who got the signal, what ended how, which codes, which cure."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import pytest

from stayfast.proof.doctor.verdict import CODES, REMEDIES

SOURCE = Path(__file__).resolve().parents[2] / "src"
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(SOURCE), "STAYFAST_METADATA": "off"}
PYTHON = sys.executable
HANDLER = "import signal, sys, time\nsignal.signal(signal.SIGTERM, lambda *_: sys.exit({code}))\ntime.sleep({sleep})\n"


def doctor(*arguments: str, grace: float = 3, **options: Any) -> tuple[int, dict[str, Any]]:
    words = [PYTHON, "-m", "stayfast", "doctor", "--json", "--grace", str(grace), *arguments]
    ended = subprocess.run(words, env=ENVIRONMENT, capture_output=True, text=True, timeout=60, **options)
    assert ended.stdout, ended.stderr
    return ended.returncode, json.loads(ended.stdout)


def handles(code: int = 75, sleep: float = 60) -> list[str]:
    return [PYTHON, "-c", HANDLER.format(code=code, sleep=sleep)]


@pytest.fixture(params=["namespace", "session"])
def mode(request: pytest.FixtureRequest) -> list[str]:
    """As PID 1 of a namespace, and where there is none."""
    return [] if request.param == "namespace" else ["--no-namespace"]


def test_a_program_that_does_it_right(mode: list[str]) -> None:
    code, result = doctor(*mode, "--", *handles())
    assert code == 0
    assert result["problems"] == []
    assert result["advice"] is None
    assert (result["exit_code"], result["ended_by"], result["job_verdict"]) == (75, "exit", "resumes")
    assert len(result["received"]) == 1
    row = result["received"][0]
    assert row["handler"] is True
    assert row["after_seconds"] < 2
    assert "signal.signal" in row["cmd"]
    assert set(result) >= {"received", "exit_code", "ended_by", "seconds", "job_verdict", "problems"}
    if result["pid_namespace"]:
        assert row["pid"] == 1
    elif not mode:
        assert result["why_no_namespace"]


def test_a_shell_that_keeps_the_signal_for_itself(mode: list[str]) -> None:
    script = " ".join(["exec true; " * 0, PYTHON, "-c", f"'{HANDLER.format(code=75, sleep=60)}'; true"])
    code, result = doctor(*mode, "--", "sh", "-c", script)
    assert code == 1
    assert result["problems"] == ["signal-not-delivered", "grace-overrun"]
    assert result["received"] == []
    assert (result["exit_code"], result["ended_by"], result["job_verdict"]) == (137, "sigkill", "resumes")
    assert len(result["processes"]) == 2
    assert "exec" in result["cures"]["signal-not-delivered"]


def test_exec_in_the_shell_is_the_cure(mode: list[str]) -> None:
    script = f"exec {PYTHON} -c '{HANDLER.format(code=75, sleep=60)}'"
    assert doctor(*mode, "--", "sh", "-c", script)[1]["problems"] == []


def test_exit_zero(mode: list[str]) -> None:
    code, result = doctor(*mode, "--", *handles(0))
    assert code == 1
    assert result["problems"] == ["exit-zero"]
    assert result["job_verdict"] == "complete"


def test_who_never_heard_it_and_finished_by_itself_is_told_that_alone(mode: list[str]) -> None:
    _, result = doctor(*mode, "--after", "0.3", "--", "sh", "-c", "sleep 1.2; true", grace=10)
    assert (result["problems"], result["job_verdict"]) == (["signal-not-delivered"], "complete")


def test_a_failure_of_its_own(mode: list[str]) -> None:
    _, result = doctor(*mode, "--", *handles(3))
    assert (result["problems"], result["job_verdict"], result["exit_code"]) == ([], "failed", 3)
    assert "each interruption counts as a failure" in result["advice"]


def test_the_text_does_not_call_a_counted_failure_fine() -> None:
    words = [PYTHON, "-m", "stayfast", "doctor", "--grace", "3", "--", *handles(1)]
    ended = subprocess.run(words, env=ENVIRONMENT, capture_output=True, text=True, timeout=30)
    assert "against backoffLimit" in ended.stdout
    assert "advice: each interruption counts as a failure" in ended.stdout
    assert "no problem found" not in ended.stdout


@pytest.mark.parametrize(
    "command",
    [
        ["sh", "-c", "trap '' TERM; sleep 60; true"],
        [PYTHON, "-c", "import signal, time; signal.signal(15, signal.SIG_IGN); time.sleep(60)"],
    ],
    ids=["shell", "python"],
)
def test_ignored(command: list[str], mode: list[str]) -> None:
    _, result = doctor(*mode, "--", *command, grace=2)
    assert result["problems"] == ["ignored", "grace-overrun"]
    assert result["ended_by"] == "sigkill"


def test_pid_1_without_a_handler_is_not_even_killed(mode: list[str]) -> None:
    """What dies of SIGTERM on a laptop does not notice it in a container."""
    _, result = doctor(*mode, "--after", "1", "--", PYTHON, "-c", "import time; time.sleep(60)", grace=2)
    assert result["problems"] == ["signal-not-delivered", "grace-overrun"]


def test_a_handler_that_takes_too_long(mode: list[str]) -> None:
    program = "import signal, time\nsignal.signal(15, lambda *_: time.sleep(30))\ntime.sleep(60)"
    _, result = doctor(*mode, "--", PYTHON, "-c", program, grace=2)
    assert result["problems"] == ["grace-overrun"]
    assert result["received"][0]["handler"] is True
    assert 2 <= result["seconds"] < 10


def test_a_trap_that_waits_for_the_command_in_the_foreground() -> None:
    _, result = doctor("--", "bash", "-c", "trap 'exit 75' TERM; sleep 3; true", grace=10)
    assert result["problems"] == ["signal-late"]
    assert result["exit_code"] == 75
    assert "wait" in result["cures"]["signal-late"]
    _, result = doctor("--", "bash", "-c", "trap 'exit 75' TERM; sleep 60; true", grace=2)
    assert result["problems"] == ["signal-late", "grace-overrun"]


def test_a_trap_that_forwards_at_once_is_fine(mode: list[str]) -> None:
    """`trap + wait` is one of the right forms."""
    script = textwrap.dedent(f"""\
        {PYTHON} -c '{HANDLER.format(code=75, sleep=60)}' & pid=$!
        trap 'kill -TERM $pid; wait $pid; exit 75' TERM
        wait $pid
    """)
    _, result = doctor(*mode, "--after", "1.5", "--", "bash", "-c", script, grace=10)
    assert result["problems"] == []
    if result["traced"]:
        assert len(result["received"]) == 2


def test_a_signal_that_is_forwarded_late() -> None:
    program = f"""
import signal, subprocess, sys, time
child = subprocess.Popen({handles()!r})
def forward(*_):
    time.sleep(2)
    child.terminate()
    sys.exit(child.wait())
signal.signal(15, forward)
time.sleep(60)
"""
    _, result = doctor("--after", "1.5", "--", PYTHON, "-c", program, grace=10)
    if not result["traced"]:
        pytest.skip(f"tracing is refused here: {result['why_not_traced']}")
    assert result["problems"] == ["signal-late"]
    late = result["received"][1]
    assert late["after_seconds"] > 1.9
    assert late["handler"] is True


def test_a_launcher_that_leaves_its_worker_behind() -> None:
    program = f"""
import signal, subprocess, sys, time
subprocess.Popen({handles()!r})
signal.signal(15, lambda *_: sys.exit(75))
time.sleep(60)
"""
    _, result = doctor("--after", "1.5", "--", PYTHON, "-c", program)
    expected = ["signal-not-delivered", "orphans"] if result["traced"] else ["orphans"]
    assert result["problems"] == expected


def test_pythons_own_helpers_are_no_orphans() -> None:
    program = f"""
import multiprocessing.shared_memory as shared_memory
block = shared_memory.SharedMemory(create=True, size=100)
block.unlink()
{HANDLER.format(code=75, sleep=60)}
"""
    _, result = doctor("--after", "1.5", "--", PYTHON, "-c", program)
    assert len(result["processes"]) >= 2
    assert result["problems"] == []


@pytest.mark.parametrize(
    ("language", "program"),
    [
        ("perl", "$SIG{TERM} = sub { exit 75 }; sleep 1 while 1"),
        ("node", "process.on('SIGTERM', () => process.exit(75)); setInterval(() => 0, 1000)"),
    ],
)
def test_other_languages(language: str, program: str) -> None:
    if shutil.which(language) is None:
        pytest.skip(f"no {language}")
    _, result = doctor("--", language, "-e", program)
    assert result["problems"] == [], result
    assert result["received"][0]["handler"] is True
    assert result["exit_code"] == 75


def test_one_that_waits_for_the_signal_instead_of_handling_it() -> None:
    """``stayfast exec`` blocks its signals and takes them with sigtimedwait: no handler, and yet it hears."""
    script = "trap 'exit 1' TERM; sleep 60 & wait"
    _, result = doctor("--after", "1.5", "--", PYTHON, "-m", "stayfast", "exec", "--", "bash", "-c", script, grace=10)
    assert result["problems"] == []
    assert result["exit_code"] == 75


def test_a_program_that_ends_before_the_signal() -> None:
    code, result = doctor("--", "true")
    assert code == 0
    assert result["ended_before_signal"] is True
    assert result["problems"] == []


@pytest.mark.parametrize("script", ["sleep 60 &", "nohup sleep 60 > /dev/null 2>&1 & sleep 0.1"])
@pytest.mark.parametrize("namespace", [(), ("--no-namespace",)], ids=["namespace", "plain"])
def test_an_entrypoint_that_leaves_the_program_in_the_background(script: str, namespace: tuple[str, ...]) -> None:
    """The pod ends with PID 1, within milliseconds: nobody could look at the processes fast enough."""
    code, result = doctor(*namespace, "--", "sh", "-c", script)
    if not result["traced"]:
        pytest.skip("not traced here")
    assert code == 1
    assert result["ended_before_signal"] is True
    assert result["problems"] == ["orphans"]
    assert result["job_verdict"] == "complete"
    assert "background" in result["advice"]


def test_after_sends_it_at_that_time_ready_or_not() -> None:
    program = "import time; time.sleep(4)\n" + HANDLER.format(code=75, sleep=60)
    _, early = doctor("--after", "0.5", "--", PYTHON, "-c", program, grace=1)
    assert (early["problems"], early["still_starting"]) == (["signal-not-delivered", "grace-overrun"], False)
    assert 0.5 <= early["sent_after_seconds"] < 4
    _, late = doctor("--after", "8", "--", PYTHON, "-c", program)
    assert (late["problems"], late["exit_code"]) == ([], 75)
    assert late["sent_after_seconds"] >= 8


def test_the_output_of_the_program_is_not_mixed_into_the_json() -> None:
    words = [PYTHON, "-m", "stayfast", "doctor", "--json", "--", "echo", "noise"]
    ended = subprocess.run(words, env=ENVIRONMENT, capture_output=True, text=True, timeout=30)
    json.loads(ended.stdout)
    assert "noise" in ended.stderr


def test_the_text_names_process_verdict_and_cure() -> None:
    words = [PYTHON, "-m", "stayfast", "doctor", "--grace", "1", "--", "sh", "-c", "sleep 60; true"]
    ended = subprocess.run(words, env=ENVIRONMENT, capture_output=True, text=True, timeout=30)
    assert ended.returncode == 1
    for part in ("SIGTERM to PID 1", "never received it", "problem: signal-not-delivered", "exec form", "Kubernetes:"):
        assert part in ended.stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "give one of"),
        (["--", "/no/such/program"], "cannot start"),
        (["--image-entrypoint", ""], "is empty"),
        (["--image-entrypoint", "sh -c 'x"], "is not a command"),
        (["-f", "/no/such/file"], "cannot be read"),
        (["-f", "x", "--", "true"], "give one of"),
    ],
)
def test_bad_input_is_one_sentence(arguments: list[str], words: str) -> None:
    ended = subprocess.run(
        [PYTHON, "-m", "stayfast", "doctor", *arguments], env=ENVIRONMENT, capture_output=True, text=True, timeout=30
    )
    assert ended.returncode == 2
    assert words in ended.stderr
    assert ended.stderr.count("\n") == 1
    assert ended.stdout == ""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_it_leaves_nothing_behind_even_when_it_is_ended_itself(number: int, tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    script = f"echo $$ >> {pids}; sleep 4242 & echo $! >> {pids}; wait; sleep 4242"
    words = [PYTHON, "-m", "stayfast", "doctor", "--no-namespace", "--grace", "60", "--", "sh", "-c", script]
    process = subprocess.Popen(words, env=ENVIRONMENT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    until = time.monotonic() + 20
    while not pids.exists() or len(pids.read_text().split()) < 2:
        assert time.monotonic() < until
        time.sleep(0.02)
    time.sleep(1.5)
    process.send_signal(number)
    process.wait(20)
    until = time.monotonic() + 10
    for pid in pids.read_text().split():
        while Path(f"/proc/{pid}/stat").exists() and Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z":
            assert time.monotonic() < until, f"{pid} is still there"
            time.sleep(0.02)


MANIFEST = """
apiVersion: batch/v1
kind: Job
metadata: {name: train}
spec:
  template:
    spec:
      restartPolicy: Never
      containers:
        - {name: good, image: x, command: [python, train.py]}
        - {name: bad, image: x, command: [sh, -c, "python train.py | tee log"]}
        - {name: zero, image: x, command: [bash, -c, "trap 'save; exit 0' TERM; python train.py & wait"]}
"""


def test_a_manifest_is_judged_by_its_text(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(MANIFEST)
    code, result = doctor("-f", str(path))
    assert code == 1
    rows = {row["container"]: row for row in result["containers"]}
    assert rows["Job/train/good"]["problems"] == []
    assert rows["Job/train/bad"]["problems"] == ["signal-not-delivered", "grace-overrun"]
    assert rows["Job/train/zero"]["problems"] == ["exit-zero"]
    assert rows["Job/train/zero"]["job_verdict"] == "complete"
    assert result["problems"] == ["signal-not-delivered", "exit-zero", "grace-overrun"]
    ended = subprocess.run(
        [PYTHON, "-m", "stayfast", "doctor", "-f", "-"],
        env=ENVIRONMENT,
        input=MANIFEST,
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert ended.returncode == 1
    assert "tee log" in ended.stdout or "python train.py" in ended.stdout


def test_nothing_of_a_manifest_is_run_unless_asked(tmp_path: Path) -> None:
    path, trace = tmp_path / "job.yaml", tmp_path / "ran"
    path.write_text(MANIFEST.replace("python train.py | tee log", f"touch {trace}; sleep 60"))
    doctor("-f", str(path))
    assert not trace.exists()
    doctor("-f", str(path), "--run", grace=1)
    assert trace.exists()


def test_an_entrypoint_is_judged_and_run() -> None:
    _, result = doctor("--image-entrypoint", 'sh -c "sleep 60; true"', grace=1)
    assert result["problems"] == ["signal-not-delivered", "grace-overrun"]
    assert "by_text" in result
    _, result = doctor("--image-entrypoint", "no-such-trainer --lr 1")
    assert result["problems"] == []
    assert result["exit_code"] is None


def test_broken_yaml_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "bad.yaml").write_text("a: [1, 2\nb: {")
    words = [PYTHON, "-m", "stayfast", "doctor", "-f", str(tmp_path / "bad.yaml")]
    ended = subprocess.run(words, env=ENVIRONMENT, capture_output=True, text=True, timeout=30)
    assert ended.returncode == 2
    assert "Traceback" not in ended.stderr


def test_every_code_has_a_cure() -> None:
    assert set(REMEDIES) == set(CODES)


def test_as_an_ordinary_user() -> None:
    """In a user namespace, or with the reason why not; either way the verdict is right."""
    import tempfile

    if os.geteuid() != 0 or shutil.which("setpriv") is None:
        pytest.skip("becoming an ordinary user needs root and setpriv")
    with tempfile.TemporaryDirectory(prefix="stayfast-doctor-") as name:
        shutil.copytree(SOURCE, Path(name) / "src", ignore=shutil.ignore_patterns("__pycache__"))
        os.chmod(name, 0o755)
        python = next((path for path in (PYTHON, "/usr/bin/python3") if _runs_for_nobody(path)), None)
        if python is None:
            pytest.skip("no Python >= 3.11 that an ordinary user may run")
        program = HANDLER.format(code=75, sleep=60)
        words = [*NOBODY, python, "-m", "stayfast", "doctor", "--json", "--", python, "-c", program]
        environment = {"PATH": os.environ["PATH"], "PYTHONPATH": f"{name}/src", "PYTHONDONTWRITEBYTECODE": "1"}
        ended = subprocess.run(words, env=environment, cwd="/", capture_output=True, text=True, timeout=60)
    assert ended.returncode == 0, ended.stderr + ended.stdout
    result = json.loads(ended.stdout)
    assert result["exit_code"] == 75
    assert result["received"][0]["handler"] is True
    assert result["pid_namespace"] or result["why_no_namespace"]


NOBODY = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]


def _runs_for_nobody(python: str) -> bool:
    test = "import subprocess, sys; subprocess.check_call([sys.executable, '-V']); sys.exit(sys.version_info < (3, 11))"
    try:
        return subprocess.run([*NOBODY, python, "-c", test], capture_output=True, timeout=20, cwd="/").returncode == 0
    except OSError:
        return False


def test_where_tracing_is_refused_it_says_so_and_still_judges() -> None:
    program = """
import sys
import stayfast.process.ptrace as trace
trace.SignalTracer.attach = lambda self, first: "not here"
from stayfast.cli.main import main
sys.exit(main(sys.argv[1:]))
"""
    for command, codes in ((handles(), []), (handles(0), ["exit-zero"]), (["sh", "-c", "sleep 60; true"], None)):
        words = [PYTHON, "-c", program, "doctor", "--json", "--grace", "1", "--", *command]
        ended = subprocess.run(words, env=ENVIRONMENT, capture_output=True, text=True, timeout=60)
        result = json.loads(ended.stdout)
        assert result["traced"] is False
        assert result["why_not_traced"] == "not here"
        assert result["problems"] == (["signal-not-delivered", "grace-overrun"] if codes is None else codes)


def test_a_tree_that_forks_while_it_is_killed_does_not_hold_up_the_end() -> None:
    """A child that was born as its parent was killed is traced too, though no event has named it."""
    command = [PYTHON, "-m", "stayfast", "doctor", "--after", "0.3", "--grace", "0.3", "--"]
    for _ in range(15):
        ended = subprocess.run(
            [*command, "bash", "-c", "while true; do (:); done"], env=ENVIRONMENT, capture_output=True, timeout=60
        )
        assert ended.returncode == 1
