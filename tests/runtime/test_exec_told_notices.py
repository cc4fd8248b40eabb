"""``stayfast exec`` with more than signals: the lease, a file, the metadata server; the child hears it as SIGTERM."""

from __future__ import annotations

import datetime
import time
from pathlib import Path

import pytest
from metadata_server import MetadataServer
from runtime_children import held

SCRIPT = "trap 'echo heard; exit 0' TERM; echo ready; while :; do sleep 0.05; done"


def test_a_file_that_appears(tmp_path: Path) -> None:
    notice = tmp_path / "notice"
    child = held("exec", "--", "sh", "-c", SCRIPT, STAYFAST_NOTICE_FILE=notice)
    child.wait_for("ready")
    notice.write_text("drained by the scheduler\n")
    ended = child.end()
    assert ended.code == 75
    assert "heard" in ended.out
    assert ended.reports[-1]["cause"] == "unknown"


def test_the_end_of_the_lease(tmp_path: Path) -> None:
    ends = datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=6)
    child = held(
        "exec", "--", "sh", "-c", SCRIPT, STAYFAST_LEASE_ENDS_AT=ends.isoformat(), STAYFAST_LEASE_LEAD_SECONDS=4
    )
    child.wait_for("ready")
    ended = child.end()
    assert ended.code == 75
    report = ended.reports[-1]
    assert report["cause"] == "run-limit"
    assert 0 < report["seconds_allowed"] <= 4


def test_the_metadata_server_names_the_cause() -> None:
    with MetadataServer() as server:
        child = held("exec", "--", "sh", "-c", SCRIPT, STAYFAST_METADATA="on", GCE_METADATA_HOST=server.host)
        child.wait_for("ready")
        server.wait_for_requests("instance/preempted", 1)
        server.set("instance/preempted", "TRUE")
        ended = child.end()
    assert ended.code == 75
    assert "heard" in ended.out
    assert ended.reports[-1]["cause"] == "preemption"


def test_a_sigterm_after_it_can_only_shorten_the_window(tmp_path: Path) -> None:
    ends = datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=60)
    stubborn = "trap 'echo heard' TERM; echo ready; while :; do sleep 0.05; done"
    variables = {"STAYFAST_LEASE_ENDS_AT": ends.isoformat(), "STAYFAST_LEASE_LEAD_SECONDS": 54}
    child = held("exec", "--", "sh", "-c", stubborn, STAYFAST_GRACE_SECONDS=2, **variables)
    child.wait_for("heard")
    time.sleep(0.2)
    child.send()
    ended = child.end()
    assert ended.code == 75
    assert ended.seconds < 20, "not until the lease ends"
    assert ended.out.count("heard") == 1, "one notice, however often it is sent"


@pytest.mark.parametrize("value", ["2020-01-01T00:00:00Z", "tomorrow"])
def test_a_lease_that_makes_no_sense_starts_nothing(value: str) -> None:
    ended = held("exec", "--", "echo", "ran", STAYFAST_LEASE_ENDS_AT=value).end()
    assert ended.code == 2
    assert ended.out == ""
    assert ended.err.count("\n") == 1
