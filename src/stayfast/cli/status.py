"""``stayfast status``: runs in words, what interrupted them, their last checkpoint, what they have cost."""

from __future__ import annotations

import argparse
import gc
import json
import sys
from typing import Any

from stayfast.cli.arguments import add_cluster, chosen_namespace, connect
from stayfast.cli.main import OK, add_output
from stayfast.clock import SystemClock
from stayfast.cluster.kubernetes.resources import JOBS, PODS
from stayfast.cluster.observed.run_records import read_records
from stayfast.cluster.observed.runs import RunSummary, summarize
from stayfast.cluster.observed.snapshot import FOR_STATUS, take_snapshot
from stayfast.errors import ClusterAccessError, UsageError
from stayfast.model.labels import RUN_LABEL, run_selector
from stayfast.text.safe import line, printable
from stayfast.text.units import duration

_EPILOG = """\
examples:
  stayfast status                  all runs of the namespace
  stayfast status -A --json
  stayfast status llm-7            one run, with its ledger: checkpoint, goodput, money, queue
Pods that are gone are not counted; the ledger in the bucket knows all attempts (stayfast bill).
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """The options."""
    parser.epilog = _EPILOG
    parser.add_argument("run", nargs="?", metavar="RUN", help="one run, in detail")
    parser.add_argument("--no-ledger", action="store_true", help="do not look into the bucket and the queue")
    add_cluster(parser, all_namespaces=True)
    add_output(parser)


def run(args: argparse.Namespace) -> int:
    """Look, add up, print."""
    with connect(args) as client:
        namespace = chosen_namespace(args, client)
        labels = run_selector(args.run) if args.run else RUN_LABEL
        gc.disable()  # all that is read is kept: collecting costs a third of the time and frees nothing
        try:
            observed = take_snapshot(client, namespace, FOR_STATUS, now=SystemClock().wall(), labels=labels)
        finally:
            gc.enable()
    for resource in (JOBS, PODS):
        if resource.title in observed.unseen:
            raise ClusterAccessError(observed.unseen[resource.title], help="run: kubectl auth can-i --list")
    rows = summarize(observed)
    if args.run and not rows:
        raise UsageError(
            f"there is no run {args.run} in {namespace or 'any namespace'}", help="run: stayfast status -A"
        )
    found = [row.to_json() for row in rows]
    if args.run and not args.no_ledger:
        for row, entry in zip(rows, found, strict=True):
            entry |= read_records(row)
    if args.output == "json":
        print(json.dumps({"runs": found}))
    elif args.run:
        for row, entry in zip(rows, found, strict=True):
            print(detail(row, entry), end="")
    else:
        print(table(rows, everywhere=namespace is None), end="")
        if not rows:
            print(f"stayfast: no runs in {namespace or 'any namespace'}", file=sys.stderr)
    return OK


def table(rows: list[RunSummary], *, everywhere: bool) -> str:
    """One line per run."""
    if not rows:
        return ""
    cells = [["NAMESPACE", "RUN", "PHASE", "PODS", "ATTEMPTS", "INTERRUPTED", "FAILED", "WAITED", "AGE"]]
    for item in rows:
        ready = f"{item.pods.get('running', 0)}/{item.pods.get('wanted', 0)}"
        causes = ", ".join(f"{count} {cause}" for cause, count in item.interruptions.items()) or "-"
        waited = duration(item.pending_seconds) if item.pending_seconds else "-"
        cells.append([item.namespace, item.run, item.phase.value, ready, str(item.attempts), causes,
                      str(item.failures), waited, duration(item.age_seconds)])  # fmt: skip
    # Whoever names objects must not be able to move the cursor of whoever looks at them.
    shown = [[line(cell) for cell in (row if everywhere else row[1:])] for row in cells]
    widths = [max(len(row[column]) for row in shown) for column in range(len(shown[0]))]
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in shown)
    return "\n".join(lines) + "\n"


def detail(row: RunSummary, entry: dict[str, Any]) -> str:
    """One run."""
    pods = ", ".join(f"{count} {state}" for state, count in row.pods.items())
    lines = [f"{row.namespace}/{row.run}: {row.phase.value} ({row.kind} {row.name})", f"  pods         {pods}"]
    causes = ", ".join(f"{count} × {cause}" for cause, count in row.interruptions.items()) or "none seen"
    lines += [f"  attempts     {entry['attempts']}", f"  interrupted  {causes}", f"  failed       {row.failures}"]
    checkpoint = entry.get("checkpoint")
    if checkpoint:
        age = duration(checkpoint["age_seconds"]) if checkpoint["age_seconds"] is not None else "?"
        lines.append(f"  checkpoint   step {checkpoint['step']}, {age} ago")
    if entry.get("goodput") is not None:
        lines.append(f"  goodput      {entry['goodput']:.1%}")
    money = entry.get("usd") if entry.get("usd") is not None else entry["estimated_usd"]
    if money is not None:
        kind = "" if entry.get("usd") is not None else " (estimated from the pods that still exist)"
        lines.append(f"  cost         ${money:,.2f}{kind}")
    lines.append(f"  machine time {duration(row.pod_seconds)}{' of ' + row.capacity if row.capacity else ''}")
    if entry.get("queue") is not None:
        lines.append("  queue        " + ", ".join(f"{count} {state}" for state, count in entry["queue"].items()))
    lines += [f"  note         {note}" for note in entry.get("notes", ())]
    lines.append(f"  age          {duration(row.age_seconds)}")
    return "\n".join(printable(text) for text in lines) + "\n"
