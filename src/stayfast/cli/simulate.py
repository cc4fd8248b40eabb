"""``stayfast simulate``: replay recorded capacity through policies, and say what each would have cost."""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Callable
from typing import Any

from stayfast.capacity.policies.policy import NAMES, OPTIMUM, make_policy
from stayfast.capacity.policies.values import Saving, Scenario, floor_ticks
from stayfast.capacity.replay.scenario import window_of
from stayfast.capacity.replay.summary import draw_starts, outcome_row, run_many, run_one, summary_row
from stayfast.capacity.replay.traces import MAX_TICKS, Trace, read_traces
from stayfast.cli.main import add_output
from stayfast.errors import SettingError
from stayfast.model.capacity import CapacityClass
from stayfast.text.files import read_text
from stayfast.text.progress import with_elapsed
from stayfast.text.safe import printable
from stayfast.text.suggest import similar

MAX_WHOLE = 1_000_000
"""Nodes, windows, replays: more is a slip of the keyboard, or a matter of days."""
_EPILOG = """\
examples:
  stayfast simulate --traces traces.jsonl --trace-id gcp-h100/us-central1-a --nodes 16 --work-hours 48 \\
      --deadline-hours 60 --cold-start-hours 0.1 --policy greedy,uniform-progress,optimum \\
      --on-demand-price 10.98 --spot-price 6.59
  stayfast simulate ... --windows 1000 --seed 7     many random starts instead of one
Prices are those of the whole gang per hour. Several --trace-id give a free choice among zones.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """The options."""
    parser.epilog = _EPILOG
    parser.add_argument("--traces", required=True, metavar="FILE", help="capacity traces, JSONL or CSV")
    parser.add_argument("--trace-id", action="append", metavar="ID", help="which trace; repeat for several zones")
    parser.add_argument("--nodes", type=whole, default=1, metavar="N", help="gang size (default: 1)")
    parser.add_argument("--work-hours", type=non_negative_number, required=True, metavar="C", help="useful work to do")
    parser.add_argument("--deadline-hours", type=positive_number, required=True, metavar="R", help="from the start")
    parser.add_argument("--cold-start-hours", type=non_negative_number, default=0.0, metavar="D", help="of every start")
    parser.add_argument(
        "--start-hours", type=non_negative_number, default=0.0, metavar="S", help="where in the trace to start"
    )
    parser.add_argument("--policy", required=True, metavar="P[,P…]", help=", ".join(NAMES))
    parser.add_argument(
        "--on-demand-price", type=non_negative_number, required=True, metavar="USD", help="per hour, whole gang"
    )
    parser.add_argument(
        "--spot-price", type=non_negative_number, required=True, metavar="USD", help="per hour, whole gang"
    )
    parser.add_argument("--windows", type=whole, metavar="N", help="many random starts instead of --start-hours")
    parser.add_argument("--seed", type=int, default=0, metavar="S", help="of the random starts (default: 0)")
    parser.add_argument("--tick-seconds", type=positive_number, metavar="G", help="tick of a CSV without times")
    saving = parser.add_argument_group("checkpoints (without an interval no work is ever lost)")
    saving.add_argument(
        "--checkpoint-interval-seconds", type=positive_number, metavar="T", help="useful work between two"
    )
    saving.add_argument(
        "--checkpoint-seconds", type=non_negative_number, default=0.0, metavar="T", help="blocking cost of one"
    )
    saving.add_argument(
        "--restore-seconds",
        type=non_negative_number,
        default=0.0,
        metavar="T",
        help="at a start that has work to go on from",
    )
    saving.add_argument("--notice-saves", action="store_true", help="a last save fits the grace window")
    saving.add_argument("--job-backoff", action="store_true", help="add the Job controller's delays: 10 s to 10 min")
    flex = parser.add_argument_group("flex-start")
    flex.add_argument("--flex-start-price", type=non_negative_number, metavar="USD", help="per hour, whole gang")
    flex.add_argument(
        "--flex-wait-hours", type=non_negative_number, default=0.0, metavar="H", help="in the queue, per lease"
    )
    add_output(parser)


def run(args: argparse.Namespace) -> int:
    """Read, replay, print."""
    policies = [name.strip() for name in args.policy.split(",")]
    needs = {kind for name in policies if name != OPTIMUM for kind in make_policy(name).needs}
    scenario = _scenario(args)
    if scenario.flex_start_usd_per_hour is None and CapacityClass.FLEX_START in needs:
        raise SettingError("the policy flex-start needs a price", help="add --flex-start-price")
    traces = _traces(args)
    _check_length(scenario, traces[0].tick_seconds)
    result: dict[str, Any] = {"trace_ids": [trace.id for trace in traces], "nodes": scenario.nodes}
    if args.windows is None:
        window = window_of(traces, nodes=scenario.nodes, start_seconds=args.start_hours * 3600)
        if window.ticks < floor_ticks(scenario.deadline_seconds, window.tick_seconds):
            print("stayfast: the window reaches past the end of the trace; there Spot counts as gone", file=sys.stderr)
        result["runs"] = [outcome_row(run_one(scenario, window, policy)) for policy in policies]
    else:
        starts = draw_starts(traces, scenario, windows=args.windows, seed=args.seed)
        result |= {"windows": args.windows, "seed": args.seed}
        with with_elapsed(f"replaying {args.windows} windows"):
            result["runs"] = [summary_row(policy, run_many(traces, scenario, policy, starts)) for policy in policies]
    if args.output == "json":
        print(json.dumps(result))
    else:
        _print_table(result)
    return 0


def _scenario(args: argparse.Namespace) -> Scenario:
    saving = None
    if args.checkpoint_interval_seconds is not None:
        saving = Saving(
            args.checkpoint_interval_seconds, args.checkpoint_seconds, args.restore_seconds, args.notice_saves
        )
    return Scenario(
        _seconds(args.work_hours),
        _seconds(args.deadline_hours),
        _seconds(args.cold_start_hours),
        args.on_demand_price,
        args.spot_price,
        args.nodes,
        saving,
        args.job_backoff,
        args.flex_start_price,
        _seconds(args.flex_wait_hours),
    )


def _check_length(scenario: Scenario, tick_seconds: float) -> None:
    """On-demand runs until it is done: refuse what would take for ever, and say which figure does."""
    saving = scenario.saving
    figures = {
        "the deadline": scenario.deadline_seconds,
        "the work with its checkpoints": scenario.work_seconds * (saving.stretch if saving else 1.0),
        "a start": scenario.cold_start_seconds + (saving.restore_seconds if saving else 0.0),
    }
    name = max(figures, key=lambda key: figures[key])
    ticks = figures[name] / tick_seconds
    if ticks > MAX_TICKS:
        raise SettingError(
            f"{name} is {ticks:.3g} ticks long, more than {MAX_TICKS}", help="shorten it; check the unit"
        )


def _seconds(hours: float) -> float:
    """Hours as typed, to the microsecond: 0.1 h is 360 s and nothing else."""
    return round(hours * 3600, 6)


def _traces(args: argparse.Namespace) -> list[Trace]:
    traces = read_traces(read_text(args.traces), args.traces, tick_seconds=args.tick_seconds)
    by_id = {trace.id: trace for trace in traces}
    if not args.trace_id:
        if len(traces) > 1:
            raise SettingError(f"{args.traces} holds {len(traces)} traces", help=f"add --trace-id, e.g. {traces[0].id}")
        return traces
    missing = [identity for identity in args.trace_id if identity not in by_id]
    if missing:
        near = similar(missing[0], by_id, cutoff=0.3) or traces[0].id
        raise SettingError(f"{args.traces} has no trace {missing[0]!r}", help=f"write for example {near}")
    return [by_id[identity] for identity in dict.fromkeys(args.trace_id)]


def _number(low: float, *, including: bool) -> Callable[[str], float]:
    def parse(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not math.isfinite(value) or value < low or (value == low and not including):
            raise argparse.ArgumentTypeError(f"{text!r} is not a number {'from' if including else 'above'} {low:g}")
        return value

    return parse


non_negative_number = _number(0.0, including=True)
positive_number = _number(0.0, including=False)


def whole(text: str) -> int:
    """A whole number from 1, as typed."""
    if not text.isascii() or not text.isdigit() or not 1 <= int(text[:10]) <= MAX_WHOLE:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1 to {MAX_WHOLE}")
    return int(text)


def tcp_port(text: str) -> int:
    """A TCP port, as typed; 0 takes a free one."""
    if not text.isascii() or not text.isdigit() or int(text[:10]) > 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port from 0 to 65535")
    return int(text)


def _print_table(result: dict[str, Any]) -> None:
    many = "windows" in result
    names = ", ".join(result["trace_ids"])
    print(f"{printable(names)}, gang of {result['nodes']}")
    if many:
        print(f"{result['windows']} windows, seed {result['seed']}; means")
    print(
        f"{'policy':<18}{'cost $':>12}{'Spot h':>9}{'on-dem h':>10}{'flex h':>8}{'finish h':>10}{'breaks':>8}  deadline"
    )
    for row in result["runs"]:
        finish = "never" if row["finish_hours"] is None else f"{row['finish_hours']:.2f}"
        breaks = "" if row["interruptions"] is None else f"{row['interruptions']:g}"
        met = f"{row['met_deadline']:.1%}" if many else ("met" if row["met_deadline"] else "MISSED")
        print(
            f"{row['policy']:<18}{row['cost_usd']:>12.2f}{row['spot_hours']:>9.2f}{row['on_demand_hours']:>10.2f}"
            f"{row['flex_start_hours']:>8.2f}{finish:>10}{breaks:>8}  {met}"
        )
