"""``stayfast bill``: what a run has really cost, per useful step, from the records in its bucket."""

from __future__ import annotations

import argparse
import json
import math
from typing import Any

from stayfast.cli.main import add_output
from stayfast.cli.simulate import non_negative_number
from stayfast.errors import KeyMissingError, UsageError
from stayfast.runtime.run_record.billing import bill_run
from stayfast.runtime.run_record.record import RECORD_KEY, decode
from stayfast.storage.stores.open_store import open_store
from stayfast.text.files import read_text

_EPILOG = """\
examples:
  stayfast bill gs://bucket/runs/llm-7
  stayfast bill file:///data/run --usd-per-hour 6.59 --plan plan.json
Attempts that did not know their price are billed at --usd-per-hour, or listed as unpriced.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """The options."""
    parser.epilog = _EPILOG
    parser.add_argument("url", metavar="URL", help="of the run")
    parser.add_argument(
        "--usd-per-hour", type=non_negative_number, metavar="USD", help="for attempts that did not know their price"
    )
    parser.add_argument("--plan", metavar="FILE", help="output of `stayfast plan --json`, to hold the estimate against")
    add_output(parser)


def run(args: argparse.Namespace) -> int:
    """Read the ledger, add it up, print."""
    store = open_store(args.url)
    try:
        head = decode(store.get(RECORD_KEY).data, where=f"{args.url}/{RECORD_KEY}")
    except KeyMissingError as error:
        raise UsageError(
            f"there is no run under {args.url}", help="give the URL that stayfast.run was given"
        ) from error
    finally:
        store.close()
    result = bill_run(head, args.usd_per_hour)
    if args.plan:
        result["estimate"] = _estimate(args.plan, result)
    if args.output == "json":
        print(json.dumps(result))
    else:
        _print(result)
    return 0


def _estimate(name: str, result: dict[str, Any]) -> dict[str, Any]:
    try:
        plan = json.loads(read_text(name))
        option = next(item for item in plan["options"] if item["class"] == plan["choice"])
        middle, bad = float(option["cost_usd"]["p50"]), float(option["cost_usd"]["p95"])
        if not (math.isfinite(middle) and math.isfinite(bad)):
            raise ValueError("a cost that is not a number")
    except (ValueError, KeyError, TypeError, StopIteration, RecursionError) as error:
        raise UsageError(f"{name} is not a plan", help="write it with: stayfast plan --json") from error
    actual = result["usd"]
    return {
        "class": plan["choice"],
        "p50_usd": middle,
        "p95_usd": bad,
        "actual_over_p50": actual / middle if actual is not None and middle else None,
    }


def _print(result: dict[str, Any]) -> None:
    state = "finished" if result["finished"] else "not finished"
    print(f"{result['run']}: {result['steps']} steps in {result['attempts']} attempts, {state}")
    if result["usd"] is not None:
        per = f", ${result['usd_per_step']:.6f} per useful step" if result["usd_per_step"] is not None else ""
        print(f"cost ${result['usd']:,.2f}{per}")
    else:
        print(f"cost ${result['usd_priced']:,.2f} and {result['unpriced_seconds'] / 3600:.2f} h without a known price")
        print("add --usd-per-hour to price them")
    hours = {name: result[f"{name}_seconds"] / 3600 for name in ("paid", "useful", "lost", "save", "other")}
    print("hours: " + ", ".join(f"{name} {value:.2f}" for name, value in hours.items()))
    if result["goodput"] is not None:
        print(f"goodput {result['goodput']:.1%}")
    for row in result["rows"]:
        usd = "       -" if row["usd"] is None else f"{row['usd']:>8.2f}"
        why = row["cause"] or row["outcome"] or "running"
        print(
            f"  attempt {row['attempt']:>4}  ${usd}  {row['paid_seconds'] / 3600:>8.2f} h  {why}  {row['zone'] or ''}"
        )
    estimate = result.get("estimate")
    if estimate:
        ratio = estimate["actual_over_p50"]
        verdict = f"{ratio:.2f} of the median" if ratio is not None else "not comparable yet"
        print(f"estimate ${estimate['p50_usd']:,.2f} (p95 ${estimate['p95_usd']:,.2f}); actual is {verdict}")
