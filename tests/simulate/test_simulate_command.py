"""``stayfast simulate`` as it is typed."""

from __future__ import annotations

import json

import pytest

from stayfast.cli.main import main

BASE = ["--work-hours", "2", "--deadline-hours", "6", "--on-demand-price", "10", "--spot-price", "4"]


@pytest.fixture
def files(tmp_path):
    path = tmp_path / "t.jsonl"
    rows = [
        {"id": "a", "gap_s": 600, "rle": [[4, 30], [0, 12], [4, 100]]},
        {"id": "b", "gap_s": 600, "rle": [[0, 142]]},
    ]
    path.write_text("\n".join(json.dumps(row) for row in rows))
    return str(path)


def simulate(capsys, *args):
    code = main(["simulate", *args])
    printed = capsys.readouterr()
    return code, printed.out, printed.err


def test_json_has_the_contract(files, capsys):
    code, out, err = simulate(
        capsys, "--traces", files, "--trace-id", "a", "--nodes", "4", *BASE, "--cold-start-hours", "0.1",
        "--start-hours", "3.01", "--policy", "optimum,on-demand,greedy,uniform-progress,spot-only", "--output", "json",
    )  # fmt: skip
    assert (code, err) == (0, "")
    runs = {row["policy"]: row for row in json.loads(out)["runs"]}
    assert list(runs) == ["optimum", "on-demand", "greedy", "uniform-progress", "spot-only"]
    for row in runs.values():
        assert {"cost_usd", "spot_hours", "on_demand_hours", "finish_hours", "met_deadline", "interruptions"} <= set(
            row
        )
        assert row["met_deadline"] is True
    assert runs["on-demand"]["cost_usd"] == pytest.approx(13 / 6 * 10)
    assert runs["optimum"]["cost_usd"] <= min(row["cost_usd"] for row in runs.values()) + 1e-9
    assert runs["greedy"]["interruptions"] == 1


def test_many_windows_are_the_same_for_the_same_seed(files, capsys):
    args = ("--traces", files, "--trace-id", "a", *BASE, "--policy", "greedy,optimum", "--windows", "20", "--json")
    first = simulate(capsys, *args, "--seed", "3")[1]
    assert first == simulate(capsys, *args, "--seed", "3")[1]
    assert first != simulate(capsys, *args, "--seed", "4")[1]
    row = json.loads(first)["runs"][0]
    assert row["windows"] == 20
    assert row["met_deadline"] == 1.0
    assert row["cost_usd_p50"] <= row["cost_usd_p95"]


def test_one_window_is_the_same_alone_and_among_others(files, capsys):
    args = (
        "--traces",
        files,
        "--trace-id",
        "a",
        *BASE,
        "--deadline-hours",
        "23.6",
        "--policy",
        "greedy,stayfast",
        "--json",
    )
    alone = json.loads(simulate(capsys, *args)[1])["runs"]
    many = json.loads(simulate(capsys, *args, "--windows", "3")[1])["runs"]
    for left, right in zip(alone, many, strict=True):
        assert left["cost_usd"] == pytest.approx(right["cost_usd"])
        assert left["goodput"] == pytest.approx(right["goodput"])


def test_several_zones_are_a_free_choice(files, capsys):
    args = ("--traces", files, "--trace-id", "b", "--trace-id", "a", *BASE, "--policy", "greedy", "--json")
    row = json.loads(simulate(capsys, *args)[1])["runs"][0]
    assert row["spot_hours"] == pytest.approx(2)


def test_text_is_a_table(files, capsys):
    code, out, _ = simulate(capsys, "--traces", files, "--trace-id", "b", *BASE, "--policy", "spot-only,greedy")
    assert code == 0
    assert "never" in out
    assert "MISSED" in out
    assert "met" in out


def test_a_window_past_the_end_says_so(files, capsys):
    args = ("--traces", files, "--trace-id", "a", *BASE, "--start-hours", "20", "--policy", "on-demand", "--json")
    code, out, err = simulate(capsys, *args)
    assert code == 0
    assert json.loads(out)["runs"][0]["met_deadline"]
    assert "past the end of the trace" in err


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (["--policy", "gredy"], "write greedy"),
        (["--policy", "flex-start"], "add --flex-start-price"),
        (["--policy", ""], "there is no policy ''"),
        (["--trace-id", "aa"], "has no trace 'aa'"),
        (["--traces", "/nonexistent/t.jsonl"], "cannot be read"),
        (["--traces", "/"], "cannot be read"),
        (["--start-hours", "1000"], "past the end"),
        (["--work-hours", "1e12"], "the work with its checkpoints is 6e+12 ticks long"),
        (["--cold-start-hours", "1e9"], "a start is 6e+09 ticks long"),
        (["--checkpoint-interval-seconds", "1e-9", "--checkpoint-seconds", "1e9"], "with its checkpoints is"),
        (["--checkpoint-interval-seconds", "600", "--restore-seconds", "1e15"], "a start is"),
        (["--deadline-hours", "1e12"], "the deadline is 6e+12 ticks long"),
        (["--windows", "5", "--deadline-hours", "1000"], "does not fit the trace"),
    ],
)
def test_mistakes_are_one_sentence_and_code_2(files, capsys, change, expected):
    args = ["--traces", files, *([] if "--trace-id" in change else ["--trace-id", "a"]), *BASE, "--policy", "greedy"]
    code, out, err = simulate(capsys, *args, *change)
    assert code == 2
    assert out == ""
    assert expected in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    "change", [["--nodes", "0"], ["--work-hours", "nan"], ["--spot-price", "-1"], ["--windows", "9" * 30]]
)
def test_numbers_are_checked(files, capsys, change):
    with pytest.raises(SystemExit) as caught:
        main(["simulate", "--traces", files, "--trace-id", "a", *BASE, "--policy", "greedy", *change])
    assert caught.value.code == 2
    assert "Traceback" not in capsys.readouterr().err


def test_a_file_of_two_needs_a_name(files, capsys):
    code, _, err = simulate(capsys, "--traces", files, *BASE, "--policy", "greedy")
    assert code == 2
    assert "add --trace-id" in err


def test_a_hostile_name_does_not_reach_the_terminal(tmp_path, capsys):
    path = tmp_path / "t.jsonl"
    path.write_text(json.dumps({"id": "a\x1b[31m\ud800", "gap_s": 600, "rle": [[1, 200]]}))
    code, out, _ = simulate(capsys, "--traces", str(path), *BASE, "--policy", "greedy")
    assert code == 0
    assert "\x1b" not in out.encode("utf-8").decode()
    code, out, _ = simulate(capsys, "--traces", str(path), *BASE, "--policy", "greedy", "--json")
    assert json.loads(out)["trace_ids"] == ["a\x1b[31m\ud800"]


def test_far_more_work_than_time_is_a_late_end_and_no_flood(files, capsys):
    args = ["--traces", files, "--trace-id", "a", *BASE, "--policy", "stayfast,greedy,optimum", "--json"]
    code, out, _ = simulate(capsys, *args, "--work-hours", "2000")
    assert code == 0
    rows = json.loads(out)["runs"]
    assert [row["met_deadline"] for row in rows] == [False] * 3
    # Late, but done: past the deadline and the trace it is on-demand that ends it.
    assert all(row["finish_hours"] >= 2000 for row in rows)


def test_many_windows_in_several_passes_are_the_same(files, capsys, monkeypatch):
    args = ["--traces", files, "--trace-id", "a", *BASE, "--policy", "greedy,stayfast", "--windows", "50", "--json"]
    whole = simulate(capsys, *args)[1]
    monkeypatch.setattr("stayfast.capacity.replay.summary.AT_ONCE", 7)
    assert simulate(capsys, *args)[1] == whole


def test_a_binary_file_is_refused(tmp_path, capsys):
    path = tmp_path / "t"
    path.write_bytes(b"\xff\xfe\x00{")
    code, _, err = simulate(capsys, "--traces", str(path), *BASE, "--policy", "greedy")
    assert code == 2
    assert "not UTF-8" in err
