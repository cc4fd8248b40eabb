"""``stayfast check-cluster``: what this cluster can do for interruptible work, and what could not be seen."""

from __future__ import annotations

import argparse
import json
import sys

from stayfast.cli.arguments import add_cluster, connect
from stayfast.cli.main import FINDINGS, OK, add_output
from stayfast.cluster.observed.capabilities import CapabilityCheck, CheckState, ClusterDescription, check_capabilities
from stayfast.cluster.observed.capability_probe import ask_gcloud, ask_server, read_description, read_region
from stayfast.errors import UsageError
from stayfast.text.safe import printable

NAMES = (
    "version", "gke", "auto-provisioning", "kueue", "jobset", "compute-class", "provisioning-request", "spot",
    "flex-start", "long-grace", "accelerators", "preemptible-quota",
)  # fmt: skip
_MARKS = {CheckState.YES: "✓", CheckState.NO: "✗", CheckState.UNKNOWN: "?"}
_EPILOG = """\
examples:
  stayfast check-cluster
  gcloud container clusters describe prod --location us-central1 --format=json > c.json
  stayfast check-cluster --describe c.json --require flex-start,kueue
  stayfast check-cluster --gcloud            asks gcloud for the description and for the region's quota
With --require, exit code 1 when one of them is not certain. --offline reads the description alone.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """The options."""
    parser.epilog = _EPILOG
    parser.add_argument("--describe", metavar="FILE", help="output of gcloud container clusters describe --format=json")
    parser.add_argument(
        "--region-quota", metavar="FILE", help="output of gcloud compute regions describe --format=json"
    )
    parser.add_argument("--gcloud", action="store_true", help="ask gcloud for both; the context must be one of its own")
    parser.add_argument("--offline", action="store_true", help="do not ask the API server")
    parser.add_argument("--require", default="", metavar="NAME[,NAME…]", help=", ".join(NAMES))
    add_cluster(parser)
    add_output(parser)


def run(args: argparse.Namespace) -> int:
    """Read, judge, print."""
    required = [name for name in args.require.split(",") if name]
    for name in required:
        if name not in NAMES:
            raise UsageError(f"there is no check {name!r}", help=f"choose from {', '.join(NAMES)}")
    facts = ClusterDescription()
    if args.describe:
        read_description(args.describe, facts)
    if args.region_quota:
        read_region(args.region_quota, facts)
    if not args.offline:
        with connect(args) as client:
            ask_server(client, facts)
            if args.gcloud:
                ask_gcloud(client, facts)
    elif not args.describe:
        raise UsageError("--offline has nothing to read", help="add --describe FILE")
    checks = check_capabilities(facts)
    failing = [check.name for check in checks if check.name in required and check.state is not CheckState.YES]
    if args.output == "json":
        rows = [{**check._asdict(), "state": check.state.value} for check in checks]
        print(json.dumps({"version": facts.version, "checks": rows, "missing": failing}))
    else:
        print(text(checks), end="")
        if failing:
            print(f"stayfast: required and not certain: {', '.join(failing)}", file=sys.stderr)
    return FINDINGS if failing else OK


def text(checks: list[CapabilityCheck]) -> str:
    """One line per check, and what to do under those that are not a yes."""
    width = max(len(check.name) for check in checks)
    lines = []
    for check in checks:
        lines.append(f"{_MARKS[check.state]} {check.name:<{width}}  {check.what}: {printable(check.evidence)}")
        if check.fix and check.state is not CheckState.YES:
            lines.append(f"  {'':<{width}}  → {check.fix}")
    return "\n".join(lines) + "\n"
