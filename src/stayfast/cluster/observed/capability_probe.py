"""What tells of a cluster's capabilities, read: its API server, its nodes, and what gcloud says or has printed."""

from __future__ import annotations

import json
from typing import Any

from stayfast.cluster.kubernetes.client import Client
from stayfast.cluster.kubernetes.endpoint import gke_context
from stayfast.cluster.kubernetes.resources import NODES
from stayfast.cluster.kubernetes.trimming import trim
from stayfast.cluster.observed.capabilities import ClusterDescription
from stayfast.cluster.observed.google_cloud import gcloud_json, region_of
from stayfast.errors import ClusterAccessError, ClusterError, ClusterLoginError, ObjectMissingError, UsageError

MAX_DESCRIPTION_CHARACTERS = 20_000_000


def read_description(name: str, facts: ClusterDescription) -> None:
    """The cluster as gcloud describes it."""
    found = _read_json(name, "--describe")
    if not ("currentMasterVersion" in found or "nodePools" in found):
        raise UsageError(
            f"{name} is no description of a cluster",
            help="write it with: gcloud container clusters describe NAME --location PLACE --format=json",
        )
    facts.describe = found
    facts.version = str(found.get("currentMasterVersion") or "")


def read_region(name: str, facts: ClusterDescription) -> None:
    """The region and its quota as gcloud describes them."""
    found = _read_json(name, "--region-quota")
    if not isinstance(found.get("quotas"), list):
        raise UsageError(
            f"{name} is no description of a region",
            help="write it with: gcloud compute regions describe REGION --format=json",
        )
    facts.region = found


def _read_json(name: str, option: str) -> dict[str, Any]:
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


def ask_server(client: Client, facts: ClusterDescription) -> None:
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
