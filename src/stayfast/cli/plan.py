"""``stayfast plan``: which capacity for this workload, why, what it costs, when it ends."""

from __future__ import annotations

import argparse
import json
import math
import sys
from dataclasses import replace

from stayfast.capacity.machines.price_file import current_price_list
from stayfast.capacity.plan.assumptions import Assumptions
from stayfast.capacity.plan.document import example, to_json
from stayfast.capacity.plan.measurements import read_measured
from stayfast.capacity.plan.options import Option
from stayfast.capacity.plan.page import to_html
from stayfast.capacity.plan.planner import Plan, make_plan
from stayfast.capacity.replay.traces import Trace, read_traces
from stayfast.capacity.spec import json_schema, read_spec
from stayfast.cli.main import INFEASIBLE, OK, add_output
from stayfast.cli.prices import print_staleness
from stayfast.cli.simulate import non_negative_number, positive_number, whole
from stayfast.errors import SettingError
from stayfast.text.files import MAX_SPEC_BYTES, read_text, write_text
from stayfast.text.progress import with_elapsed

_BLOCKS = " ▁▂▃▄▅▆▇█"
_EPILOG = """\
examples:
  stayfast plan -f stayfast.yaml
  stayfast plan -f stayfast.yaml --html report.html
  stayfast plan -f stayfast.yaml --traces mine.jsonl --trace-id us-central1-a --json
  stayfast plan -f stayfast.yaml --measured rehearse.json
  stayfast plan --schema > stayfast.schema.json      for editors
Exit code 4: no capacity class can keep what the workload asks for.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """The options."""
    parser.epilog = _EPILOG
    parser.add_argument("-f", "--file", metavar="FILE", help="the workload, usually stayfast.yaml")
    parser.add_argument("--schema", action="store_true", help="print the JSON Schema of the workload file and stop")
    parser.add_argument("--html", metavar="FILE", help="also write a report that opens without a network")
    parser.add_argument("--traces", metavar="FILE", help="capacity traces of your place, instead of fitted regimes")
    parser.add_argument("--trace-id", metavar="ID", help="which trace of the file")
    parser.add_argument("--catalogue", metavar="FILE", help="a price catalogue, instead of the current one")
    parser.add_argument("--replays", type=whole, default=10_000, metavar="N", help="over all classes (default: 10000)")
    parser.add_argument("--seed", type=int, default=0, metavar="S", help="of the replays (default: 0)")
    parser.add_argument(
        "--cold-start-minutes", type=non_negative_number, metavar="M", help="node, image and process (default: 6)"
    )
    parser.add_argument(
        "--flex-wait-hours", type=non_negative_number, metavar="H", help="median wait in the flex-start queue"
    )
    parser.add_argument("--upload-gb-per-second", type=positive_number, metavar="G", help="node to bucket (default: 1)")
    parser.add_argument(
        "--egress-usd-per-gib", type=non_negative_number, metavar="USD", help="when the bucket is in another region"
    )
    parser.add_argument(
        "--measured", metavar="FILE", help="what stayfast rehearse --output json printed: start, last save, verdict"
    )
    add_output(parser)


def run(args: argparse.Namespace) -> int:
    """Read, weigh, print."""
    catalogue = current_price_list(args.catalogue)
    if args.schema:
        print(json.dumps(json_schema(catalogue.accelerators), indent=1))
        return OK
    if not args.file:
        raise SettingError("no workload is named", help="add -f stayfast.yaml, or run: stayfast init train DIR")
    spec = read_spec(read_text(args.file, most_bytes=MAX_SPEC_BYTES), args.file, accelerators=catalogue.accelerators)
    traces = _traces(args)
    with with_elapsed(f"replaying {args.replays} times"):
        plan = make_plan(spec, catalogue, assumptions=_assumptions(args), traces=traces)
    if args.html:
        _write(args.html, to_html(plan, example(plan)))
    if args.output == "json":
        print(json.dumps(to_json(plan) | {"prices_date": str(catalogue.date)}))
    else:
        print(text(plan), end="")
    print_staleness(catalogue)
    return OK if plan.choice else INFEASIBLE


def _assumptions(args: argparse.Namespace) -> Assumptions:
    assumed = Assumptions(windows=max(1, args.replays // 4), seed=args.seed)
    if args.cold_start_minutes is not None:
        assumed = replace(assumed, cold_start_seconds=args.cold_start_minutes * 60)
    if args.flex_wait_hours is not None:
        assumed = replace(assumed, flex_wait_median_seconds=args.flex_wait_hours * 3600)
    if args.upload_gb_per_second is not None:
        assumed = replace(assumed, upload_bytes_per_second=args.upload_gb_per_second * 1e9)
    if args.egress_usd_per_gib is not None:
        names = ("egress_usd_per_gib_near", "egress_usd_per_gib_far", "egress_usd_per_gib_remote")
        assumed = replace(assumed, **dict.fromkeys(names, args.egress_usd_per_gib))
    if args.measured:
        assumed = replace(assumed, measured=read_measured(read_text(args.measured), args.measured))
    return assumed


def _traces(args: argparse.Namespace) -> list[Trace] | None:
    if not args.traces:
        return None
    found = read_traces(read_text(args.traces), args.traces)
    if args.trace_id:
        found = [trace for trace in found if trace.id == args.trace_id]
    if len(found) != 1:
        raise SettingError(
            f"{args.traces} must give exactly one trace, not {len(found)}", help="choose with --trace-id"
        )
    return found


def _write(name: str, page: str) -> None:
    write_text(name, page)
    print(f"stayfast: wrote {name}", file=sys.stderr)


def text(plan: Plan) -> str:
    """The plan for a person at a terminal."""
    choice = plan.choice.value if plan.choice else "nothing fits"
    lines = [
        f"{plan.spec.name}: {choice.upper()}",
        f"{plan.spec.nodes} × {plan.machine.name} ({plan.machine.count} {plan.machine.accelerator}) in {plan.region}",
        "",
        *(f"  {'•'} {reason}" for reason in plan.because),
        "",
        f"{'':2}{'class':<12}{'$/h':>9}{'cost p50':>12}{'p95':>12}{'done p50':>10}{'p95':>9}{'goodput':>9}  spread",
        *(_row(option, plan) for option in plan.options),
        "",
    ]
    if math.isfinite(plan.interval.interval_seconds):
        lines.append(f"checkpoint every {plan.interval.interval_seconds:.0f} s: {plan.interval.because}")
        verdict = "fits" if plan.grace.fits else "does not fit"
        window = f"the {plan.grace.window_seconds:.0f} s of notice"
        lines.append(f"a last save needs {plan.grace.needed_seconds:.1f} s and {verdict} {window}")
    for title, sentences in (
        ("what would change the answer", [flip.sentence for flip in plan.flips]),
        ("advice", plan.advice),
    ):
        if sentences:
            lines += ["", f"{title}:", *(f"  - {sentence}" for sentence in sentences)]
    lines += [
        "",
        f"based on {plan.basis}; {plan.assumptions.windows} replays of each class, seed {plan.assumptions.seed}",
    ]
    return "\n".join(lines) + "\n"


def _row(option: Option, plan: Plan) -> str:
    mark = "▶" if option.kind == plan.choice else " " if option.feasible else "×"
    price = "-" if option.usd_per_hour is None else f"{option.usd_per_hour:.2f}"
    start = f"{mark} {option.kind.value:<12}{price:>9}"
    if option.cost_usd is None or option.finish_hours is None or option.goodput is None:
        return start
    late = f"{option.finish_hours.p95:.1f} h" if math.isfinite(option.finish_hours.p95) else "not done"
    middle = f"{option.finish_hours.p50:.1f} h" if math.isfinite(option.finish_hours.p50) else "not done"
    figures = f"{option.cost_usd.p50:>12,.2f}{option.cost_usd.p95:>12,.2f}{middle:>10}{late:>9}{option.goodput:>9.1%}"
    return f"{start}{figures}  {_spark(option, plan)}"


def _spark(option: Option, plan: Plan, width: int = 24) -> str:
    """How the costs of the replays are spread, on one scale for all classes."""
    top = max(float(other.costs.max()) for other in plan.options if other.costs is not None) or 1.0
    counts = [0] * width
    for cost in option.costs.tolist():
        counts[min(width - 1, int(cost / top * width))] += 1
    high = max(counts)
    return "".join(_BLOCKS[0 if not count else 1 + (count * 7) // high] for count in counts)
