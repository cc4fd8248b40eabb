"""Suite D: real workers killed at random and at named points; nothing is lost, nothing is doubled, ever."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from faults.counts import record
from faults.tiers import goal, tier

CAMPAIGN = Path(__file__).resolve().parent / "kill_campaign.py"


def run_campaign(**options):
    return subprocess.run(
        [sys.executable, str(CAMPAIGN), json.dumps(options)],
        capture_output=True,
        text=True,
        timeout=240 if tier() == "pr" else None,
        env=os.environ,
    )


def campaign(**options):
    done = run_campaign(**options)
    assert done.returncode == 0, done.stderr[-2000:] + done.stdout[-500:]
    return json.loads(done.stdout)


def assert_nothing_lost(result, kills):
    assert result["kills"] >= kills, "a run that killed too little proves nothing"
    assert result["checks"] > result["kills"], "the books are judged at every kill, and once more in the end"
    assert result["acknowledged_not_stored"] == 0
    assert (result["lost"], result["unexpected"], result["wrong"]) == (0, 0, 0)
    assert result["dead"] > 0, "the poison items must end in the dead-letter"


@pytest.mark.faults
@pytest.mark.slow
@pytest.mark.parametrize("shared", [True, False], ids=["one-file", "two-files"])
def test_sqlite_workers_killed_hundreds_of_times(make_place, shared):
    place = make_place("sqlite")
    sink = place.sink if shared else place.other_sink
    kills = goal("D") // 2
    result = campaign(queue=place.queue, sink=sink, kills=kills, seed=7 if shared else 8, full_exec=True)
    assert_nothing_lost(result, kills)
    assert result["full_exec"] > 0
    assert result["self_kills"] > 0
    record("D", kills=result["kills"], checks=result["checks"], full_exec=result["full_exec"])


@pytest.mark.faults
@pytest.mark.slow
def test_postgres_workers_killed(make_place):
    place = make_place("postgres")
    kills = goal("D") * 15 // 100
    result = campaign(queue=place.queue, sink=place.sink, kills=kills, seed=9, lease_seconds=0.8, life_seconds=0.2)
    assert_nothing_lost(result, kills)
    record("D", kills=result["kills"], checks=result["checks"])


def test_a_worker_that_fails_by_itself_ends_the_campaign_and_says_why(make_place):
    place = make_place("sqlite")
    done = run_campaign(queue=place.queue, sink=place.sink, kills=50, seed=1, chunk="ten", life_seconds=2.0)
    assert done.returncode == 1
    assert "a worker failed with exit code 99" in done.stderr
    assert "TypeError" in done.stderr
