"""The long runs: shards add up, a void one is told, and the page of the results is that of the results."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from faults import planted, tiers
from faults.counts import read
from faults.tiers import GOALS, WHAT, account, conclude, goal, seed_for

ROOT = Path(__file__).resolve().parents[2]
FORTY = """no fsync(part) · no fsync(dir) after parts · no fsync(record) · no fsync(dir) after rename · record
before parts · overwrite in place · remove-then-rename · fsync error ignored · fsync retried · 412 =
conflict · timeout = failure · timeout = success · token constant · shared part name · generation not in
precondition · lease by local clock · release without generation · ack before store · store without key ·
heartbeat in the work thread · SIGTERM handler logs · prune newest-by-name · prune while restoring ·
latest from memory · checksum of the wrong bytes · checksum skipped on warm cache · size not checked ·
loader state outside the record · rng not saved · exit 0 on interrupt · poison without cap ·
synchronous=NORMAL · autocommit between UPSERT and ACK · YAML depth unlimited · duplicate keys allowed ·
Host unchecked · DELETE not in the deny list · token in URL · wildcard verb · pickle fallback"""


def tool(name: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "tools" / name), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=ROOT)


def forty() -> list[str]:
    return [name.strip() for name in FORTY.replace("\n", " ").split("·")]


def test_the_forty_are_the_forty() -> None:
    assert len(forty()) == 40
    assert list(planted.BUGS) == forty()
    assert not planted.BUGS.keys() & planted.MORE.keys()


def test_the_page_lists_exactly_the_forty_and_each_was_found() -> None:
    text = (ROOT / "docs/reliability.md").read_text()
    table = text[text.index("<!-- planted bugs:") : text.index("And of our own:")]
    rows = re.findall(r"^\| (.+?) \| (\d) \| (.+?) \| ([\d.]+) \| [\d.]+ \|$", table, re.MULTILINE)
    assert [row[0] for row in rows] == forty()
    for name, lines, hunter, seconds in rows:
        assert int(lines) <= planted.MOST_LINES
        assert hunter.replace(": ", ":") == planted.find(name).hunter
        assert float(seconds) > 0
    assert "not found" not in table


def test_the_page_is_that_of_the_report() -> None:
    assert tool("make_reliability.py", "--check").returncode == 0, "run: python tools/make_reliability.py"


def test_every_suite_has_goals_that_grow_and_a_name() -> None:
    assert GOALS.keys() == WHAT.keys()
    for goals in GOALS.values():
        assert 0 < goals["pr"] <= goals["night"] <= goals["release"]


@pytest.fixture
def counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("STAYFAST_COUNTS_FILE", str(tmp_path / "counts.json"))
    monkeypatch.setattr(tiers, "_started", {})
    monkeypatch.setattr(tiers, "_at_first", {})
    for name in ("STAYFAST_TIER", "STAYFAST_SHARD", "STAYFAST_SEED"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path / "counts.json"


def test_a_shard_has_its_share_and_a_void_one_fails(counts: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STAYFAST_SHARD", "2/7")
    assert goal("C") == 43
    assert seed_for("C") in read()["suites"]["C"]["seeds"]
    account("C", 43, killed=5)
    with pytest.raises(AssertionError, match="void run: suite C injected 42, its goal is 43"):
        account("C", 42)
    row = json.loads(counts.read_text())["suites"]["C"]
    assert (row["injected"], row["killed"]) == (85, 5)
    assert row["milliseconds"] >= 0
    for wrong in ("7/7", "x/2", "1", "-1/2"):
        monkeypatch.setenv("STAYFAST_SHARD", wrong)
        with pytest.raises(ValueError, match="STAYFAST_SHARD"):
            goal("C")


@pytest.mark.usefixtures("counts")
def test_many_tests_conclude_together() -> None:
    from faults.counts import record

    for _ in range(GOALS["O"]["pr"] - 1):
        record("O", injected=1)
    with pytest.raises(AssertionError, match="injected 28"):
        conclude("O")
    record("O", injected=1)
    conclude("O")


def shard_file(folder: Path, name: str, **suites: dict[str, Any]) -> None:
    about = {
        "tier": "night",
        "date": "2026-11-16",
        "machine": {"cpus": 2, "kernel": "k", "python": "3", "architecture": "a"},
    }
    (folder / f"{name}.json").write_text(json.dumps({**about, "suites": suites}))


def test_shards_of_several_machines_add_up(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    one.mkdir()
    two.mkdir()
    shard_file(one, "A-0of2", A={"injected": 2_500_000, "seeds": [1], "cpu_milliseconds": 60_000})
    shard_file(two, "A-1of2", A={"injected": 2_499_999, "seeds": [2], "cpu_milliseconds": 60_000})
    row = {"hunter": "A", "suite": "A", "lines": 1, "seconds": 1.5, "by": "x"}
    (two / "P-0of8.planted.json").write_text(json.dumps({"found": {"no fsync(part)": row}, "controls": {}}))
    target = tmp_path / "night.json"
    done = tool("night.py", "merge", one, two, "--to", target)
    assert done.returncode == 1
    assert "void: suite A injected 4,999,999 of 5,000,000" in done.stdout
    assert "void: suite B was not run" in done.stdout
    report = json.loads(target.read_text())
    assert report["suites"]["A"]["seeds"] == [1, 2]
    assert report["suites"]["A"]["runs"] == 2
    assert report["planted"]["found"]["no fsync(part)"]["seconds"] == 1.5
    shard_file(one, "A-0of2", A={"injected": 2_500_001, "seeds": [1]})
    done = tool("night.py", "merge", one, two, "--to", target, "--partial")
    assert done.returncode == 0, done.stderr
    assert "suite A injected" not in done.stdout


def test_a_shard_is_run_once_and_leaves_its_count(tmp_path: Path) -> None:
    """The whole way: a hundredth of a suite's first tier, in a pytest that needs no plug-ins."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("STAYFAST_")}
    command = [sys.executable, "tools/night.py", "run", "--tier", "pr", "--suites", "G-simulated", "--parts", "100"]
    command += ["--first", "7", "--last", "8", "--into", str(tmp_path)]
    first = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment, timeout=200)
    assert "G-simulated 8 of 100: done" in first.stdout, first.stdout + first.stderr
    kept = json.loads((tmp_path / "G-simulated-7of100.json").read_text())
    assert kept["suites"]["G-simulated"]["injected"] == 1_000
    assert len(kept["suites"]["G-simulated"]["seeds"]) == 1
    again = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment, timeout=200)
    assert "0 shards run" in again.stdout
    assert tool("night.py", "run", "--suites", "Z", "--into", tmp_path).returncode == 1
