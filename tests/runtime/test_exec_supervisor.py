"""``stayfast exec`` around programs of every kind: what it forwards, what it ends, and which code it leaves with."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from runtime_children import STAYFAST, Child, environment, held

TRAINER = """
import sys, time, stayfast
with stayfast.run(total_steps=int(sys.argv[1])) as run:
    run.on_drain(lambda: time.sleep(float(sys.argv[2])), name="upload")
    for step in run.steps():
        print("step", step, flush=True)
        time.sleep(0.02)
"""
SECONDS = {"STAYFAST_GRACE_SECONDS": "4", "STAYFAST_MARGIN_SECONDS": "1"}


@pytest.fixture
def trainer(tmp_path: Path) -> Path:
    path = tmp_path / "trainer.py"
    path.write_text(TRAINER)
    return path


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.parametrize(
    ("command", "code"),
    [
        (["true"], 0),
        (["sh", "-c", "exit 7"], 7),
        (["sh", "-c", "exit 75"], 75),
        (["sh", "-c", "kill -KILL $$"], 137),
        (["sh", "-c", "kill -SEGV $$"], 139),
        (["/no/such/program"], 127),
        (["/etc/hostname"], 126),
    ],
)
def test_without_a_notice_the_programs_own_code_stands(command: list[str], code: int) -> None:
    ended = held("exec", "--", *command).end()
    assert ended.code == code
    if code in (126, 127):
        assert ended.err.count("\n") == 1
        assert command[0] in ended.err


@pytest.mark.parametrize(("leave", "code"), [("break", 0), ("sys.exit(3)", 3)])
def test_a_run_that_was_left_early_is_stopped_and_keeps_its_code(tmp_path: Path, leave: str, code: int) -> None:
    program = f"""
import stayfast, sys
with stayfast.run("file://{tmp_path}/run", total_steps=10) as run:
    for step in run.steps():
        if step == 3:
            {leave}
"""
    ended = held("exec", "--", sys.executable, "-c", program).end()
    assert ended.code == code
    said = {line["action"]: (line["outcome"], line["code"], line["saved"]) for line in ended.reports}
    assert said == dict.fromkeys(("attempt_ended", "program_ended"), ("stopped", code, "step 3"))


def test_a_finished_program_is_silent_and_a_failed_one_is_reported() -> None:
    assert held("exec", "--", "true").end().err == ""
    assert held("exec", "--", "false").end().report["outcome"] == "failed"


@pytest.mark.parametrize(
    "shell", ["bash -c 'python T 999 0.8'", "bash -c 'python T 999 2.5; true'", "sh -c 'python T 999 0.8 | cat'"]
)
def test_sigterm_to_a_shell_tree_gives_the_trainer_its_whole_grace(trainer: Path, shell: str) -> None:
    """A shell that dies at once, or never forwards, costs nothing: the trainer drains and its word counts."""
    line = shell.replace("python", sys.executable).replace("T", str(trainer), 1)
    import shlex

    child = held("exec", "--", *shlex.split(line), **SECONDS)
    child.wait_for("step 3")
    child.send()
    ended = child.end()
    assert ended.code == 75
    assert ended.seconds < 4
    ranks = [report for report in ended.reports if report["action"] == "attempt_ended"]
    assert ranks[0]["drain"][0]["outcome"] == "done"
    assert ended.reports[-1]["action"] == "program_ended"


def test_what_reads_the_trainers_output_outlives_it(tmp_path: Path) -> None:
    """`| tee log` dies of SIGTERM, and a trainer that goes on printing dies of the broken pipe."""
    talker = tmp_path / "talker.py"
    talker.write_text(
        "import signal, sys, time\n"
        "left = []\n"
        "signal.signal(signal.SIGTERM, lambda *_: left.append(20))\n"
        "print('ready', flush=True)\n"
        "while not left or left[0]:\n"
        "    time.sleep(0.02)\n"
        "    if left:\n"
        "        left[0] -= 1\n"
        "        print('saving', left[0], flush=True)\n"
        f"open({str(tmp_path / 'saved')!r}, 'w').close()\n"
    )
    log = tmp_path / "log"
    child = held("exec", "--", "sh", "-c", f"{sys.executable} {talker} | tee {log}; true", **SECONDS)
    child.wait_for("ready")
    child.send()
    assert child.end().code == 75
    assert (tmp_path / "saved").exists()
    assert log.read_text().endswith("saving 0\n")


@pytest.mark.parametrize(("options", "code"), [([], 75), (["--done-file", "DONE"], 0), (["--done-file", "NONE"], 75)])
def test_an_interrupted_program_that_says_0_needs_somebody_to_vouch(
    tmp_path: Path, options: list[str], code: int
) -> None:
    (tmp_path / "DONE").write_text("")
    options = [str(tmp_path / word) if word.isupper() else word for word in options]
    child = held("exec", *options, "--", "sh", "-c", "trap 'exit 0' TERM; echo ready; while :; do sleep 0.05; done")
    child.wait_for("ready")
    child.send()
    assert child.end().code == code


@pytest.mark.parametrize(("check", "code"), [("true", 0), ("false", 75), ("sleep 60", 75)])
def test_done_check_is_a_shell_command_with_a_deadline(check: str, code: int) -> None:
    script = "trap 'exit 0' TERM; echo ready; while :; do sleep 0.05; done"
    child = held("exec", "--done-check", check, "--", "sh", "-c", script, STAYFAST_GRACE_SECONDS="2")
    child.wait_for("ready")
    child.send()
    ended = child.end()
    assert ended.code == code
    assert ended.seconds < 2


def test_a_program_that_ignores_the_notice_is_killed_inside_the_window() -> None:
    child = held(
        "exec", "--", "sh", "-c", "trap '' TERM; echo ready; while :; do sleep 0.05; done", STAYFAST_GRACE_SECONDS="2"
    )
    child.wait_for("ready")
    child.send()
    ended = child.end()
    assert ended.code == 75
    assert 1.4 < ended.seconds < 2
    assert "killed at the deadline" in ended.report["detail"]


def test_a_program_stuck_in_c_is_ended_from_outside() -> None:
    """The watchdog inside cannot run while C holds the interpreter; exec does not need it to."""
    loop = "for step in run.steps():\n  print('in', flush=True)\n  sum(range(1 << 40))"
    program = f"import stayfast\nwith stayfast.run() as run:\n {loop}"
    child = held("exec", "--", sys.executable, "-c", program, STAYFAST_GRACE_SECONDS="2")
    child.wait_for("in")
    time.sleep(0.1)
    child.send()
    ended = child.end()
    assert ended.code == 75
    assert ended.seconds < 2


def test_double_forked_daemons_and_new_sessions_end_with_the_program(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    script = f"""
        setsid sh -c 'echo $$ >> {pids}; trap "" TERM HUP; while :; do sleep 0.05; done' &
        (setsid sh -c 'echo $$ >> {pids}; exec sleep 100' &) &
        while [ $(cat {pids} | wc -l) -lt 2 ]; do sleep 0.02; done
        exit 3
    """
    ended = held("exec", "--", "sh", "-c", script).end()
    assert ended.code == 3
    assert [alive(int(pid)) for pid in pids.read_text().split()] == [False, False]


def test_it_signals_its_direct_child_alone(tmp_path: Path) -> None:
    script = """
        trap 'echo child heard; wait; exit 0' TERM
        sh -c 'trap "echo grandchild heard" TERM; echo ready; for i in 1 2 3 4 5; do sleep 0.1; done
               echo grandchild done' &
        wait; wait
    """
    child = held("exec", "--", "sh", "-c", script)
    child.wait_for("ready")
    child.send()
    ended = child.end()
    assert "child heard" in ended.out
    assert "grandchild heard" not in ended.out
    assert "grandchild done" in ended.out
    assert ended.code == 75


def test_a_child_that_dies_of_sigkill_during_the_notice_is_still_interrupted() -> None:
    child = held("exec", "--", "sh", "-c", "trap '' TERM; echo ready $$; while :; do sleep 0.05; done")
    pid = int(child.wait_for("ready").split()[1])
    child.send()
    time.sleep(0.1)
    os.kill(pid, signal.SIGKILL)
    ended = child.end()
    assert ended.code == 75
    assert ended.seconds < 2


def test_other_signals_are_passed_on() -> None:
    child = held("exec", "--", "sh", "-c", "trap 'echo usr1; exit 4' USR1; echo ready; while :; do sleep 0.05; done")
    child.wait_for("ready")
    child.send(signal.SIGUSR1)
    ended = child.end()
    assert "usr1" in ended.out
    assert ended.code == 4


def test_ranks_speak_louder_than_their_launcher(tmp_path: Path) -> None:
    """A launcher that turns 75 into 1 is corrected; a rank that failed by itself is believed."""
    cases = [
        (["interrupted", "interrupted"], 1, 75),
        (["interrupted", "failed"], 1, 1),
        (["failed"], 0, 1),
        (["finished"], 0, 0),
    ]
    for outcomes, launcher_code, expected in cases:
        script = ""
        for rank, outcome in enumerate(outcomes):
            word = json.dumps({"outcome": outcome, "rank": rank, "cause": "peer-lost"})
            script += f"echo '{word}' > $STAYFAST_OUTCOME_DIR/rank-{rank}-x.json\n"
        ended = held("exec", "--", "sh", "-c", f"{script} exit {launcher_code}").end()
        assert ended.code == expected, outcomes
        if expected == 75:
            assert ended.report["cause"] == "peer-lost"


@pytest.mark.parametrize(
    "garbage", ["", "{", "[]", '{"outcome": 7}', "\x00" * 100, '{"outcome":"interrupted","rank":"x"}']
)
def test_garbage_in_the_outcome_directory_is_no_crash(garbage: str, tmp_path: Path) -> None:
    directory = tmp_path / "outcomes"
    (tmp_path / "garbage").write_text(garbage)
    (directory).mkdir()
    (directory / "rank-0-old.json").write_text('{"outcome":"failed"}')  # of an earlier attempt: must be forgotten
    ended = held(
        "exec", "--", "cp", str(tmp_path / "garbage"), str(directory / "rank-0.json"), STAYFAST_OUTCOME_DIR=directory
    ).end()
    assert ended.code in (0, 75)
    assert "Traceback" not in ended.err


def test_a_second_program_under_one_shell_does_not_hide_that_the_first_was_interrupted(tmp_path: Path) -> None:
    first, second = tmp_path / "first.py", tmp_path / "second.py"
    first.write_text("import stayfast\nwith stayfast.run() as run:\n for s in run.steps():\n  run.interrupt()\n")
    second.write_text("import stayfast\nwith stayfast.run(total_steps=1) as run:\n for s in run.steps(): pass\n")
    ended = held("exec", "--", "sh", "-c", f"{sys.executable} {first}; {sys.executable} {second}").end()
    assert ended.code == 75


def test_an_unusable_outcome_directory_is_one_sentence_and_the_program_runs(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    ended = held("exec", "--", "echo", "ran", STAYFAST_OUTCOME_DIR=tmp_path / "file" / "below").end()
    assert ended.code == 0
    assert "ran" in ended.out
    assert ended.err.startswith("stayfast exec: STAYFAST_OUTCOME_DIR=")
    assert ended.err.count("\n") == 1


def test_it_leaves_nothing_behind(tmp_path: Path) -> None:
    held("exec", "--", "sh", "-c", 'echo "{}" > $STAYFAST_OUTCOME_DIR/rank-0.json', TMPDIR=tmp_path).end()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("closed", [(0,), (1,), (2,), (0, 1, 2)])
def test_closed_standard_streams(closed: tuple[int, ...]) -> None:
    redirections = " ".join({0: "<&-", 1: ">&-", 2: "2>&-"}[number] for number in closed)
    command = " ".join([*STAYFAST, "exec", "--", "sh", "-c", "'exit 9'", redirections])
    code = subprocess.run(["sh", "-c", command], env=environment(), timeout=20, capture_output=True).returncode
    assert code == 9


@pytest.mark.parametrize("who", ["exec", "run"])
def test_a_stuck_reader_of_standard_error_does_not_keep_it(who: str, tmp_path: Path) -> None:
    """The pipe is full and nobody reads: still out with 75, in time."""
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    try:
        while True:
            os.write(writing, b"x" * 4096)
    except BlockingIOError:
        pass
    os.set_blocking(writing, True)
    program = [
        sys.executable,
        "-c",
        (
            "import time, stayfast\nwith stayfast.run() as run:\n"
            " for s in run.steps():\n  print('step', flush=True)\n  time.sleep(0.02)"
        ),
    ]
    if who == "exec":
        program = [*STAYFAST, "exec", "--", "sh", "-c", "trap 'exit 0' TERM; echo step; while :; do sleep 0.05; done"]
    log = tmp_path / "termination-log"
    log.write_text("")
    child = Child(program, environment(STAYFAST_GRACE_SECONDS="2.5", STAYFAST_TERMINATION_LOG=log), stderr=writing)
    os.close(writing)
    child.wait_for("step")
    child.send()
    ended = child.end()
    os.close(reading)
    assert ended.code == 75
    assert ended.seconds < 2.5
    assert json.loads(log.read_text())["outcome"] == "interrupted"


def test_the_window_is_the_smallest_of_what_is_known() -> None:
    variables = {"STAYFAST_TERMINATION_GRACE_SECONDS": "60", "STAYFAST_SHUTDOWN_GRACE_SECONDS": "17"}
    child = held("exec", "--", "sh", "-c", "trap 'exit 5' TERM; echo ready; while :; do sleep 0.05; done", **variables)
    child.wait_for("ready")
    child.send()
    ended = child.end()
    assert ended.report["seconds_allowed"] == 2.0
    assert ended.code == 75


def test_a_stuck_kernel_call_does_not_keep_it_beyond_the_window(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stands in for a process in uninterruptible sleep: SIGKILL is 'sent' and nothing dies."""
    program = """
import sys
from stayfast.runtime.exec import supervisor
from stayfast.settings import read_settings
supervisor.signal_tree = lambda number: None
supervisor.descendants = lambda: []
command = ["sh", "-c", "trap '' TERM; echo ready $$; while :; do sleep 0.05; done"]
sys.exit(supervisor.Supervisor(command, read_settings()).run())
"""
    child = Child([sys.executable, "-c", program], environment(STAYFAST_GRACE_SECONDS="2"))
    pid = int(child.wait_for("ready").split()[1])
    child.send()
    try:
        child.process.wait(10)
        took = time.monotonic() - child._since
    finally:
        os.kill(pid, signal.SIGKILL)
    assert child.process.returncode == 75
    assert took < 2
