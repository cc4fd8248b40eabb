"""How it ended, told in every place: exit code, JSON line, termination message, outcome directory, ledger."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

import pytest
from runtime_children import python

from stayfast.model.exit_codes import CONTRACT, FAILED, FINISHED, INTERRUPTED, Outcome
from stayfast.runtime.interruption.exit_report import TERMINATION_MESSAGE_BYTES, ExitReport, publish_report
from stayfast.runtime.run_record.record import decode
from stayfast.settings import Settings

PROGRAM = """
    import sys, time, stayfast
    how = sys.argv[1]
    with stayfast.run(sys.argv[2] if len(sys.argv) > 2 else None, total_steps=3) as run:
        run.on_drain(lambda: None, name="nothing")
        for step in run.steps():
            if how == "fail" and step == 1:
                raise ValueError("a bug of mine")
            if how == "wait":
                print("step", flush=True); time.sleep(0.3)
"""


def read(path: Path) -> dict[str, object]:
    found: dict[str, object] = json.loads(path.read_text())
    return found


def test_the_contract_is_0_75_1() -> None:
    assert (FINISHED, INTERRUPTED, FAILED) == (0, os.EX_TEMPFAIL, 1)
    assert [row.code for row in CONTRACT] == [0, 75, 1]


@pytest.mark.parametrize(
    ("how", "outcome", "code"), [("finish", "finished", 0), ("fail", "failed", 1), ("wait", "interrupted", 75)]
)
def test_every_place_says_the_same(tmp_path: Path, how: str, outcome: str, code: int) -> None:
    log, lines, directory = tmp_path / "log", tmp_path / "lines", tmp_path / "out" / "comes"
    log.write_text("left over from before " * 500)
    lines.write_text("{}\n")
    url = f"file://{tmp_path}/run"
    child = python(
        PROGRAM,
        how,
        url,
        STAYFAST_TERMINATION_LOG=log,
        STAYFAST_OUTCOME_FILE=lines,
        STAYFAST_OUTCOME_DIR=directory,
        STAYFAST_MACHINE="node-7",
        STAYFAST_CAPACITY="spot",
        STAYFAST_USD_PER_HOUR="2.5",
    )
    if how == "wait":
        child.wait_for("step")
        child.send()
    ended = child.end()
    assert ended.code == code
    assert ended.reports == [], "the file takes the place of standard error"
    report = read(log)
    assert report["outcome"] == outcome
    assert report["code"] == code
    assert report["action"] == "attempt_ended"
    assert report["run"] == url
    assert report["attempt"] == 1
    assert json.loads(lines.read_text().splitlines()[1]) == report
    (only,) = directory.iterdir()
    assert only.name.startswith("rank-0-")
    assert read(only) == report
    if how == "wait":
        assert report["cause"] == "unknown"
        assert report["saved"] == "step 0"
        assert 0 <= report["seconds_used"] < 2  # type: ignore[operator]
        assert report["seconds_allowed"] == 14.0
        assert [step["name"] for step in report["drain"]] == ["save", "nothing"]  # type: ignore[attr-defined]
    row = decode((tmp_path / "run" / "HEAD.json").read_bytes()).current_attempt
    assert row.outcome == outcome
    assert (row.machine, row.capacity, row.usd_per_hour) == ("node-7", "spot", 2.5)


@pytest.mark.parametrize("place", ["STAYFAST_OUTCOME_DIR", "STAYFAST_OUTCOME_FILE", "STAYFAST_TERMINATION_LOG"])
def test_a_place_that_cannot_be_written_changes_nothing(tmp_path: Path, place: str) -> None:
    (tmp_path / "file").write_text("")
    ended = python(PROGRAM, "finish", **{place: tmp_path / "file" / "below"}).end()
    assert ended.code == 0
    assert "Traceback" not in ended.err


def test_a_termination_log_that_is_a_pipe_without_reader_keeps_nobody(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "log")
    ended = python(PROGRAM, "finish", STAYFAST_TERMINATION_LOG=tmp_path / "log").end(10)
    assert ended.code == 0


def test_a_long_report_is_still_json_in_the_termination_message(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("")
    drain = [{"name": f"step {number}", "outcome": "failed", "detail": "x" * 200} for number in range(100)]
    report = ExitReport(Outcome.FAILED, 1, run="file:///" + "é" * 4000, detail="y" * 9000, drain=drain)
    publish_report(report, Settings(termination_log=str(log)), quiet=True)
    assert len(log.read_bytes()) <= TERMINATION_MESSAGE_BYTES
    assert read(log)["outcome"] == "failed"


def test_a_storm_of_quick_kills_does_not_count_as_no_progress(tmp_path: Path) -> None:
    """Twenty claims, each killed at once; the next attempt runs all the same."""
    url = f"file://{tmp_path}/run"
    storm = """
        import os, signal, sys, stayfast
        import stayfast.runtime.runs.run, stayfast.storage.stores.file  # once, before the forks
        for _ in range(20):
            if os.fork() == 0:
                with stayfast.run(sys.argv[1], total_steps=3) as run:
                    os.kill(os.getpid(), signal.SIGKILL)
            os.wait()
    """
    assert python(storm, url).end(120).code == 0
    ended = python(PROGRAM, "finish", url).end()
    assert ended.code == 0
    head = decode((tmp_path / "run" / "HEAD.json").read_bytes())
    assert head.attempt == 21
    assert [row.outcome for row in head.attempts] == [Outcome.LOST] * 20 + [Outcome.FINISHED]


def test_no_progress_leaves_with_1_and_one_clear_sentence(tmp_path: Path) -> None:
    url = f"file://{tmp_path}/run"
    for _ in range(2):
        assert python(PROGRAM, "fail", url, STAYFAST_MAX_STALLED_ATTEMPTS="2").end().code == 1
    ended = python(PROGRAM, "finish", url, STAYFAST_MAX_STALLED_ATTEMPTS="2").end()
    assert ended.code == 1
    assert "the last 2 attempts of file://" in ended.report["detail"]


CHAIN = """
    import signal, sys, time, stayfast
    def mine(number, frame):
        print("mine", signal.Signals(number).name, flush=True)
        if sys.argv[2] == "exits":
            sys.exit(143)
    signal.signal(signal.SIGTERM, mine)
    try:
        with stayfast.run(chain=sys.argv[1] == "chain") as run:
            run.on_drain(lambda: print("drained", flush=True))
            for step in run.steps():
                print("step", flush=True); time.sleep(0.02)
    finally:
        now = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]
        print("mine again", now[0] is mine, "ignored", now[1] is signal.SIG_IGN, flush=True)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("exits", ["returns", "exits"])
@pytest.mark.parametrize("chain", ["chain", "alone"])
def test_previous_handlers_are_restored_and_called_only_when_asked(chain: str, exits: str, number: int) -> None:
    child = python(CHAIN, chain, exits)
    child.wait_for("step")
    child.send(number)
    ended = child.end()
    assert ended.code == 75
    lines = [line for line in ended.out.splitlines() if line != "step"]
    called = ["mine SIGTERM"] if chain == "chain" and number == signal.SIGTERM else []
    assert lines == ["drained", *called, "mine again True ignored True"]


def test_handlers_are_restored_after_failure_and_finish_and_a_later_signal_works_as_before() -> None:
    child = python(
        """
        import signal, time, stayfast
        for ending in ("finish", "fail", "exit"):
            try:
                with stayfast.run(total_steps=1) as run:
                    for step in run.steps():
                        if ending == "fail": raise ValueError
                        if ending == "exit": raise SystemExit(3)
            except (ValueError, SystemExit):
                pass
            assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL, ending
            assert signal.set_wakeup_fd(-1) == -1, ending
        print("ready", flush=True); time.sleep(30)
        """
    )
    child.wait_for("ready")
    child.send()
    assert child.end().code == -signal.SIGTERM


@pytest.mark.parametrize("kind", ["guard", "run"])
def test_a_program_that_catches_the_interruption_and_lives_on_gets_its_signals_back(kind: str) -> None:
    child = python(
        f"""
        import os, signal, sys, time, stayfast
        kind = {kind!r}
        try:
            if kind == "guard":
                with stayfast.guard() as guard:
                    os.kill(os.getpid(), signal.SIGTERM)
                    while not guard.should_stop():
                        time.sleep(0.01)
            else:
                with stayfast.run() as run:
                    for step in run.steps():
                        os.kill(os.getpid(), signal.SIGTERM)
                        time.sleep(0.1)
        except SystemExit:
            pass
        time.sleep(3)
        print("alive", flush=True)
        time.sleep(30)
        """,
        STAYFAST_GRACE_SECONDS="5",
    )
    child.wait_for("alive")
    child.send()
    assert child.end().code == -signal.SIGTERM


def test_the_program_can_leave_by_the_interruption_without_any_output_stream() -> None:
    program = "import os, time, stayfast\nwith stayfast.run() as run:\n for s in run.steps():\n  run.interrupt()"
    code = os.spawnve(
        os.P_WAIT,
        "/bin/sh",
        ["sh", "-c", f'exec {sys.executable} -c "$PROGRAM" <&- >&- 2>&-'],
        {**os.environ, "PROGRAM": program, "PYTHONPATH": str(Path(__file__).parents[2] / "src")},
    )
    assert code == 75


def test_lost_peers_are_told_from_bugs() -> None:
    from stayfast.runtime.interruption.exit_cause import is_peer_loss

    lost = [
        RuntimeError("[../third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer [127.0.0.1]:4711"),
        RuntimeError("NCCL error: remote process exited or there was a network error"),
        ConnectionResetError(104, "Connection reset by peer"),
        BrokenPipeError(),
    ]
    bugs = [RuntimeError("shape mismatch"), ValueError("connection reset"), KeyError("peer"), ZeroDivisionError()]
    assert [is_peer_loss(error) for error in lost] == [True] * len(lost)
    assert [is_peer_loss(error) for error in bugs] == [False] * len(bugs)
    wrapped = RuntimeError("step failed")
    wrapped.__cause__ = lost[0]
    assert is_peer_loss(wrapped)
    wrapped.__cause__.__cause__ = wrapped  # a ring must end too
    assert is_peer_loss(wrapped)
