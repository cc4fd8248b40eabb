"""``stayfast check-cluster``: what this cluster can do for interruptible work, and what could not be seen."""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

from stayfast.cli.arguments import add_cluster, connect
from stayfast.cli.main import FINDINGS, OK, add_output
from stayfast.cluster.kubernetes.client import Client
from stayfast.cluster.kubernetes.endpoint import gke_context
from stayfast.cluster.kubernetes.resources import NODES
from stayfast.cluster.kubernetes.trimming import trim
from stayfast.cluster.observed.bucket_location import region_of
from stayfast.cluster.observed.capabilities import CapabilityCheck, CheckState, ClusterDescription, check_capabilities
from stayfast.cluster.observed.google_cloud import gcloud_json
from stayfast.errors import ClusterAccessError, ClusterError, ClusterLoginError, ObjectMissingError, UsageError
from stayfast.text.safe import printable

NAMES = (
    "version", "gke", "auto-provisioning", "kueue", "jobset", "compute-class", "provisioning-request", "spot",
    "flex-start", "long-grace", "accelerators", "preemptible-quota",
)  # fmt: skip
MAX_DESCRIPTION_CHARACTERS = 20_000_000
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
        facts.region = read_json(args.region_quota, "--region-quota")
        if not isinstance(facts.region.get("quotas"), list):
            raise UsageError(
                f"{args.region_quota} is no description of a region",
                help="write it with: gcloud compute regions describe REGION --format=json",
            )
    if not args.offline:
        with connect(args) as client:
            ask(client, facts)
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


def read_description(name: str, facts: ClusterDescription) -> None:
    """The cluster as gcloud describes it."""
    found = read_json(name, "--describe")
    if not ("currentMasterVersion" in found or "nodePools" in found):
        raise UsageError(
            f"{name} is no description of a cluster",
            help="write it with: gcloud container clusters describe NAME --location PLACE --format=json",
        )
    facts.describe = found
    facts.version = str(found.get("currentMasterVersion") or "")


def read_json(name: str, option: str) -> dict[str, Any]:
    """What gcloud printed; a list of one is as good as the one."""
    try:
        with open(name, encoding="utf-8") as file:
            found = json.loads(file.read(MAX_DESCRIPTION_CHARACTERS))
    except OSError as error:
        raise UsageError(f"{name} cannot be read ({error.strerror})", help=f"check {option}") from None
    except (ValueError, RecursionError):
        found = None
    if isinstance(found, list) and len(found) == 1:
        found = found[0]
    return found if isinstance(found, dict) else {}


def ask_gcloud(client: Client, facts: ClusterDescription) -> None:
    """The description and the quota, each as far as it can be had."""
    known = gke_context(client.access.context)
    if known is None:
        raise UsageError(
            f"the context {client.access.context!r} does not tell project, place and name of its cluster",
            help="run: gcloud container clusters get-credentials NAME --location PLACE, or give --describe FILE",
        )
    place = ("--project", known.project)
    try:
        if facts.describe is None:
            found = gcloud_json("container", "clusters", "describe", known.name, "--location", known.location, *place)
            facts.describe = found if isinstance(found, dict) else None
        if facts.region is None:
            found = gcloud_json("compute", "regions", "describe", region_of(known.location), *place)
            facts.region = found if isinstance(found, dict) else None
    except ClusterError as error:
        facts.unseen["region"] = error.message


def ask(client: Client, facts: ClusterDescription) -> None:
    """The API server's own pages and its nodes; what is not allowed is written down."""
    facts.version = str(client.get_path("/version").get("gitVersion") or facts.version)
    try:
        for row in client.get_path("/apis").get("groups") or []:
            preferred = row.get("preferredVersion") if isinstance(row, dict) else None
            if isinstance(preferred, dict):
                facts.groups[str(row.get("name"))] = str(preferred.get("version"))
    except ClusterLoginError:
        raise
    except (ClusterAccessError, ObjectMissingError) as error:
        facts.unseen["groups"] = error.message
    try:
        facts.nodes = [trim(NODES, node) for page in client.pages(NODES) for node in page.items]
    except ClusterError as error:
        facts.unseen["nodes"] = error.message


def text(checks: list[CapabilityCheck]) -> str:
    """One line per check, and what to do under those that are not a yes."""
    width = max(len(check.name) for check in checks)
    lines = []
    for check in checks:
        lines.append(f"{_MARKS[check.state]} {check.name:<{width}}  {check.what}: {printable(check.evidence)}")
        if check.fix and check.state is not CheckState.YES:
            lines.append(f"  {'':<{width}}  → {check.fix}")
    return "\n".join(lines) + "\n"
