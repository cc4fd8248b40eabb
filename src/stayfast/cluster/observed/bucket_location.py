"""Where a bucket really is, against where the machines are: each save and restore crosses it, and is billed."""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import urlsplit

from stayfast.cluster.kubernetes.client import Client
from stayfast.cluster.kubernetes.endpoint import gke_context
from stayfast.cluster.kubernetes.resources import NODES
from stayfast.cluster.observed.google_cloud import gcloud_json, region_of
from stayfast.cluster.observed.objects import meta
from stayfast.cluster.observed.problem import Problem, ProblemSeverity
from stayfast.errors import ClusterError, StayfastError

_DUAL = {
    "nam4": ("us-central1", "us-east1"),
    "eur4": ("europe-north1", "europe-west4"),
    "asia1": ("asia-northeast1", "asia-northeast2"),
}
"""Google's own pairs; others say their regions themselves."""
_MULTI = {"us": "us-", "eu": "europe-", "asia": "asia-"}


class Location(NamedTuple):
    """A bucket's place, as Cloud Storage names it."""

    name: str
    regions: tuple[str, ...] = ()
    """Of a pair of regions."""

    def contains_region(self, region: str) -> bool | None:
        """Whether it has its data in that region; nothing when the name does not tell."""
        if self.regions or self.name in _DUAL:
            return region in (self.regions or _DUAL[self.name])
        if self.name in _MULTI:
            return region.startswith(_MULTI[self.name])
        return region == self.name if "-" in self.name else None


def check_region(client: Client, urls: list[str | None], said: str | None) -> list[Problem]:
    """A warning for every bucket that is elsewhere, or whose place could not be seen."""
    buckets = dict.fromkeys(urlsplit(url).netloc for url in urls if url and url.startswith("gs://"))
    if not buckets:
        return _compare(client, "bucket", Location(said), None) if said else []
    problems: list[Problem] = []
    for bucket in buckets:
        found, why = locate(bucket)
        if found is None and said is None:
            fix = f"check it by hand: gcloud storage buckets describe gs://{bucket} --format='value(location)'"
            problems.append(
                Problem(ProblemSeverity.WARNING, "bucket", f"could not see where gs://{bucket} is: {why}", fix)
            )
            continue
        problems += _compare(client, f"gs://{bucket}", found or Location(str(said)), said if found else None)
    return problems


def locate(bucket: str) -> tuple[Location | None, str]:
    """From Cloud Storage itself with our own credentials, else from gcloud with the person's."""
    from stayfast.storage.stores.gcs import GcsClient

    try:
        client = GcsClient(bucket)
        try:
            return _location(client.bucket_metadata("location,customPlacementConfig")), ""
        finally:
            client.close()
    except StayfastError as error:
        first = error.message
    try:
        return _location(gcloud_json("storage", "buckets", "describe", f"gs://{bucket}")), ""
    except ClusterError as error:
        return None, f"{first}; {error.message}"


def _location(found: object) -> Location | None:
    row = found if isinstance(found, dict) else {}
    placed = row.get("customPlacementConfig") or row.get("custom_placement_config") or row.get("data_locations") or {}
    listed = placed if isinstance(placed, list) else placed.get("dataLocations") if isinstance(placed, dict) else None
    name = row.get("location")
    if not isinstance(name, str) or not name:
        return None
    regions = tuple(str(item).lower() for item in listed) if isinstance(listed, list) else ()
    return Location(name.lower(), regions)


def _compare(client: Client, shown: str, location: Location, said: str | None) -> list[Problem]:
    problems = []
    if said is not None and location.contains_region(said) is False:
        text = f"it is in {location.name}, and the file says {said}: the plan's cost of transfer is wrong"
        problems.append(Problem(ProblemSeverity.WARNING, shown, text, "correct state.region"))
    here = cluster_regions(client)
    if here and all(location.contains_region(region) is False for region in here):
        text = f"it is in {location.name}, the cluster's nodes are in {', '.join(sorted(here))}"
        problems.append(Problem(ProblemSeverity.WARNING, shown, text, "keep checkpoints in the region of the nodes"))
    return problems


def cluster_regions(client: Client) -> set[str]:
    """Of the nodes that are there; without any, of the context's name, as gcloud writes it."""
    regions: set[str] = set()
    try:
        for page in client.pages(NODES):
            regions |= {
                str((meta(node).get("labels") or {}).get("topology.kubernetes.io/region") or "") for node in page.items
            }
    except ClusterError:
        pass  # not allowed to look: the name of the context is as good
    regions -= {""}
    known = gke_context(client.access.context)
    return regions or ({region_of(known.location)} if known else set())
