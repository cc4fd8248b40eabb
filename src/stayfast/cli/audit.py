"""``stayfast audit``: every enqueued key is recorded or in the dead-letter, or here is the list of the rest."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator

from stayfast.batch.queue.open_queue import open_queue
from stayfast.batch.sink.open_sink import open_sink
from stayfast.batch.worker.audit import Audit, audit_queue
from stayfast.cli.main import FINDINGS, OK, add_output
from stayfast.cli.queue import add_queue_option, add_sink_option
from stayfast.errors import SinkMissingError
from stayfast.text.progress import with_count
from stayfast.text.safe import quoted_unless_printable


def configure(parser: argparse.ArgumentParser) -> None:
    """Options of ``stayfast audit``."""
    parser.epilog = """\
example:
  stayfast audit --queue 'sqlite://./work.db?queue=images' --sink 'sqlite://./work.db?table=labels'

Exit 0 when every enqueued key is recorded or in the dead-letter, 1 with the list of the others, and 1 when nothing
was ever enqueued."""
    add_queue_option(parser)
    add_sink_option(parser)
    parser.add_argument("--limit", type=int, default=10_000, metavar="N", help="list at most N keys (default: 10000)")
    add_output(parser)


def run(args: argparse.Namespace) -> int:
    """Compare both sides; clean is 0."""
    queue = open_queue(args.queue, sink=args.sink, create=False)
    try:
        audit = audit_queue(with_count(queue.entries(), "items compared"), _recorded(args.sink), limit=args.limit)
    finally:
        queue.close()
    if args.output == "json":
        print(json.dumps(audit.as_json()))
    else:
        _tell(audit, queue.url)
    return OK if audit.clean else FINDINGS


def _recorded(url: str) -> Iterator[str]:
    """The keys in the sink; none, with a word about it, where no worker has written yet."""
    try:
        sink = open_sink(url, create=False)
    except SinkMissingError as error:
        print(f"stayfast: nothing is recorded: {error}", file=sys.stderr)
        return
    try:
        yield from sink.keys()
    finally:
        sink.close()


def _tell(audit: Audit, queue: str) -> None:
    for title, keys, count in (
        ("missing: neither recorded nor dead", audit.missing, audit.missing_count),
        ("acknowledged but not recorded", audit.lost, audit.lost_count),
    ):
        for key in keys:
            print(f"{title}: {quoted_unless_printable(key)}")
        if count > len(keys):
            print(f"{title}: and {count - len(keys)} more")
    if audit.foreign_count:
        print(f"{audit.foreign_count} results belong to no enqueued key, for example {audit.foreign[0]!r}")
    verdict = "every item is accounted for" if audit.clean else "NOT every item is accounted for"
    if audit.enqueued == 0:
        verdict = f"nothing was ever enqueued in {queue}; check --queue"
    counts = f"{audit.enqueued} enqueued, {audit.recorded} recorded, {audit.dead} dead, {audit.missing_count} missing"
    print(f"{counts}: {verdict}")
