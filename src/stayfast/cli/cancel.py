"""``stayfast cancel``: end a run's pods; its checkpoints stay, and a second submit resumes it."""

from __future__ import annotations

import argparse
import json
import sys

from stayfast.cli.arguments import add_cluster, chosen_namespace, connect, run_label
from stayfast.cli.main import OK, add_output
from stayfast.cluster.kubernetes.client import Client, Object
from stayfast.cluster.kubernetes.discovery import resolve_served
from stayfast.cluster.kubernetes.resources import CONFIG_MAPS, DEPLOYMENTS, JOB_SETS, JOBS, Resource
from stayfast.cluster.observed.snapshot import CLASSES, PART_LABEL, meta
from stayfast.errors import ClusterAccessError, UsageError
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
        found = workloads(client, namespace, args.run)
        if not found:
            raise UsageError(f"there is no run {args.run} in namespace {namespace}", help="run: stayfast status -A")
        gone = []
        for resource, item in [*_classes(client, namespace, args.run), *found]:
            name, uid = str(meta(item)["name"]), str(meta(item).get("uid", ""))
            # The uid guards against a namesake that was made between looking and deleting.
            if args.dry_run or client.delete(resource, namespace, name, uid=uid):
                gone.append(f"{resource.kind}/{name}")
    if args.output == "json":
        print(json.dumps({"run": args.run, "namespace": namespace, "deleted": gone, "dry_run": args.dry_run}))
    else:
        verb = "would delete" if args.dry_run else "deleted"
        for name in gone:
            print(printable(f"{verb} {name} in namespace {namespace}"))
        print("stayfast: checkpoints stay; submit again to resume", file=sys.stderr)
    return OK


def workloads(client: Client, namespace: str, run_name: str) -> list[tuple[Resource, Object]]:
    """The JobSets, Deployments and free-standing Jobs of a run."""
    labels = run_label(run_name)
    kinds, _ = resolve_served(client, [JOB_SETS])
    sets = [(kind, item) for kind in kinds for item in client.list(kind, namespace, labels=labels)]
    sets += [(DEPLOYMENTS, item) for item in client.list(DEPLOYMENTS, namespace, labels=labels)]
    jobs = client.list(JOBS, namespace, labels=labels)
    alone = [job for job in jobs if not any(ref.get("kind") == "JobSet" for ref in _owners(job))]
    return sets + [(JOBS, item) for item in alone]


def _classes(client: Client, namespace: str, run_name: str) -> list[tuple[Resource, Object]]:
    """What a watch would make the run anew from; it goes first."""
    labels = f"{run_label(run_name)},{PART_LABEL}={CLASSES}"
    try:
        return [(CONFIG_MAPS, item) for item in client.list(CONFIG_MAPS, namespace, labels=labels)]
    except ClusterAccessError:
        return []  # whoever may not look at ConfigMaps has not made one with submit --fall-back either


def _owners(item: Object) -> list[Object]:
    return [ref for ref in meta(item).get("ownerReferences") or [] if isinstance(ref, dict)]
