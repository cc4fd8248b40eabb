"""Our policy beside uniform progress and greedy, by trace: mean gap to the optimum in hindsight, over random windows.

    python benchmarks/bench_policy.py TRACES [--windows 60] [--seed 1]

The regimes are fitted without the trace that is replayed (all its gang sizes left out). Gaps are shares of the price
of the work on on-demand, so that traces with different prices can be averaged. Goals: at most 90 % of uniform
progress's gap in a single zone, at most 60 % with free choice among the GCP H100 zones, and no deadline missed.
"""

from __future__ import annotations

import argparse
import random
import sys
from pathlib import Path
from typing import Any

import numpy as np
from fit_regimes import histories
from regime_fit import fit_regimes
from reporting import parse, publish

from stayfast.capacity.policies.adaptive import AdaptivePolicy
from stayfast.capacity.policies.policy import make_policy
from stayfast.capacity.policies.values import Scenario, floor_ticks
from stayfast.capacity.replay.engine import AvailabilityTable, Replay
from stayfast.capacity.replay.optimum import find_optima
from stayfast.capacity.replay.scenario import window_of
from stayfast.capacity.replay.traces import Trace, read_traces

JOBS = {"48 h by 60 h": (48, 60), "24 h by 36 h": (24, 36)}
SINGLE_GOAL, FREE_GOAL = 0.9, 0.6
ORDERS = 5


def scenario_for(trace: Trace, nodes: int, job: str) -> Scenario:
    """Prices and cold starts of the reference cases: AWS V100 or GCP H100."""
    work, deadline = (hours * 3600.0 for hours in JOBS[job])
    if trace.id.startswith("gcp"):
        return Scenario(work, deadline, 360, 10.979, 6.5874, nodes)
    return Scenario(work, deadline, 720, 3.06, 0.9731, nodes)


def gaps(traces: list[Trace], scenario: Scenario, starts: list[int], policies: dict[str, Any]) -> dict[str, Any]:
    """Mean gap of each policy over the same windows, and the deadlines missed that greedy met."""
    tick = traces[0].tick_seconds
    base = scenario.on_demand_usd_per_hour * scenario.work_seconds / 3600
    windows = [window_of(traces, nodes=scenario.nodes, start_seconds=start * tick) for start in starts]
    best = np.array([outcome.cost_usd for outcome in find_optima(scenario, windows)])
    table = np.array([np.frombuffer(trace.available(scenario.nodes), dtype=np.uint8) for trace in traces])
    row: dict[str, Any] = {"optimum": float(best.mean()) / base}
    met = {}
    for name, policy in policies.items():
        done = Replay(scenario, AvailabilityTable(tick, table, np.array(starts)), policy).run()
        row[name] = float((done.cost * tick / 3600 - best).mean()) / base
        met[name] = done.in_time
    row["missed"] = int((met["greedy"] & ~met["stayfast"]).sum())
    return row


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("traces")
    parser.add_argument("--windows", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    args = parse(parser)
    known = read_traces(Path(args.traces).read_text(), args.traces)
    rows = []
    for job in JOBS:
        for trace, nodes in histories(known):
            scenario = scenario_for(trace, nodes, job)
            others = [item for item in histories(known) if item[0].id != trace.id]
            rng = random.Random(f"{args.seed} {trace.id} {nodes} {job}")
            last = trace.ticks - floor_ticks(scenario.deadline_seconds, trace.tick_seconds)
            starts = [rng.randint(0, last) for _ in range(args.windows)]
            policies = {name: make_policy(name) for name in ("greedy", "uniform-progress")}
            row = gaps([trace], scenario, starts, policies | {"stayfast": AdaptivePolicy(fit_regimes(others))})
            rows.append({"job": job, "trace": trace.id, "nodes": nodes, "kind": "single", **row})
            show(rows[-1])
        for nodes in (16, 4):
            rows.append(free_choice(known, nodes, job, args))
            show(rows[-1])
    return report(rows, args)


def free_choice(known: list[Trace], nodes: int, job: str, args: argparse.Namespace) -> dict[str, Any]:
    """All GCP H100 zones at once, at one price, in several orders; the regimes come from AWS alone."""
    zones = [trace for trace in known if trace.id.startswith("gcp-h100/")]
    scenario = scenario_for(zones[0], nodes, job)
    others = [item for item in histories(known) if not item[0].id.startswith("gcp-h100/")]
    rng = random.Random(f"{args.seed} free {nodes} {job}")
    last = min(zone.ticks for zone in zones) - floor_ticks(scenario.deadline_seconds, zones[0].tick_seconds)
    starts = [rng.randint(0, last) for _ in range(args.windows)]
    policies = {name: make_policy(name) for name in ("greedy", "uniform-progress")}
    policies["stayfast"] = AdaptivePolicy(fit_regimes(others))
    rows = []
    for _ in range(ORDERS):
        rng.shuffle(zones)  # uniform progress takes the first open one: which is first must not matter
        rows.append(gaps(zones, scenario, starts, policies))
    row = {name: sum(item[name] for item in rows) / ORDERS for name in rows[0]}
    row["missed"] = sum(item["missed"] for item in rows)
    return {"job": job, "trace": "free choice of 13 GCP zones", "nodes": nodes, "kind": "free", **row}


def show(row: dict[str, Any]) -> None:
    ratio = row["stayfast"] / row["uniform-progress"] if row["uniform-progress"] > 1e-6 else float("nan")
    head = f"{row['job']:<14}{row['trace'][-38:]:<40}{row['nodes']:>3}  optimum {row['optimum']:.3f}"
    body = f"  greedy +{row['greedy']:.4f}  uniform +{row['uniform-progress']:.4f}  stayfast +{row['stayfast']:.4f}"
    print(f"{head}{body}  ratio {ratio:.2f}  missed {row['missed']}", flush=True)


def report(rows: list[dict[str, Any]], args: argparse.Namespace) -> int:
    failed = sum(row["missed"] for row in rows) > 0
    summary = []
    for kind, goal in (("single", SINGLE_GOAL), ("free", FREE_GOAL)):
        for job in (*JOBS, None):
            some = [row for row in rows if row["kind"] == kind and job in (None, row["job"])]
            line, ours = (sum(row[name] for row in some) / len(some) for name in ("uniform-progress", "stayfast"))
            ratio = ours / line
            failed |= job is None and ratio > goal
            means = f"uniform +{line:.4f}  stayfast +{ours:.4f}"
            print(f"{kind:<7}{job or 'all jobs':<14} {means}  ratio {ratio:.3f}  goal {goal}")
            summary.append({"kind": kind, "job": job or "all", "uniform-progress": line, "stayfast": ours})
            summary[-1] |= {"ratio": ratio, "goal": goal}
    publish("policy", rows, record=args.record, windows=args.windows, seed=args.seed, summary=summary)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
