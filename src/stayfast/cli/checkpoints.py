"""``stayfast checkpoints ls|verify|prune URL``."""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
from collections.abc import Callable, Iterator
from typing import Any

from stayfast.cli.main import FINDINGS, OK, add_output
from stayfast.clock import SystemClock, from_rfc3339
from stayfast.errors import CheckpointError, FormatError, UsageError
from stayfast.runtime.checkpoint.checkpointer import Checkpointer
from stayfast.runtime.checkpoint.cleanup import delete_unreferenced
from stayfast.runtime.checkpoint.reader import DamagedFile
from stayfast.runtime.run_record.commit_protocol import run_protocol
from stayfast.runtime.run_record.read import read_record
from stayfast.runtime.run_record.record import CheckpointRecord, RunRecord
from stayfast.storage.stores.open_store import open_store
from stayfast.storage.stores.protocol import Store
from stayfast.text.progress import with_elapsed
from stayfast.text.units import age, size

_EXAMPLES = """\
examples:
  stayfast checkpoints ls gs://bucket/runs/llm-7
  stayfast checkpoints verify file:///data/run --step 4000
  stayfast checkpoints prune s3://bucket/run --dry-run

verify reads every byte: exit 0 when all committed checkpoints are whole, 1 with the damaged files otherwise.
prune deletes what no committed checkpoint refers to, such as the leavings of killed attempts; which checkpoints are
committed is the run's own decision (its retention), so prune never removes one of them.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = _EXAMPLES
    parser.add_argument("action", choices=("ls", "verify", "prune"), help="list, read every byte, or clear away")
    parser.add_argument("url", metavar="URL", help="the run's URL, as given to stayfast.run")
    parser.add_argument("--step", type=int, help="verify: only the checkpoint of this step")
    parser.add_argument("--dry-run", action="store_true", help="prune: say what would go")
    add_output(parser)


def run(args: argparse.Namespace) -> int:
    store = open_store(args.url)
    try:
        action: Callable[[argparse.Namespace, Store], int] = {"ls": _ls, "verify": _verify, "prune": _prune}[
            args.action
        ]
        return action(args, store)
    finally:
        store.close()


def _head(store: Store) -> RunRecord:
    head = read_record(store, SystemClock())
    if head is None:
        raise UsageError(f"there is no run under {store.url}", help="give the URL that stayfast.run was given")
    return head


def _row(committed: CheckpointRecord, now: float) -> dict[str, Any]:
    return {
        "step": committed.step,
        "attempt": committed.attempt,
        "bytes": committed.size,
        "committed_at": committed.committed_at,
        "age_seconds": _age(committed, now),
        "name": committed.name,
    }


def _age(committed: CheckpointRecord, now: float) -> float | None:
    try:
        return round(max(0.0, now - from_rfc3339(committed.committed_at)), 3)
    except ValueError:
        return None


def _ls(args: argparse.Namespace, store: Store) -> int:
    head = _head(store)
    now = SystemClock().wall()
    rows = [_row(committed, now) for committed in head.checkpoints]
    if args.output == "json":
        print(json.dumps({"run": head.run, "attempt": head.attempt, "finished": head.finished, "checkpoints": rows}))
        return OK
    if not rows:
        print(f"attempt {head.attempt} of {store.url} has committed no checkpoint yet", file=sys.stderr)
        return OK
    print(f"{'STEP':>12}  {'ATTEMPT':>7}  {'SIZE':>10}  {'AGE':>8}  NAME")
    for row in rows:
        figures = f"{size(row['bytes']):>10}  {age(row['age_seconds']):>8}"
        print(f"{row['step']:>12}  {row['attempt']:>7}  {figures}  {row['name']}")
    return OK


def _verify(args: argparse.Namespace, store: Store) -> int:
    head = _head(store)
    chosen = [item for item in head.checkpoints if args.step is None or item.step == args.step]
    if args.step is not None and not chosen:
        raise UsageError(f"no checkpoint of step {args.step} is committed", help="stayfast checkpoints ls lists them")
    engine = Checkpointer(store, buffers=1)
    rows = []
    try:
        with _progress(sum(item.size for item in chosen)) as advance:
            for committed in chosen:
                verdict = _verdict(engine, committed, advance)
                rows.append({**_row(committed, SystemClock().wall()), **verdict})
    finally:
        engine.close()
    if args.output == "json":
        print(json.dumps({"run": head.run, "checkpoints": rows}))
    else:
        for row in rows:
            print(f"{row['name']}  {size(row['bytes']):>10}  {row['verdict']}")
            for finding in row["damage"]:
                print(f"  {finding['file']}: {finding['what']}")
    return OK if all(row["verdict"] == "whole" for row in rows) else FINDINGS


def _verdict(engine: Checkpointer, committed: CheckpointRecord, advance: Callable[[int], None]) -> dict[str, Any]:
    if committed.inventory_sha256 is None:
        return {"verdict": "whole", "damage": []}
    damage: dict[str, str] = {}
    try:
        for row in committed.ranks:
            for result in engine.verify(row):
                if isinstance(result, DamagedFile):
                    damage.setdefault(result.key, result.what)
                else:
                    advance(result)
    except FormatError as error:
        return {"verdict": "unreadable", "damage": [{"file": committed.name, "what": str(error)}]}
    found = [{"file": key, "what": what} for key, what in damage.items()]
    return {"verdict": "damaged" if found else "whole", "damage": found}


def _prune(args: argparse.Namespace, store: Store) -> int:
    with with_elapsed("looking for what no checkpoint refers to"):
        result = run_protocol(delete_unreferenced(None, dry_run=args.dry_run), store, SystemClock())
    if result.refused:
        raise CheckpointError(f"nothing was deleted: {result.refused}", help="check the URL")
    if args.output == "json":
        print(json.dumps({"deleted": list(result.keys), "bytes": result.bytes, "dry_run": args.dry_run}))
    else:
        verb = "would delete" if args.dry_run else "deleted"
        for key in result.keys:
            print(key)
        print(f"{verb} {len(result.keys)} objects, {size(result.bytes)}", file=sys.stderr)
    return OK


@contextlib.contextmanager
def _progress(total: int) -> Iterator[Callable[[int], None]]:
    """A bar on a terminal, silence elsewhere."""
    if not sys.stderr.isatty():
        yield lambda _count: None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("verifying", total=total)
        yield lambda count: progress.advance(task, count)
