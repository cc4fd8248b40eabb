"""``stayfast enqueue``: items from JSON lines, CSV, a directory or a bucket into a queue, once per key."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Iterator
from typing import TextIO

from stayfast.batch.queue.item_sources import (
    KeyOf,
    from_csv,
    from_directory,
    from_json_lines,
    from_listing,
    key_by_field,
    stream_batches,
)
from stayfast.batch.queue.open_queue import open_queue
from stayfast.cli.main import add_output
from stayfast.cli.queue import add_ledger_option, add_queue_option
from stayfast.errors import UsageError

_PROGRESS_SECONDS = 0.5


def configure(parser: argparse.ArgumentParser) -> None:
    """Options of ``stayfast enqueue``."""
    parser.epilog = """\
examples:
  stayfast enqueue --queue 'sqlite://./work.db?queue=images' --key image_id images.jsonl
  stayfast enqueue --queue 'postgresql://host/db?queue=files' gs://bucket/incoming     one item per object
  generate | stayfast enqueue --queue 'pubsub://project/subscription?topic=topic' --sink gs://bucket/results -"""
    parser.add_argument(
        "source", nargs="?", default="-", metavar="FILE|DIR|URL|-", help="JSON lines by default; - is stdin"
    )
    add_queue_option(parser)
    add_ledger_option(parser)
    parser.add_argument("--key", metavar="FIELD", help="the field that holds the key (default: key, else id)")
    parser.add_argument("--task", metavar="MODULE:TASK", help="take keys from the task's own key function")
    parser.add_argument("--format", choices=("jsonl", "csv", "listing"), help="default: by the name of the source")
    parser.add_argument(
        "--replace", action="store_true", help="put new payloads in, for `stayfast work --replace` to compute"
    )
    add_output(parser)


def run(args: argparse.Namespace) -> int:
    """Stream the source into the queue."""
    if args.task and args.key:
        raise UsageError("--key and --task both say where the key is", help="give one of them")
    key_of = _task_key(args.task) if args.task else key_by_field(args.key)
    queue = open_queue(args.queue, sink=args.sink)
    started = time.monotonic()
    try:
        added = known = 0
        items = _with_progress(_items(args.source, args.format, key_of))
        for part in stream_batches(items) if args.source == "-" else (items,):
            count = queue.enqueue(part, replace=args.replace)
            added, known = added + count.added, known + count.known
    finally:
        queue.close()
    seconds = time.monotonic() - started
    if args.output == "json":
        print(json.dumps({"added": added, "known": known, "seconds": round(seconds, 3)}))
    else:
        print(f"{added} items added, {known} known already, {seconds:.1f} s")
    return 0


def _task_key(spec: str) -> KeyOf:
    from stayfast.batch.worker.task import load_task

    return load_task(spec).key_of


def _items(source: str, format_: str | None, key_of: KeyOf) -> Iterator[tuple[str, str]]:
    if source == "-":
        yield from (from_csv if format_ == "csv" else from_json_lines)(_standard_input(), "stdin", key_of)
        return
    if "://" in source:
        yield from from_listing(source)
        return
    if os.path.isdir(source):
        yield from from_directory(source)
        return
    if format_ == "listing":
        raise UsageError(f"{source} is not a directory", help="--format listing takes a directory or a store URL")
    is_csv = format_ == "csv" or (format_ is None and source.lower().endswith(".csv"))
    try:
        with open(source, encoding="utf-8-sig", newline="" if is_csv else None) as file:
            yield from (from_csv if is_csv else from_json_lines)(file, source, key_of)
    except OSError as error:
        raise UsageError(
            f"cannot read {source}: {error.strerror}", help="name a readable file, or - for stdin"
        ) from None


def _standard_input() -> TextIO:
    """As a file object of our own: a thread may still wait on it when the interpreter ends and closes its streams."""
    lines = sys.stdin
    if lines is None:
        raise UsageError("standard input is closed", help="pipe something into it, or name a file")
    try:
        return open(lines.fileno(), encoding=lines.encoding, errors=lines.errors, closefd=False)
    except (OSError, ValueError):  # not a file: somebody calls us from Python
        return lines


def _with_progress(items: Iterator[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    if not sys.stderr.isatty():
        yield from items
        return
    started = time.monotonic()
    shown = 0.0
    count = 0
    for count, item in enumerate(items, 1):
        if count % 1000 == 0 and time.monotonic() - shown > _PROGRESS_SECONDS:
            shown = time.monotonic()
            print(f"\r{count} items, {count / (shown - started):.0f}/s ", end="", file=sys.stderr, flush=True)
        yield item
    print(f"\r{count} items" + " " * 20, file=sys.stderr)
