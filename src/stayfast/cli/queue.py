"""``stayfast queue``: how much is left, what died and why, and another try for it."""

from __future__ import annotations

import argparse
import json
import os
from dataclasses import asdict

from stayfast.batch.queue.open_queue import open_queue
from stayfast.batch.queue.protocol import Queue
from stayfast.batch.queue.validation import check_key
from stayfast.cli.main import FINDINGS, OK, add_output
from stayfast.model import variables
from stayfast.text.safe import quoted_unless_printable


def add_queue_option(parser: argparse.ArgumentParser) -> None:
    """``--queue URL``, which the environment may give."""
    default = os.environ.get(variables.QUEUE) or None
    parser.add_argument(
        "--queue", metavar="URL", default=default, required=default is None, help="default: STAYFAST_QUEUE"
    )


def add_sink_option(parser: argparse.ArgumentParser) -> None:
    """``--sink URL``, which the environment may give."""
    default = os.environ.get(variables.SINK) or None
    parser.add_argument(
        "--sink", metavar="URL", default=default, required=default is None, help="default: STAYFAST_SINK"
    )


def add_ledger_option(parser: argparse.ArgumentParser) -> None:
    """``--sink URL`` where only a queue without a memory of its own needs it."""
    parser.add_argument(
        "--sink",
        metavar="URL",
        default=os.environ.get(variables.SINK) or None,
        help="where results go; pubsub:// keeps its ledger there (default: STAYFAST_SINK)",
    )


def configure(parser: argparse.ArgumentParser) -> None:
    """Options of ``stayfast queue``."""
    parser.epilog = """\
examples:
  stayfast queue status --queue 'sqlite://./work.db?queue=images'
  stayfast queue dead --queue 'sqlite://./work.db?queue=images'                    which items died, and why
  stayfast queue retry --queue 'sqlite://./work.db?queue=images' --only img-17     another try for this one"""
    parser.add_argument("action", choices=("status", "dead", "retry"), help="what to ask or do")
    parser.add_argument(
        "--only", action="append", metavar="KEY", help="retry this one; may be given often (default: every dead item)"
    )
    add_queue_option(parser)
    add_ledger_option(parser)
    add_output(parser)


def run(args: argparse.Namespace) -> int:
    """Do one of the three."""
    queue = open_queue(args.queue, sink=args.sink, create=False)
    try:
        return {"status": _status, "dead": _dead, "retry": _retry}[args.action](queue, args)
    finally:
        queue.close()


def _status(queue: Queue, args: argparse.Namespace) -> int:
    depth = queue.depth()
    values = {**asdict(depth), "enqueued": depth.enqueued}
    if args.output == "json":
        print(json.dumps(values))
    else:
        for name, value in values.items():
            print(f"{name:<9}{value:>12}")
    return OK


def _dead(queue: Queue, args: argparse.Namespace) -> int:
    """Streams: one JSON object per line in both forms of output that a program reads."""
    for item in queue.dead():
        if args.output == "json":
            row = {"key": item.key, "failures": item.failures, "reason": item.reason, "payload": item.payload}
            print(json.dumps(row))
        else:
            last = item.reason.strip().splitlines()[-1] if item.reason.strip() else "no reason recorded"
            print(f"{quoted_unless_printable(item.key)}\t{item.failures} failures\t{quoted_unless_printable(last)}")
    return OK


def _retry(queue: Queue, args: argparse.Namespace) -> int:
    count = queue.retry(args.only and [check_key(key, "--only") for key in args.only])
    if args.output == "json":
        print(json.dumps({"retried": count}))
    else:
        print(f"{count} items are ready again")
    return FINDINGS if args.only and count < len(set(args.only)) else OK
