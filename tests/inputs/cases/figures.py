"""Capacity traces, price catalogues and the figures on the command line."""

from __future__ import annotations

import json

from inputs.bad_inputs import Case

ROW = {"id": "a", "gap_s": 600, "rle": [[4, 100], [0, 20]]}
FIGURES = ("--work-hours", "5", "--deadline-hours", "9", "--policy", "greedy", "--on-demand-price", "3")
SIMULATE = ("simulate", "--traces", "t.jsonl", *FIGURES, "--spot-price", "1")
CATALOGUE = {
    "date": "2026-08-21",
    "source": "me",
    "machines": {"m": ["h100", 8, 208, 1872]},
    "usd_per_hour": {"m": {"us-central1": [9.0, 3.0, 4.0]}},
}


def trace(name: str, content: object, says: str, *options: str, file: str = "t.jsonl", **more: object) -> Case:
    """A trace file; what is no text or bytes is written as a line of JSON."""
    data = content if isinstance(content, str | bytes) else json.dumps(content)
    argv = tuple(file if word == "t.jsonl" else word for word in SIMULATE) + options
    return Case(f"trace-{name}", argv, says, files={file: data}, **more)  # type: ignore[arg-type]


def option(name: str, given: tuple[str, ...], says: str) -> Case:
    """A good trace and a wrong option."""
    return Case(f"simulate-{name}", (*SIMULATE, *given), says, files={"t.jsonl": json.dumps(ROW)})


def prices(name: str, content: object, says: str, **more: object) -> Case:
    """A catalogue file."""
    data = content if isinstance(content, str | bytes) else json.dumps(content)
    argv = ("prices", "show", "--json")
    env = {"STAYFAST_CATALOGUE": "{world}/p.json"}
    return Case(f"prices-{name}", argv, says, files={"p.json": data}, env=env, **more)  # type: ignore[arg-type]


TRACES = [
    trace("empty", "", "t.jsonl"),
    trace("not-json", "{", "t.jsonl:1: not JSON"),
    trace("no-id", ROW | {"id": ""}, "a trace needs an 'id' that is text"),
    trace("id-number", ROW | {"id": 7}, "a trace needs an 'id' that is text"),
    trace("no-tick", {"id": "a", "rle": [[1, 1]]}, "needs 'gap_s'"),
    trace("tick-boolean", ROW | {"gap_s": True}, "needs 'gap_s'"),
    trace("tick-zero", ROW | {"gap_s": 0}, "from 1 to 86400"),
    trace("tick-nan", json.dumps(ROW).replace("600", "NaN"), "from 1 to 86400"),
    trace("tick-infinite", json.dumps(ROW).replace("600", "1e999"), "from 1 to 86400"),
    trace("nodes-zero", ROW | {"nodes": 0}, "'nodes' of trace 'a' must be a whole number from 1"),
    trace("no-counts", {"id": "a", "gap_s": 600}, "needs 'rle' (pairs of count and ticks) or 'counts'"),
    trace("pair-of-three", ROW | {"rle": [[1, 2, 3]]}, "a pair is a count from 0 and ticks from 1"),
    trace("pair-negative", ROW | {"rle": [[-1, 2]]}, "a pair is a count from 0"),
    trace("pair-boolean", ROW | {"rle": [[True, 2]]}, "a pair is a count from 0"),
    trace("pair-huge", ROW | {"rle": [[1, 10**12]]}, "is longer than 5000000 ticks"),
    trace("counts-text", {"id": "a", "gap_s": 600, "counts": ["1"]}, "a pair is a count from 0"),
    trace("counts-empty", {"id": "a", "gap_s": 600, "counts": []}, "trace 'a' is empty"),
    trace("twice", json.dumps(ROW) + "\n" + json.dumps(ROW), "holds the trace 'a' twice"),
    trace("list", "[1]", "t.jsonl:1"),
    trace("deep", '{"id":' + "[" * 100_000, "t.jsonl:1: not JSON"),
    trace("5000-digits", '{"id": "a", "gap_s": ' + "9" * 5000 + "}", "t.jsonl:1: not JSON"),
    trace("utf-16", json.dumps(ROW).encode("utf-16"), "t.jsonl is not UTF-8 text"),
    trace("id-escape", ROW | {"id": "\x1b[2J", "gap_s": 0}, "needs 'gap_s'"),
    trace("long-pair", ROW | {"rle": [["x" * 5000, 1]]}, "a pair is a count from 0"),
    trace("several", json.dumps(ROW) + "\n" + json.dumps(ROW | {"id": "b"}), "holds 2 traces"),
    trace("csv-no-header", "1\n2\n", "t.csv:1: the CSV header has no column 'available'", file="t.csv"),
    trace("csv-text", "available\nmany\n", "t.csv:2: 'many' is not a number from 0", file="t.csv"),
    trace("csv-half", "available\n0.5\n", "t.csv:2: available is 0.5, not a whole number", file="t.csv"),
    trace("csv-negative", "available\n-1\n", "t.csv:2: '-1' is not a number from 0", file="t.csv"),
    trace("csv-nan", "available\nnan\n", "t.csv:2: 'nan' is not a number from 0", file="t.csv"),
    trace("csv-grid", "seconds,available\n0,1\n60,1\n90,1\n", "resample the trace", file="t.csv"),
    trace("csv-backwards", "seconds,available\n60,1\n0,1\n", "is not a tick of 1 to 86400 s", file="t.csv"),
    trace("csv-open-quote", 'available\n"1\n', "not readable as CSV", file="t.csv"),
    trace("csv-only-header", "available\n", "t.csv holds no trace", file="t.csv"),
    Case("trace-missing", SIMULATE, "t.jsonl cannot be read (No such file or directory)"),
    Case(
        "trace-endless", tuple("/dev/zero" if word == "t.jsonl" else word for word in SIMULATE), "/dev/zero is larger"
    ),
]

OPTIONS = [
    option("work-nan", ("--work-hours", "nan"), "'nan' is not a number from 0"),
    option("work-negative", ("--work-hours=-1",), "'-1' is not a number from 0"),
    option("deadline-zero", ("--deadline-hours", "0"), "'0' is not a number above 0"),
    option("deadline-infinite", ("--deadline-hours", "1e999"), "is not a number above 0"),
    option("deadline-eternal", ("--deadline-hours", "1e12"), "ticks long, more than 5000000"),
    option("nodes-half", ("--nodes", "1.5"), "'1.5' is not a whole number from 1"),
    option("nodes-underscore", ("--nodes", "1_0"), "is not a whole number from 1"),
    option("nodes-arabic", ("--nodes", "٣"), "is not a whole number from 1"),
    option("windows-zero", ("--windows", "0"), "is not a whole number from 1"),
    option("seed-text", ("--seed", "x"), "invalid int value: 'x'"),
    option("policy-unknown", ("--policy", "gready"), "gready"),
    option("policy-empty", ("--policy", ""), "policy"),
    option("flex-without-price", ("--policy", "flex-start"), "add --flex-start-price"),
    option("trace-id-unknown", ("--trace-id", "b"), "t.jsonl has no trace 'b'"),
    option("start-past-the-end", ("--start-hours", "1e9"), "start"),
    option("tick", ("--tick-seconds", "1e9"), "a tick of 1e+09 s is not one of 1 to 86400 s"),
    Case("simulate-no-source", ("simulate", *FIGURES, "--spot-price", "1"), "required: --traces"),
]

PRICES = [
    prices("empty", "", "p.json is not a price catalogue"),
    prices("list", [], "p.json is not a price catalogue"),
    prices("no-date", {**CATALOGUE, "date": None}, "is not a price catalogue"),
    prices("impossible-date", {**CATALOGUE, "date": "2026-13-45"}, "is not a price catalogue"),
    prices("price-negative", {**CATALOGUE, "usd_per_hour": {"m": {"r": [-1, 1, 1]}}}, "-1 is not a price"),
    prices("price-boolean", {**CATALOGUE, "usd_per_hour": {"m": {"r": [True, 1, 1]}}}, "True is not a price"),
    prices("price-nan", json.dumps(CATALOGUE).replace("9.0", "NaN"), "nan is not a price"),
    prices("price-text", {**CATALOGUE, "usd_per_hour": {"m": {"r": ["9", 1, 1]}}}, "'9' is not a price"),
    prices("two-prices", {**CATALOGUE, "usd_per_hour": {"m": {"r": [1, 1]}}}, "is not a price catalogue"),
    prices("unknown-machine", {**CATALOGUE, "usd_per_hour": {"x": {"r": [1, 1, 1]}}}, "do not belong together"),
    prices("count-text", {**CATALOGUE, "machines": {"m": ["h100", "8", 1, 1]}}, "is not a price catalogue"),
    prices("memory-text", {**CATALOGUE, "machines": {"m": ["h100", 8, "x", []]}}, "is not a price catalogue"),
    prices("name-number", {**CATALOGUE, "machines": {"m": [7, 8, 1, 1]}}, "is not a price catalogue"),
    prices("machine-short", {**CATALOGUE, "machines": {"m": ["h100"]}}, "is not a price catalogue"),
    prices("machines-list", {**CATALOGUE, "machines": [1]}, "is not a price catalogue"),
    prices("deep", "[" * 100_000, "is not a price catalogue"),
    prices("binary", bytes(range(256)), "p.json is not UTF-8 text"),
    Case("prices-missing", ("prices", "show"), "cannot be read", env={"STAYFAST_CATALOGUE": "{world}"}),
    Case("prices-region-unknown", ("prices", "show", "--region", "mars-north1"), "mars-north1"),
    Case("prices-accelerator-unknown", ("prices", "show", "--accelerator", "h1000"), "h1000"),
    Case("prices-refresh-no-key", ("prices", "refresh"), "STAYFAST_BILLING_API_KEY"),
    Case(
        "prices-refresh-endpoint",
        ("prices", "refresh"),
        "STAYFAST_BILLING_ENDPOINT",
        env={"STAYFAST_BILLING_API_KEY": "k", "STAYFAST_BILLING_ENDPOINT": "file:///etc/passwd"},
    ),
    Case(
        "prices-refresh-bracket",
        ("prices", "refresh"),
        "STAYFAST_BILLING_ENDPOINT",
        env={"STAYFAST_BILLING_API_KEY": "k", "STAYFAST_BILLING_ENDPOINT": "http://["},
    ),
    Case(
        "prices-refresh-unreachable",
        ("prices", "refresh"),
        "127.0.0.1:9",
        code=3,
        env={
            "STAYFAST_BILLING_API_KEY": "k",
            "STAYFAST_BILLING_ENDPOINT": "http://127.0.0.1:9",
            "STAYFAST_CATALOGUE": "{world}/p.json",
        },
    ),
    Case(
        "prices-plan-catalogue-missing",
        ("plan", "-f", "x", "--catalogue", "no.json"),
        "no.json cannot be read (No such file or directory)",
    ),
]

CASES = TRACES + OPTIONS + PRICES
