"""``stayfast bill``: the ledger adds up, and says what it does not know."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from stayfast.cli.main import main
from stayfast.model.exit_codes import Outcome
from stayfast.runtime.run_record.record import (
    MAX_ATTEMPT_RECORDS,
    RECORD_KEY,
    AttemptRecord,
    CheckpointRecord,
    RunRecord,
    encode,
)


def row(attempt, **more):
    base = {
        "started_at": "2026-11-15T10:00:00.000Z",
        "ended_at": "2026-11-15T11:00:00.000Z",
        "useful_seconds": 3000.0,
        "lost_seconds": 120.0,
        "save_seconds": 60.0,
        "outcome": Outcome.INTERRUPTED,
        "cause": "preemption",
        "zone": "us-central1-a",
        "capacity": "spot",
        "usd_per_hour": 6.0,
    }
    return AttemptRecord(attempt, **(base | more))


def write(tmp_path, *rows, step=999, **more):
    checkpoints = (CheckpointRecord(step, len(rows), "2026-11-15T11:00:00.000Z"),) if step >= 0 else ()
    head = RunRecord("file:///run", len(rows), "token", checkpoints, tuple(rows), **more)
    (tmp_path / RECORD_KEY).write_bytes(encode(head))
    return f"file://{tmp_path}"


def bill(capsys, *args):
    code = main(["bill", *args, "--json"])
    out = capsys.readouterr()
    return code, json.loads(out.out) if out.out else None, out.err


def test_money_is_wall_time_times_price(tmp_path, capsys):
    url = write(tmp_path, row(1), row(2, usd_per_hour=3.0), finished=True)
    code, result, _ = bill(capsys, url)
    assert code == 0
    assert result["usd"] == pytest.approx(9.0)
    assert result["steps"] == 1000
    assert result["usd_per_step"] == pytest.approx(0.009)
    assert result["paid_seconds"] == 7200
    assert result["useful_seconds"] + result["lost_seconds"] + result["save_seconds"] + result["other_seconds"] == 7200
    assert result["goodput"] == pytest.approx(6000 / 7200)
    assert sum(item["usd"] for item in result["rows"]) == pytest.approx(result["usd"])


def test_a_running_attempt_counts_what_it_has_done(tmp_path, capsys):
    url = write(tmp_path, row(1, ended_at=None, outcome=None, cause=None))
    assert bill(capsys, url)[1]["paid_seconds"] == 3180


def test_unknown_prices_are_said_or_given(tmp_path, capsys):
    url = write(tmp_path, row(1), row(2, usd_per_hour=None))
    result = bill(capsys, url)[1]
    assert result["usd"] is None
    assert result["usd_per_step"] is None
    assert result["usd_priced"] == pytest.approx(6.0)
    assert result["unpriced_seconds"] == 3600
    assert bill(capsys, url, "--usd-per-hour", "1")[1]["usd"] == pytest.approx(7.0)
    assert main(["bill", url]) == 0
    assert "without a known price" in capsys.readouterr().out


def test_folded_attempts_stay_in_the_sum(tmp_path, capsys):
    count = MAX_ATTEMPT_RECORDS + 50
    url = write(tmp_path, *(row(index, ended_at=None) for index in range(1, count + 1)))
    result = bill(capsys, url)[1]
    assert result["attempts"] == count
    assert result["useful_seconds"] == pytest.approx(3000 * count)
    assert result["usd"] == pytest.approx(count * 3180 / 3600 * 6.0)


def test_estimate_against_actual(tmp_path, capsys):
    url = write(tmp_path, row(1))
    plan = tmp_path / "plan.json"
    plan.write_text(
        json.dumps({"choice": "spot", "options": [{"class": "spot", "cost_usd": {"p50": 4.0, "p95": 8.0}}]})
    )
    estimate = bill(capsys, url, "--plan", str(plan))[1]["estimate"]
    assert estimate == {"class": "spot", "p50_usd": 4.0, "p95_usd": 8.0, "actual_over_p50": 1.5}
    assert main(["bill", url, "--plan", str(plan)]) == 0
    assert "1.50 of the median" in capsys.readouterr().out
    for broken in ("{}", '{"choice":"spot","options":[{"class":"spot","cost_usd":{"p50":NaN,"p95":1}}]}', "[", "null"):
        plan.write_text(broken)
        code, _, err = bill(capsys, url, "--plan", str(plan))
        assert code == 2
        assert "is not a plan" in err


def test_the_estimate_of_a_real_plan_against_a_real_run(tmp_path, capsys, monkeypatch):
    """From init to bill: what was planned is held against what the run's own records say."""
    monkeypatch.setenv("STAYFAST_CATALOGUE", str(tmp_path / "none.json"))
    project = tmp_path / "p"
    assert main(["init", "train", str(project)]) == 0
    capsys.readouterr()
    assert main(["plan", "-f", str(project / "stayfast.yaml"), "--replays", "40", "--json"]) == 0
    (tmp_path / "plan.json").write_text(capsys.readouterr().out)
    environment = {**os.environ, "STEPS": "20", "STAYFAST_USD_PER_HOUR": "87.83"}
    subprocess.run([sys.executable, "train.py"], cwd=project, env=environment, check=True, timeout=120)
    code, result, _ = bill(capsys, f"file://{project}/checkpoints", "--plan", str(tmp_path / "plan.json"))
    assert code == 0
    assert result["steps"] == 20
    assert result["usd"] == pytest.approx(result["paid_seconds"] / 3600 * 87.83)
    estimate = result["estimate"]
    assert estimate["p95_usd"] >= estimate["p50_usd"] > 1000
    assert estimate["actual_over_p50"] == pytest.approx(result["usd"] / estimate["p50_usd"])


def test_no_run_and_a_broken_record(tmp_path, capsys):
    code, _, err = bill(capsys, f"file://{tmp_path}/none")
    assert code == 2
    assert "there is no run" in err
    write(tmp_path, row(1), step=-1)
    assert bill(capsys, f"file://{tmp_path}")[1]["usd_per_step"] is None
    (tmp_path / RECORD_KEY).write_bytes(b"{}")
    code, _, err = bill(capsys, f"file://{tmp_path}")
    assert code == 1
    assert err.count("\n") == 1
