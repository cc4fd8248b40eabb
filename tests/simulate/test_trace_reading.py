"""Trace files: both formats, and one sentence with the line for each way to get them wrong."""

from __future__ import annotations

import json
import random

import pytest

from stayfast.capacity.replay.traces import from_counts, read_traces
from stayfast.errors import UsageError

GOOD = {"id": "zone-a", "gap_s": 600, "nodes": 16, "zone": "a", "rle": [[0, 2], [16, 3], [7, 1]]}


def line(**changes):
    row = {**GOOD, **changes}
    return json.dumps({key: value for key, value in row.items() if value is not ...})


def test_jsonl_with_runs_or_counts():
    traces = read_traces(line() + "\n\n" + line(id="b", rle=..., counts=[1, 1, 0]), "t.jsonl")
    assert [trace.id for trace in traces] == ["zone-a", "b"]
    assert traces[0].ticks == 6
    assert traces[0].hours == 1.0
    assert traces[0].available(16) == bytes([0, 0, 1, 1, 1, 0])
    assert traces[0].available(7) == bytes([0, 0, 1, 1, 1, 1])
    assert traces[1].runs == ((1, 2), (0, 1))


def test_csv_with_times_and_zones():
    text = "\ufeffseconds,available,zone\n0,4,a\n0,0,b\n300,4,a\n300,1,b\n600,0,a\n600,1,b\n"
    first, second = read_traces(text, "t.csv")
    assert (first.id, first.tick_seconds, first.runs) == ("a", 300.0, ((4, 2), (0, 1)))
    assert (second.id, second.runs) == ("b", ((0, 1), (1, 2)))


def test_csv_without_times_takes_the_given_tick():
    (trace,) = read_traces("available\n1\n\n1\n0\n", "t.csv", tick_seconds=195)
    assert (trace.id, trace.tick_seconds, trace.ticks) == ("t.csv", 195, 3)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "holds no trace|header has no column"),
        ("{", "t:1: not JSON"),
        ('{"id": 1}', "t:1: a trace needs an 'id'"),
        (line() + "\n[1]", "t:2: a trace needs an 'id'"),
        (line(gap_s=...), "t:1: .*needs 'gap_s'"),
        (line(gap_s=0), "t:1: .*needs 'gap_s'"),
        (line(gap_s=float("nan")), "t:1: .*needs 'gap_s'"),
        (line(gap_s="600"), "t:1: .*needs 'gap_s'"),
        (line(nodes=0), "t:1: 'nodes'"),
        (line(nodes=True), "t:1: 'nodes'"),
        (line(rle=...), "t:1: .*needs 'rle'"),
        (line(rle=[]), "t:1: .*is empty"),
        (line(rle=[[1]]), r"t:1: .*the pair \[1\]"),
        (line(rle=[[1, 0]]), "t:1: .*the pair"),
        (line(rle=[[-1, 1]]), "t:1: .*the pair"),
        (line(rle=[[1.5, 1]]), "t:1: .*the pair"),
        (line(rle=[[1, 10**12]]), "t:1: .*longer than"),
        (line(rle=..., counts=[1, "2"]), "t:1: .*the pair"),
        (line() + "\n" + line(), "twice"),
        ("[" * 100_000, "header has no column"),
        ('{"id":' + "[" * 100_000, "t:1: not JSON"),
        ("seconds,count\n0,1", "t:1: .*no column 'available'"),
        ("seconds,available\n0,1\n60,x", "t:3: 'x'"),
        ("seconds,available\n0,1\n60", "t:3: ''"),
        ("seconds,available\n0,1\n60,-1", "t:3: '-1'"),
        ("seconds,available\n0,1\n60,1.5", "t:3: available is 1.5"),
        ("seconds,available\n0,1\n60,1\n90,1", "t:4: the step from 60 s to 90 s"),
        ("seconds,available\n60,1\n0,1", "t:3: 60 s to 0 s is not a tick.*rising order"),
        ("seconds,available\n0,1\n0,1", "t:3: 0 s to 0 s is not a tick"),
        ("seconds,available\n0,1\n0.001,1", "t:3: .*is not a tick"),
        ("seconds,available\n0,1\n1e300,1", "t:3: .*is not a tick"),
        ("available\nnan", "t:2: 'nan'"),
        ("available\n1e999", "t:2: '1e999'"),
        ('available\n"1\n', "t:2: not readable as CSV"),
        ("available\n1\0\n", "t:2"),
        ("seconds;available\n0;1", "no column 'available'"),
        (line(gap_s=float("inf")), "t:1: .*needs 'gap_s'"),
        (line(gap_s=True), "t:1: .*needs 'gap_s'"),
    ],
)
def test_every_mistake_is_one_sentence(text, expected):
    with pytest.raises(UsageError, match=expected) as caught:
        read_traces(text, "t")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("ending", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_marks_line_ends_and_blanks_change_nothing(ending, mark):
    plain = read_traces("seconds,available\n0,1\n600,4\n1200,0\n", "t.csv")
    rows = ["seconds,available", "0,1", " 600 , 4 ", "", "1200,0", ""]
    assert read_traces(mark + ending.join(rows), "t.csv") == plain
    jsonl = [line(), "", line(id="b")]
    if ending != "\r":
        assert read_traces(mark + ending.join(jsonl), "t") == read_traces("\n".join(jsonl), "t")


@pytest.mark.parametrize("tick", [0.5, 90_000, float("nan")])
def test_a_given_tick_has_bounds_too(tick):
    with pytest.raises(UsageError, match="is not one of 1 to 86400 s"):
        read_traces("available\n1\n", "t", tick_seconds=tick)


def test_random_damage_raises_nothing_else():
    rng = random.Random(7)
    texts = [line() + "\n" + line(id="b"), "seconds,available,zone\n0,1,a\n60,2,a\n"]
    refused = 0
    for _ in range(3000):
        data = bytearray(rng.choice(texts).encode())
        for _ in range(rng.randint(1, 4)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        try:
            read_traces(data.decode("utf-8", "replace"), "t")
        except UsageError:
            refused += 1
    assert refused > 500


def test_from_counts_joins_equal_neighbours():
    assert from_counts("x", [0, 0, 3, 3, 3, 0], tick_seconds=1).runs == ((0, 2), (3, 3), (0, 1))
