"""``holdfast bill``: what a run has really cost, per useful step, from the records in its bucket."""

from __future__ import annotations

import argparse
import json
import math
from dataclasses import dataclass
from typing import Any

from holdfast.checkpoint.head import HEAD_KEY, AttemptRow, Head, decode
from holdfast.cli.main import add_output
from holdfast.cli.simulate import amount, read_text
from holdfast.clock import from_rfc3339
from holdfast.errors import KeyMissingError, UsageError
from holdfast.stores.open import open_store

_EPILOG = """\
examples:
  holdfast bill gs://bucket/runs/llm-7
  holdfast bill file:///data/run --usd-per-hour 6.59 --plan plan.json
Attempts that did not know their price are billed at --usd-per-hour, or listed as unpriced.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """The options."""
    parser.epilog = _EPILOG
    parser.add_argument("url", metavar="URL", help="of the run")
    parser.add_argument("--usd-per-hour", type=amount, metavar="USD", help="for attempts that did not know their price")
    parser.add_argument("--plan", metavar="FILE", help="output of `holdfast plan --json`, to hold the estimate against")
    add_output(parser)


@dataclass(slots=True)
class Line:
    """Money and time of one attempt, or of all."""

    attempts: int = 0
    useful_seconds: float = 0.0
    lost_seconds: float = 0.0
    save_seconds: float = 0.0
    other_seconds: float = 0.0
    """Start-up, restore, and whatever nobody measured."""
    usd: float = 0.0
    unpriced_seconds: float = 0.0

    @property
    def paid_seconds(self) -> float:
        return self.useful_seconds + self.lost_seconds + self.save_seconds + self.other_seconds

    def add(self, other: Line) -> None:
        for name in ("attempts", "useful_seconds", "lost_seconds", "save_seconds", "other_seconds", "usd"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.unpriced_seconds += other.unpriced_seconds


def run(args: argparse.Namespace) -> int:
    """Read the ledger, add it up, print."""
    store = open_store(args.url)
    try:
        head = decode(store.get(HEAD_KEY).data, where=f"{args.url}/{HEAD_KEY}")
    except KeyMissingError as error:
        raise UsageError(
            f"there is no run under {args.url}", help="give the URL that holdfast.run was given"
        ) from error
    finally:
        store.close()
    result = account(head, args.usd_per_hour)
    if args.plan:
        result["estimate"] = _estimate(args.plan, result)
    if args.output == "json":
        print(json.dumps(result))
    else:
        _print(result)
    return 0


def account(head: Head, usd_per_hour: float | None) -> dict[str, Any]:
    """The bill as JSON."""
    total = _folded(head, usd_per_hour)
    rows = []
    for row in head.attempts:
        line = _line(row, usd_per_hour)
        total.add(line)
        rows.append(
            {
                "attempt": row.attempt,
                "outcome": row.outcome.value if row.outcome else None,
                "cause": row.cause,
                "capacity": row.capacity or None,
                "zone": row.zone or None,
                "paid_seconds": line.paid_seconds,
                "useful_seconds": line.useful_seconds,
                "lost_seconds": line.lost_seconds,
                "usd": line.usd if not line.unpriced_seconds else None,
            }
        )
    steps = head.newest.step + 1 if head.newest else 0
    known = total.usd if not total.unpriced_seconds else None
    return {
        "run": head.run,
        "finished": head.finished,
        "steps": steps,
        "attempts": total.attempts,
        "usd": known,
        "usd_priced": total.usd,
        "unpriced_seconds": total.unpriced_seconds,
        "usd_per_step": known / steps if known is not None and steps else None,
        "paid_seconds": total.paid_seconds,
        "useful_seconds": total.useful_seconds,
        "lost_seconds": total.lost_seconds,
        "save_seconds": total.save_seconds,
        "other_seconds": total.other_seconds,
        "goodput": total.useful_seconds / total.paid_seconds if total.paid_seconds else None,
        "rows": rows,
    }


def _line(row: AttemptRow, usd_per_hour: float | None) -> Line:
    counted = row.useful_seconds + row.lost_seconds + row.save_seconds
    wall = counted
    if row.ended_at is not None:
        try:
            wall = max(counted, from_rfc3339(row.ended_at) - from_rfc3339(row.started_at))
        except ValueError:
            pass  # an unreadable instant: what was counted is what we know
    line = Line(1, row.useful_seconds, row.lost_seconds, row.save_seconds, wall - counted)
    price = row.usd_per_hour if row.usd_per_hour is not None else usd_per_hour
    if price is None:
        line.unpriced_seconds = wall
    else:
        line.usd = wall / 3600 * price
    return line


def _folded(head: Head, usd_per_hour: float | None) -> Line:
    """Attempts so old that only their sums are kept."""
    sums = head.folded
    line = Line(
        int(sums.get("attempts", 0)),
        sums.get("useful_seconds", 0.0),
        sums.get("lost_seconds", 0.0),
        sums.get("save_seconds", 0.0),
        usd=sums.get("usd", 0.0),
    )
    if line.attempts and "usd" not in sums:
        if usd_per_hour is None:
            line.unpriced_seconds = line.paid_seconds
        else:
            line.usd = line.paid_seconds / 3600 * usd_per_hour
    return line


def _estimate(name: str, result: dict[str, Any]) -> dict[str, Any]:
    try:
        plan = json.loads(read_text(name))
        option = next(item for item in plan["options"] if item["class"] == plan["choice"])
        middle, bad = float(option["cost_usd"]["p50"]), float(option["cost_usd"]["p95"])
        if not (math.isfinite(middle) and math.isfinite(bad)):
            raise ValueError("a cost that is not a number")
    except (ValueError, KeyError, TypeError, StopIteration, RecursionError) as error:
        raise UsageError(f"{name} is not a plan", help="write it with: holdfast plan --json") from error
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
