"""Windows replayed per CPU second: 60 h windows of 10-minute ticks, the fast engine beside the plain one.

    python benchmarks/bench_replay.py [--traces FILE [--trace-id ID ...]]

Without a trace file a bursty synthetic history is used. Goal: at least 5,000 windows per second and core for every
policy; published simulators of the same rules were measured at 2 to 63. The engines replay the same windows,
interleaved; medians of 5 in CPU seconds, so that other load does not count. What our policy looks up is solved once per
scenario, before the clock runs, and its seconds are told apart. The optimum is no policy: it solves a program for every
window, and is listed for what it does.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from reporting import parse, publish

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests" / "simulate"))
from plain_engine import replay
from plain_policies import PLAIN_POLICIES

from stayfast.capacity.policies.policy import POLICIES
from stayfast.capacity.policies.value_tables import solve_value_tables
from stayfast.capacity.policies.values import Scenario
from stayfast.capacity.replay.optimum import find_optima, optimum
from stayfast.capacity.replay.scenario import TraceWindow, window_of
from stayfast.capacity.replay.summary import run_batch
from stayfast.capacity.replay.traces import Trace, from_counts, read_traces

GOAL = 5000
WINDOWS, REPEATS = 10_000, 5
PLAIN_WINDOWS = {"stayfast": 3, "optimum": 10}
SCENARIO = Scenario(48 * 3600, 60 * 3600, 360, 10.979, 6.5874, 16, flex_start_usd_per_hour=4.2, flex_wait_seconds=7200)


def synthetic(seed: int = 1) -> Trace:
    """Ten-minute ticks, up for two hours and down for half an hour on average."""
    rng = random.Random(seed)
    counts: list[int] = []
    while len(counts) < 2104:
        counts += [16] * max(1, int(rng.expovariate(1 / 12))) + [0] * max(1, int(rng.expovariate(1 / 3)))
    return from_counts("synthetic", counts[:2104], tick_seconds=600, nodes=16)


def rate(count: int, work: Callable[[], Any]) -> float:
    """Windows per CPU second of this process."""
    begun = time.process_time()
    work()
    return count / (time.process_time() - begun)


def measure(trace: Trace, name: str) -> dict[str, Any]:
    """One policy on one trace."""
    rng = random.Random(0)
    starts = [rng.randint(0, trace.ticks - 360) for _ in range(WINDOWS)]
    few = [window_of([trace], nodes=16, start_seconds=start * 600.0) for start in starts[: PLAIN_WINDOWS.get(name, 40)]]
    many = [window_of([trace], nodes=16, start_seconds=start * 600.0) for start in starts[:500]]

    def fast() -> float:
        if name == "optimum":
            return rate(len(many), lambda: find_optima(SCENARIO, many))
        return rate(WINDOWS, lambda: run_batch([trace], SCENARIO, name, starts))

    def plain(window: TraceWindow) -> None:
        if name == "optimum":
            optimum(SCENARIO, window)
        else:
            replay(SCENARIO, window, PLAIN_POLICIES[name](), name)

    solve_value_tables.cache_clear()
    begun = time.process_time()
    if name != "optimum":
        run_batch([trace], SCENARIO, name, starts[:1])
    once = time.process_time() - begun
    pairs = [(fast(), rate(len(few), lambda: [plain(window) for window in few])) for _ in range(REPEATS)]
    quick, slow = (statistics.median(column) for column in zip(*pairs, strict=True))
    return {
        "trace": trace.id,
        "policy": name,
        "windows_per_cpu_second": quick,
        "plain_engine": slow,
        "ratio": quick / slow,
        "once_per_scenario_seconds": round(once, 2),
        "goal_reached": quick >= GOAL,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--traces")
    parser.add_argument("--trace-id", action="append")
    args = parse(parser)
    traces = [synthetic()]
    if args.traces:
        known = {item.id: item for item in read_traces(Path(args.traces).read_text(), args.traces)}
        wanted = args.trace_id or ["gcp-h100/us-central1-a", "gcp-h100/us-east5-a"]
        traces += [known[identity] for identity in wanted]
    rows = [measure(trace, name) for trace in traces for name in (*POLICIES.names(), "optimum")]
    publish("replay_speed", rows, record=args.record, goal=GOAL, windows=WINDOWS)
    slowest = min((row for row in rows if row["policy"] != "optimum"), key=lambda row: row["windows_per_cpu_second"])
    verdict = "reached" if slowest["goal_reached"] else "MISSED"
    told = f"{slowest['policy']} on {slowest['trace']}, {slowest['windows_per_cpu_second']:.0f} windows per CPU second"
    print(f"slowest policy: {told}; goal {GOAL}: {verdict}")
    return int(not slowest["goal_reached"])


if __name__ == "__main__":
    sys.exit(main())
