"""``stayfast cancel``: end a run's pods; its checkpoints stay, and a second submit resumes it."""

from __future__ import annotations

import argparse
import json
import sys

from stayfast.cli.arguments import add_cluster, chosen_namespace, connect
from stayfast.cli.main import OK, add_output
from stayfast.cluster.submission.cancel import cancel_run
from stayfast.text.safe import printable

_EPILOG = """\
examples:
  stayfast cancel llm-7
  stayfast cancel llm-7 --dry-run
Its Job or JobSet is deleted: the pods get SIGTERM and their grace, save, and leave. Checkpoints, volumes and settings
stay; submit the same file again and the run resumes.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """The options."""
    parser.epilog = _EPILOG
    parser.add_argument("run", metavar="RUN", help="name of the run")
    parser.add_argument("--dry-run", action="store_true", help="say what would be deleted")
    add_cluster(parser)
    add_output(parser)


def run(args: argparse.Namespace) -> int:
    """Find and delete."""
    with connect(args) as client:
        namespace = chosen_namespace(args, client) or "default"
        gone = cancel_run(client, namespace, args.run, dry_run=args.dry_run)
    if args.output == "json":
        print(json.dumps({"run": args.run, "namespace": namespace, "deleted": gone, "dry_run": args.dry_run}))
    else:
        verb = "would delete" if args.dry_run else "deleted"
        for name in gone:
            print(printable(f"{verb} {name} in namespace {namespace}"))
        print("stayfast: checkpoints stay; submit again to resume", file=sys.stderr)
    return OK
