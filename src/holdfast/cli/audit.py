"""``holdfast audit``: every enqueued key is recorded or in the dead-letter, or here is the list of the rest."""

from __future__ import annotations

import argparse
import json

from holdfast.cli.main import FINDINGS, OK, add_output
from holdfast.cli.progress import counting
from holdfast.cli.queue import add_queue_option, printable
from holdfast.queue.open import open_queue
from holdfast.runtime.audit import Audit, compare
from holdfast.sink.open import open_sink


def configure(parser: argparse.ArgumentParser) -> None:
    """Options of ``holdfast audit``."""
    parser.epilog = """\
example:
  holdfast audit --queue 'sqlite://./work.db?queue=images' --sink 'sqlite://./work.db?table=labels'

Exit 0 when every enqueued key is recorded or in the dead-letter, 1 with the list of the others."""
    add_queue_option(parser)
    parser.add_argument("--sink", metavar="URL", required=True, help="where the results are")
    parser.add_argument("--limit", type=int, default=10_000, metavar="N", help="list at most N keys (default: 10000)")
    add_output(parser)


def run(args: argparse.Namespace) -> int:
    """Compare both sides; clean is 0."""
    queue = open_queue(args.queue, sink=args.sink, create=False)
    try:
        sink = open_sink(args.sink, create=False)
        try:
            audit = compare(counting(queue.entries(), "items compared"), sink.keys(), limit=args.limit)
        finally:
            sink.close()
    finally:
        queue.close()
    if args.output == "json":
        print(json.dumps(audit.as_json()))
    else:
        _tell(audit)
    return OK if audit.clean else FINDINGS


def _tell(audit: Audit) -> None:
    for title, keys, count in (
        ("missing: neither recorded nor dead", audit.missing, audit.missing_count),
        ("acknowledged but not recorded", audit.lost, audit.lost_count),
    ):
        for key in keys:
            print(f"{title}: {printable(key)}")
        if count > len(keys):
            print(f"{title}: and {count - len(keys)} more")
    if audit.foreign_count:
        print(f"{audit.foreign_count} results belong to no enqueued key, for example {audit.foreign[0]!r}")
    print(
        f"{audit.enqueued} enqueued, {audit.recorded} recorded, {audit.dead} dead, {audit.missing_count} missing: "
        + ("every item is accounted for" if audit.clean else "NOT every item is accounted for")
    )
