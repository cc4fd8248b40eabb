"""What an attempt lost and how soon it was safe stand in the run's own ledger, for bill, dashboard and metrics."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from stayfast.model.exit_codes import Outcome
from stayfast.runtime.run_record.billing import unaccounted_seconds
from stayfast.runtime.run_record.record import RECORD_KEY, AttemptRecord, RunRecord, decode

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = """
import os, signal, sys, time, stayfast
how = sys.argv[2]
with stayfast.run(sys.argv[1], total_steps=8) as run:
    run.track(x=(lambda: {"n": 1}, lambda state: None))
    for step in run.steps():
        time.sleep(0.1)
        if step == 2:
            run.save(now=True)
        if step == 5:
            if how == "fail":
                raise ValueError("mine")
            if how != "finish":
                os.kill(os.getpid(), getattr(signal, how))
                time.sleep(0.1)
"""


def attempt(folder: Path, how: str) -> RunRecord:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "STAYFAST_METADATA": "off"}
    command = [sys.executable, "-c", PROGRAM, f"file://{folder}", how]
    ended = subprocess.run(command, env=environment, capture_output=True, timeout=60)
    assert ended.returncode == {"fail": 1, "SIGTERM": 75, "SIGKILL": -signal.SIGKILL, "finish": 0}[how], ended.stderr
    return decode((folder / RECORD_KEY).read_bytes())


def test_a_failure_loses_what_came_after_the_last_commit(tmp_path: Path) -> None:
    row = attempt(tmp_path, "fail").current_attempt
    assert row.outcome is Outcome.FAILED
    assert row.lost_seconds >= 0.3  # steps 3, 4 and 5
    assert row.useful_seconds >= 0.3  # steps 0, 1 and 2
    assert row.safe_seconds is None


def test_a_notice_that_saves_loses_nothing_and_says_how_soon_it_was_safe(tmp_path: Path) -> None:
    row = attempt(tmp_path, "SIGTERM").current_attempt
    assert row.outcome is Outcome.INTERRUPTED
    assert row.lost_seconds == 0
    assert row.last_step == 5
    assert row.safe_seconds is not None
    assert 0 < row.safe_seconds < 14  # inside the grace, or it would not be there


def test_a_kill_is_accounted_for_by_the_next_attempt_as_a_bound(tmp_path: Path) -> None:
    attempt(tmp_path, "SIGKILL")
    head = attempt(tmp_path, "finish")
    killed, after = head.attempts
    assert killed.outcome is Outcome.LOST
    assert unaccounted_seconds(killed, after) >= 0.2
    assert after.lost_seconds == 0
    assert after.first_step == 3


@pytest.mark.parametrize(("outcome", "started"), [(Outcome.INTERRUPTED, "2026-11-15T11:00:00Z"), (Outcome.LOST, "bad")])
def test_only_kills_with_readable_instants_count(outcome: Outcome, started: str) -> None:
    row = AttemptRecord(1, "2026-11-15T10:00:00Z", outcome=outcome)
    assert unaccounted_seconds(row, AttemptRecord(2, started)) == 0
    assert unaccounted_seconds(row, None) == 0
