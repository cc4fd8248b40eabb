"""What the pages are told: runs, checkpoints, queues and money, from real folders, databases and a bucket server."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from dashboard_server import Dashboard, environment, row, write_run

from stayfast.batch.queue.open_queue import open_queue
from stayfast.batch.queue.protocol import Failure, RetryPolicy
from stayfast.cli.main import main
from stayfast.clock import ManualClock
from stayfast.dashboard.queue_view import QueueView
from stayfast.dashboard.run_cache import RunCache, Sources, to_json
from stayfast.dashboard.run_view import RunPricing, Sample, checkpoint_page, identify, pace, sanitize, summary
from stayfast.dashboard.server import hosts_for, is_loopback
from stayfast.dashboard.sources import find_runs
from stayfast.dashboard.verification import Verifier
from stayfast.model.exit_codes import Outcome
from stayfast.runtime.run_record.record import RECORD_KEY, AttemptRecord, CheckpointRecord, RunRecord, encode


def look(*urls: str, **more: Any) -> dict[str, Any]:
    watch = RunCache(Sources(tuple(urls), **more))
    try:
        watch.refresh()
        return json.loads(to_json(watch.overview()))
    finally:
        watch.close()


# -- finding


def test_runs_are_found_under_a_folder_and_nothing_below_a_run(tmp_path: Path) -> None:
    write_run(tmp_path / "team" / "a")
    write_run(tmp_path / "team" / "b" / "nested")
    write_run(tmp_path / "c")
    write_run(tmp_path / "c" / "inside-a-run")
    write_run(tmp_path / "d" / "checkpoints" / "not-this")
    (tmp_path / "loop").symlink_to(tmp_path)
    names = [url.removeprefix(f"file://{tmp_path}/") for url in find_runs(f"file://{tmp_path}")]
    assert names == ["c", "team/a", "team/b/nested"]
    assert find_runs(f"file://{tmp_path}/c") == [f"file://{tmp_path}/c"]
    assert find_runs(f"file://{tmp_path}/nothing") == []


def test_runs_in_a_bucket(bucket_server: Any, open_on: Any) -> None:
    store = open_on("s3", bucket_server.url, "runs")
    head = encode(
        RunRecord("s3://bucket/runs/a", 1, "t", (CheckpointRecord(9, 1, "2026-11-15T10:00:00.000Z"),), (row(1),))
    )
    store.put(f"a/{RECORD_KEY}", head)
    store.put(f"deep/b/{RECORD_KEY}", head)
    store.put("a/checkpoints/000000000009-000001/part-00000.bin", b"x")
    assert find_runs("s3://bucket/runs") == ["s3://bucket/runs/a", "s3://bucket/runs/deep/b"]
    rows = look("s3://bucket/runs")["runs"]
    assert [item["step"] for item in rows] == [9, 9]
    assert find_runs("s3://bucket/runs/a") == ["s3://bucket/runs/a"]


def test_a_bucket_that_is_away_is_one_sentence_on_the_page(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "x")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    watch = RunCache(Sources(("s3://bucket/away",)))
    try:
        end = time.monotonic() + 60
        while (news := watch.refresh()) is None:  # it is tried for a while; nobody waits for that
            assert time.monotonic() < end
        found = watch.overview()
        assert found["runs"] == []
        assert news["troubles"] == found["troubles"]
        assert "s3://bucket/away" in found["troubles"][0]["url"]
    finally:
        watch.close()


# -- runs


def test_a_summary_says_what_took_it_away_what_was_saved_and_what_it_cost(tmp_path: Path) -> None:
    first = row(1)
    killed = row(2, outcome=Outcome.LOST, cause="unknown", ended_at=None, useful_seconds=600.0, save_seconds=0.0)
    now = row(3, outcome=None, cause=None, ended_at=None, useful_seconds=0.0, save_seconds=0.0)
    write_run(tmp_path / "r", first, killed, now, total_steps=2000)
    found = look(f"file://{tmp_path}", prices=RunPricing(None, 8.0))["runs"][0]
    assert (found["state"], found["attempt"], found["step"], found["total_steps"]) == ("running", 3, 1000, 2000)
    assert (found["interruptions"], found["killed"], found["last_cause"]) == (2, 1, "killed without warning")
    money = found["money"]
    assert money["useful_seconds"] == 2100
    assert money["unaccounted_seconds"] == 3000  # from its last commit to the next start
    assert money["spent_usd"] == pytest.approx(1.0 + 600 / 3600 * 2)
    assert money["on_demand_usd"] == pytest.approx(2130 / 3600 * 8)
    assert money["saved_usd"] == pytest.approx(money["on_demand_usd"] - money["spent_usd"])
    assert [item[2] for item in found["strip"]] == ["interrupted", "lost", "running"]
    assert found["strip"][1][1] == found["strip"][2][0]  # ended, as far as anybody knows, when the next began


def test_a_run_that_was_left_early_is_shown_as_stopped(tmp_path: Path) -> None:
    write_run(tmp_path / "r", row(1, outcome=Outcome.STOPPED, cause=None), total_steps=2000)
    found = look(f"file://{tmp_path}")["runs"][0]
    assert (found["state"], found["interruptions"]) == ("stopped", 0)
    assert [item[2] for item in found["strip"]] == ["stopped"]


def test_unpriced_attempts_are_not_free(tmp_path: Path) -> None:
    write_run(tmp_path / "r", row(1, usd_per_hour=None))
    money = look(f"file://{tmp_path}")["runs"][0]["money"]
    assert money["spent_usd"] is None
    assert money["unpriced_seconds"] == 1800
    assert look(f"file://{tmp_path}", prices=RunPricing(4.0, None))["runs"][0]["money"]["spent_usd"] == pytest.approx(
        2.0
    )


def test_pace_is_measured_between_commits_of_one_attempt() -> None:
    rows = [CheckpointRecord(19, 1, "2026-11-15T10:00:10.000Z"), CheckpointRecord(9, 1, "2026-11-15T10:00:00.000Z")]
    rows += [CheckpointRecord(29, 2, "2026-11-15T11:00:00.000Z")]
    assert [value for _, value in pace(rows, [])] == [1.0]
    seen = [Sample(pace(rows, [])[0][0] + 5.0, 24, 1)]
    assert [value for _, value in pace(rows, seen)] == [1.0, 1.0]


def test_checkpoints_come_in_pages() -> None:
    listed = tuple(CheckpointRecord(step, 1, "2026-11-15T10:00:00.000Z", size=10) for step in range(249, -1, -1))
    head = sanitize(RunRecord("r", 1, "t", listed, (row(1),)))
    first, last = checkpoint_page(head, 0, {}), checkpoint_page(head, 200, {})
    assert (len(first["rows"]), len(last["rows"]), first["total"]) == (100, 50, 250)
    assert first["rows"][0]["step"] == 249
    assert checkpoint_page(head, 9999999, {})["rows"] == []


HOSTILE = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "javascript:alert(1)",
    "{{constructor.constructor('alert(1)')()}}",
    "\u202eevil\u0000\n\r\n\r\ndata: x",
    "a" * 100_000,
    "\ud800",
]


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_a_hostile_ledger_is_cleaned_and_stays_one_line(text: str) -> None:
    odd: Any = [text, {"x": text}, float("nan"), 10**400, True, None]
    for value in odd:
        rows = (
            AttemptRecord(
                1,
                value,
                value,
                value,
                value,
                None,
                value,
                value,
                value,
                value,
                value,
                value,
                value,
                value,
                value,
                value,
            ),
        )
        checkpoints = (CheckpointRecord(3, 1, value, value, "0" * 64, ((text[:9], 4),)),)
        head = sanitize(RunRecord(text, 1, "t", checkpoints, rows, {text[:20]: value, "attempts": 2}))  # type: ignore[dict-item]
        told = to_json([summary(f"file:///runs/{text[:300]}", head, RunPricing()), checkpoint_page(head, 0, {})])
        assert b"\n" not in told
        assert len(told) < 20_000
        json.loads(told, parse_constant=pytest.fail)


@pytest.mark.parametrize(
    "data", [b"", b"{}", b"[" * 100_000, b"\xff" * 100, b'{"checksum": 1}', b"x" * (5 << 20)], ids=range(6)
)
def test_a_broken_record_is_shown_as_broken(tmp_path: Path, data: bytes) -> None:
    write_run(tmp_path / "good")
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / RECORD_KEY).write_bytes(data)
    rows = {item["name"]: item for item in look(f"file://{tmp_path}")["runs"]}
    assert rows["good"]["trouble"] is None
    assert rows["bad"]["state"] == "broken"
    assert "HEAD.json" in rows["bad"]["trouble"]


def test_only_what_changed_is_told_and_a_removed_run_goes(tmp_path: Path) -> None:
    write_run(tmp_path / "a")
    write_run(tmp_path / "b")
    clock = ManualClock()
    watch = RunCache(Sources((f"file://{tmp_path}",)), clock=clock)
    assert len(watch.refresh()["runs"]) == 2  # type: ignore[index]
    clock.advance(1.0)
    assert watch.refresh() is None
    write_run(tmp_path / "a", row(1), row(2))
    os.utime(tmp_path / "a" / RECORD_KEY, ns=(1, time.time_ns() + 10**9))
    clock.advance(1.0)
    news = watch.refresh()
    assert [item["name"] for item in news["runs"]] == ["a"]  # type: ignore[index]
    (tmp_path / "b" / RECORD_KEY).unlink()
    clock.advance(1.0)
    assert watch.refresh()["gone"] == [identify(f"file://{tmp_path}/b")]  # type: ignore[index]
    watch.close()


# -- verification


def saved_run(folder: Path) -> str:
    program = (
        "import sys, stayfast\nwith stayfast.run(sys.argv[1], total_steps=3) as run:\n"
        "    run.track(x=(lambda: {'data': b'z' * 100000}, lambda state: None))\n    for step in run.steps(): pass"
    )
    subprocess.run([sys.executable, "-c", program, f"file://{folder}"], env=environment(), check=True, timeout=60)
    return f"file://{folder}"


def verdicts(dashboard: Dashboard, run: str, wanted: str) -> dict[str, Any]:
    for _ in range(200):
        rows = dashboard.get(f"/api/runs/{run}/checkpoints")["rows"]
        if rows[0]["verdict"] == wanted:
            return dict(rows[0])
        time.sleep(0.05)
    raise AssertionError(rows)


def test_checkpoints_are_looked_at_and_verified_when_asked(tmp_path: Path) -> None:
    url = saved_run(tmp_path / "run")
    run = identify(url)
    with Dashboard(tmp_path, url, actions=True) as dashboard:
        dashboard.get("/api/overview")
        dashboard.get(f"/api/runs/{run}")
        name = verdicts(dashboard, run, "complete")["name"]
        assert dashboard.post(f"/api/runs/{run}/verify", {"name": name}).status == 200
        verdicts(dashboard, run, "whole")
        part = next((tmp_path / "run").glob(f"checkpoints/{name}/part-*.bin"))
        data = bytearray(part.read_bytes())
        data[1000] ^= 1
        part.write_bytes(data)
        assert dashboard.post(f"/api/runs/{run}/verify", {"name": name}).status == 200
        assert part.name in verdicts(dashboard, run, "damaged")["damage"][0]["file"]
        part.unlink()
        assert dashboard.post(f"/api/runs/{run}/verify", {"name": "../../etc/passwd"}).status == 404
    with Dashboard(tmp_path, url) as dashboard:
        dashboard.get("/api/overview")
        dashboard.get(f"/api/runs/{run}")
        assert "missing" in verdicts(dashboard, run, "damaged")["damage"][0]["what"]


# -- queues


def dead_queue(tmp_path: Path, keys: list[str]) -> str:
    url = f"sqlite://{tmp_path}/work.db?queue=q"
    queue = open_queue(url, policy=RetryPolicy(max_failures=1))
    queue.enqueue((key, json.dumps({"k": key})) for key in keys)
    queue.fail([Failure(lease, "Traceback\nValueError: <b>no</b>", final=True) for lease in queue.claim(len(keys))])
    queue.close()
    return url


def test_dead_letters_are_shown_and_retried_one_or_all_and_logged(tmp_path: Path) -> None:
    keys = ["a", "<img src=x onerror=alert(1)>", "c", "d"]
    url = dead_queue(tmp_path, keys)
    queue = identify(url)
    with Dashboard(tmp_path, "--queue", url, actions=True) as dashboard:
        found = dashboard.get(f"/api/queues/{queue}")
        assert {item["key"] for item in found["dead"]} == set(keys)
        assert found["dead"][0]["reason"].endswith("ValueError: <b>no</b>")
        assert dashboard.post(f"/api/queues/{queue}/retry", {"keys": ["a", "nobody"]}).json == {"retried": 1}
        assert len(dashboard.get(f"/api/queues/{queue}")["dead"]) == 3
        assert dashboard.post(f"/api/queues/{queue}/retry", {"keys": None}).json == {"retried": 3}
        assert dashboard.get(f"/api/queues/{queue}")["dead"] == []
        log = dashboard.log.read_text()
        assert "retry by 127.0.0.1" in log
        assert "keys all" in log
    assert open_queue(url).depth().ready == 4


def test_throughput_and_depth_are_watched(tmp_path: Path) -> None:
    url = f"sqlite://{tmp_path}/work.db?queue=q"
    queue = open_queue(url)
    queue.enqueue((f"k{number}", "{}") for number in range(100))
    clock = ManualClock()
    view = QueueView(url, None, clock)
    assert view.look()
    clock.advance(2.0)
    queue.complete(queue.claim(50))
    assert view.look()
    found = view.summary()
    assert found["per_second"] == pytest.approx(25.0)
    assert found["oldest_seconds"] == pytest.approx(2.0)
    assert found["depth"] == {"ready": 50, "delayed": 0, "leased": 0, "done": 50, "dead": 0}
    clock.advance(60.0)
    view.look()
    assert view.summary()["per_second"] == 0
    assert len(view.detail()["history"]) == 3
    view.close()
    queue.close()


def test_a_queue_that_is_not_there_is_one_sentence_and_is_not_created(tmp_path: Path) -> None:
    url = f"sqlite://{tmp_path}/none.db?queue=q"
    found = look(queues=(url,))["queues"][0]
    assert "there is no file" in found["trouble"]
    assert not (tmp_path / "none.db").exists()


def test_the_password_of_a_database_is_not_shown() -> None:
    clock = ManualClock()
    for url in ("postgresql://me:s3cret@127.0.0.1:1/x?queue=q", "postgresql://127.0.0.1:1/x?queue=q&password=s3cret"):
        view = QueueView(url, None, clock)
        assert "s3cret" not in json.dumps(view.summary())


# -- the command


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "nothing to show"),
        (["ftp://x"], "no known scheme"),
        (["/tmp", "--port", "70000"], "not a port"),
        (["/tmp", "--allow-actions"], "--token-file"),
        (["/tmp", "--token-file", "/tmp/x"], "means nothing without"),
        (["/tmp", "--allow-actions", "--token-file", "/etc/hostname"], "exists already"),
        (["/tmp", "--bind", "203.0.113.1", "--port", "0"], "cannot listen"),
    ],
)
def test_mistakes_are_one_sentence(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("STAYFAST_QUEUE", raising=False)
    assert main(["dashboard", *arguments]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert words in err
    assert err.count("\n") == 1


def test_without_the_extra_it_says_what_to_install(tmp_path: Path) -> None:
    (tmp_path / "starlette.py").write_text("raise ImportError('no')")
    base = environment()
    base["PYTHONPATH"] = f"{tmp_path}:{base['PYTHONPATH']}"
    ended = subprocess.run(
        [sys.executable, "-m", "stayfast", "dashboard", "/tmp"], env=base, capture_output=True, text=True, timeout=60
    )
    assert ended.returncode == 2
    assert 'pip install "stayfast[dashboard]"' in ended.stderr


def test_names_under_which_it_answers() -> None:
    assert hosts_for("127.0.0.1", ()) == ("127.0.0.1", "localhost", "[::1]")
    assert hosts_for("0.0.0.0", ("Box.Local",)) == ("127.0.0.1", "localhost", "[::1]", "box.local")
    assert "[fd00::1]" in hosts_for("fd00::1", ())
    assert is_loopback("::1")
    assert not is_loopback("0.0.0.0")


def test_the_token_file_is_private_and_the_server_ends_well(tmp_path: Path) -> None:
    write_run(tmp_path / "r")
    dashboard = Dashboard(tmp_path, str(tmp_path), actions=True)
    token = next(path for path in tmp_path.iterdir() if path.name.startswith("token-"))
    assert token.stat().st_mode & 0o777 == 0o600
    dashboard.process.send_signal(signal.SIGTERM)
    assert dashboard.process.wait(20) in (0, -signal.SIGTERM)
    again = Dashboard(tmp_path, str(tmp_path))
    assert again.end() == 0  # Ctrl-C is how a person ends it
    assert "Traceback" not in dashboard.log.read_text()


def test_a_ledger_with_wrong_types_harms_neither_the_page_nor_the_other_runs(tmp_path: Path) -> None:
    write_run(tmp_path / "good")
    odd = row(1, useful_seconds="x", started_at=["y"], usd_per_hour={"z": 1}, safe_seconds="soon", machine=7)
    write_run(tmp_path / "odd", odd, row(2, lost_seconds=None, cause=["c"]))
    watch = RunCache(Sources((f"file://{tmp_path}",)))
    watch.refresh()
    assert {item["name"]: item["trouble"] for item in watch.overview()["runs"]} == {"good": None, "odd": None}
    assert to_json(watch.run(identify(f"file://{tmp_path}/odd")))
    watch.close()


@pytest.mark.parametrize(("listed", "verdict"), [(True, "damaged"), (False, "pruned")])
def test_a_checkpoint_that_was_pruned_meanwhile_is_not_damaged(tmp_path: Path, listed: bool, verdict: str) -> None:
    old = CheckpointRecord(5, 1, "2026-11-15T10:00:00.000Z", size=10, inventory_sha256="0" * 64)
    new = CheckpointRecord(9, 1, "2026-11-15T11:00:00.000Z", size=10, inventory_sha256="1" * 64)
    (tmp_path / RECORD_KEY).write_bytes(encode(RunRecord("r", 1, "t", (new, old) if listed else (new,), (row(1),))))
    url = f"file://{tmp_path}"
    verifier = Verifier()
    verifier.verify(url, old)
    head = RunRecord("r", 1, "t", (old,), (row(1),))
    end = time.monotonic() + 30
    while (found := verifier.states(url, head)[old.name])["verdict"] == "checking":
        assert time.monotonic() < end
        time.sleep(0.01)
    assert found["verdict"] == verdict
    verifier.close()


def test_steps_that_went_by_are_timed_by_their_commits(tmp_path: Path) -> None:
    clock = ManualClock()
    watch = RunCache(Sources((f"file://{tmp_path}",)), clock=clock)
    for number, second in ((9, 0), (19, 10), (29, 20)):
        listed = (CheckpointRecord(number, 1, f"2026-11-15T10:00:{second:02d}.000Z"),)
        (tmp_path / RECORD_KEY).write_bytes(encode(RunRecord("r", 1, "t", listed, (row(1),))))
        os.utime(tmp_path / RECORD_KEY, ns=(number, number))
        clock.advance(7.3)  # seen at other moments than they were made
        watch.refresh()
    found = watch.run(identify(f"file://{tmp_path}"))
    assert found is not None
    assert [value for _, value in found["pace"]] == [1.0, 1.0]
    watch.close()
