"""From ``apiVersion`` and ``kind`` to the place of an object: a table for what we know, discovery for the rest."""

from __future__ import annotations

from collections.abc import Sequence

from stayfast.cluster.kubernetes import resources as known
from stayfast.cluster.kubernetes.client import Client, Object
from stayfast.cluster.kubernetes.resources import Resource, from_discovery, group_path
from stayfast.errors import ClusterAccessError, ClusterLoginError, ObjectMissingError

_BUILT_IN = frozenset(("", "apps", "batch", "policy", "scheduling.k8s.io", "storage.k8s.io"))
_TABLE = {
    (item.api_version, item.kind): item
    for item in vars(known).values()
    if isinstance(item, Resource) and item.group in _BUILT_IN  # custom kinds may be absent: the server is asked
}


def resolve_served(client: Client, kinds: Sequence[Resource]) -> tuple[list[Resource], dict[str, str]]:
    """The kinds in the versions that this server serves, and those it lacks with the reason; one request for all.

    Custom kinds move on (Kueue from v1beta1 to v1beta2), and the fields that we look at have stayed.
    """
    if all(kind.group in _BUILT_IN for kind in kinds):
        return list(kinds), {}
    try:
        rows = client.get_path("/apis").get("groups") or []
    except ClusterLoginError:
        raise
    except ClusterAccessError:
        return list(kinds), {}  # discovery is closed to us: the lists themselves will tell
    versions = {str(row.get("name")): _versions(row) for row in rows if isinstance(row, dict)}
    found, missing = [], {}
    for kind in kinds:
        offered = versions.get(kind.group, [])
        if kind.group in _BUILT_IN or kind.version in offered:
            found.append(kind)
        elif offered:
            found.append(kind._replace(version=offered[0]))
        else:
            missing[kind.title] = f"the API server has no group {kind.group}"
    return found, missing


def _versions(row: Object) -> list[str]:
    """Preferred first."""
    listed = [str(entry.get("version")) for entry in row.get("versions") or [] if isinstance(entry, dict)]
    preferred = row.get("preferredVersion")
    first = [str(preferred.get("version"))] if isinstance(preferred, dict) else []
    return list(dict.fromkeys([*first, *listed]))


class Discovery:
    """Asks each group version once."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._asked: dict[str, dict[str, Resource]] = {}

    def find(self, value: Object) -> Resource | None:
        """The resource of an object, or nothing when the server knows no such kind."""
        api_version, kind = str(value.get("apiVersion", "")), str(value.get("kind", ""))
        found = _TABLE.get((api_version, kind))
        if found is not None:
            return found
        if api_version not in self._asked:
            self._asked[api_version] = self._ask(api_version)
        return self._asked[api_version].get(kind)

    def _ask(self, api_version: str) -> dict[str, Resource]:
        group, _, version = api_version.rpartition("/")
        if not version:
            return {}
        try:
            rows = self._client.get_path(group_path(group, version)).get("resources") or []
        except ObjectMissingError:
            return {}
        found = [from_discovery(group, version, row) for row in rows if isinstance(row, dict)]
        return {item.kind: item for item in found if "/" not in item.plural}
