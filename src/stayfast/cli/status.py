"""``stayfast status``: runs in words, what interrupted them, their last checkpoint, what they have cost."""

from __future__ import annotations

import argparse
import gc
import json
import sys
from collections.abc import Callable
from dataclasses import asdict
from typing import Any
from urllib.parse import unquote, urlsplit

from stayfast.cli.arguments import add_cluster, chosen_namespace, connect
from stayfast.cli.main import OK, add_output
from stayfast.clock import SystemClock, from_rfc3339
from stayfast.cluster.kubernetes.resources import JOBS, PODS
from stayfast.cluster.observed.runs import RunSummary, summarize
from stayfast.cluster.observed.snapshot import FOR_STATUS, take_snapshot
from stayfast.errors import ClusterAccessError, StayfastError, UsageError
from stayfast.model.labels import RUN_LABEL, run_selector
from stayfast.text.safe import line, printable
from stayfast.text.units import duration

MOST_OBJECTS = 200
"""A ledger in a bucket is one object per item: more would take longer than anybody waits for a status."""
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
            entry |= ledger(row)
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


def ledger(row: RunSummary) -> dict[str, Any]:
    """What the bucket and the queue say; a place that does not answer becomes a note."""
    found: dict[str, Any] = {"notes": []}
    if row.run_url:
        _try(found, lambda: _read_run(str(row.run_url)))
    if row.queue_url:
        _try(found, lambda: _read_queue(str(row.queue_url), row.sink_url))
    return found


def _try(found: dict[str, Any], read: Callable[[], dict[str, Any]]) -> None:
    try:
        answer = read()
    except StayfastError as error:
        answer = {"notes": [error.message]}
    found["notes"] += answer.pop("notes", [])
    found |= answer


def _read_run(url: str) -> dict[str, Any]:
    if "{index}" in url or not url.startswith(("gs://", "s3://")):
        return {}  # one ledger per index, or a path inside the pod
    from stayfast.runtime.run_record.billing import bill_run
    from stayfast.runtime.run_record.commit_protocol import read_head, run_protocol
    from stayfast.storage.stores.open_store import open_store

    store = open_store(url)
    try:
        held = run_protocol(read_head(), store, SystemClock())
    finally:
        store.close()
    if held is None:
        return {"checkpoint": None}
    head, bill = held.head, bill_run(held.head, None)
    found: dict[str, Any] = {
        "attempts": head.attempt,
        "goodput": bill["goodput"],
        "usd": bill["usd"],
        "checkpoint": None,
    }
    if head.newest is not None:
        try:
            age = round(max(0.0, SystemClock().wall() - from_rfc3339(head.newest.committed_at)), 1)
        except ValueError:
            age = None
        found["checkpoint"] = {"step": head.newest.step, "committed_at": head.newest.committed_at, "age_seconds": age}
    return found


def _read_queue(url: str, sink_url: str | None) -> dict[str, Any]:
    """Pub/Sub does not count; the ledger of its keys does, which stands beside the results."""
    if url.startswith("sqlite:"):
        return {"notes": ["the queue is a file inside the pods: its depth cannot be seen from here"]}
    if url.startswith("pubsub:"):
        return _read_pubsub_ledger(url, sink_url)
    from stayfast.batch.queue.open_queue import open_queue

    queue = open_queue(url, create=False)
    try:
        return {"queue": asdict(queue.depth())}
    finally:
        queue.close()


def _read_pubsub_ledger(url: str, sink_url: str | None) -> dict[str, Any]:
    if not sink_url or sink_url.startswith(("sqlite:", "file:")):
        return {"notes": ["Pub/Sub does not count, and its ledger is a file inside the pods: depth cannot be seen"]}
    from stayfast.batch.queue.pubsub_ledger import ledger_depth, open_ledger
    from stayfast.batch.sink.open_sink import open_sink

    sink = open_sink(sink_url, create=False)
    ledger = open_ledger(sink_url, unquote(urlsplit(url).path).strip("/"))
    try:
        is_database = sink_url.startswith("postgres")
        depth = ledger_depth(ledger, sink.missing, most=None if is_database else MOST_OBJECTS)
    finally:
        ledger.close()
        sink.close()
    if depth is None:
        note = f"the queue has more than {MOST_OBJECTS} items in a bucket; count them with: stayfast queue status"
        return {"notes": [note]}
    return {"queue": asdict(depth)}
