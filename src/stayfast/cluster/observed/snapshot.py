"""What the cluster says at one moment, as one value: lists read in pages, each object cut down to what is looked at.

No request is made per object, and a kind that cannot be read (no right, no CRD) is written down instead of ending the
command: an answer from half the evidence is worth more than none, if it says so.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

from stayfast.cluster.kubernetes.client import Client, Object
from stayfast.cluster.kubernetes.discovery import resolve_served
from stayfast.cluster.kubernetes.errors import VersionGoneError
from stayfast.cluster.kubernetes.resources import (
    BUDGETS,
    CLAIMS,
    CLUSTER_QUEUES,
    CONFIG_MAPS,
    DEPLOYMENTS,
    EVENTS,
    JOB_SETS,
    JOBS,
    LOCAL_QUEUES,
    NODES,
    PODS,
    PROVISIONING_REQUESTS,
    QUOTAS,
    WORKLOADS,
    Resource,
)
from stayfast.cluster.kubernetes.trimming import trim
from stayfast.cluster.observed.objects import event_time, meta, owner_uids, spec_of
from stayfast.documents.lookup import mapping, texts
from stayfast.errors import ClusterAccessError, ClusterLoginError, ObjectMissingError

TERMINATION_AT = "node.gke.io/machine-termination-datetime"

FOR_STATUS = (JOBS, JOB_SETS, DEPLOYMENTS, PODS, WORKLOADS, CONFIG_MAPS)
FOR_EXPLAIN = (
    JOBS, JOB_SETS, DEPLOYMENTS, PODS, WORKLOADS, PROVISIONING_REQUESTS, LOCAL_QUEUES, EVENTS, BUDGETS, CLAIMS, QUOTAS,
)  # fmt: skip
CLUSTER_WIDE_FOR_EXPLAIN = (CLUSTER_QUEUES, NODES)
LABELLED_KINDS = frozenset(kind.kind for kind in (JOBS, JOB_SETS, DEPLOYMENTS, PODS, CONFIG_MAPS))
"""Those that carry the run's label."""


@dataclass(slots=True)
class Snapshot:
    """Objects by kind, the moment they were seen, and what could not be seen."""

    now: float
    """Wall-clock seconds."""
    tables: dict[str, list[Object]] = field(default_factory=dict)
    unseen: dict[str, str] = field(default_factory=dict)
    _owned: dict[str, dict[str, list[Object]]] = field(default_factory=dict, repr=False)
    """By kind and owner's uid, made when first asked for: otherwise every run would go through all pods."""
    _replicas: list[Object] | None = field(default=None, repr=False)

    def of(self, resource: Resource) -> list[Object]:
        """All objects of a kind."""
        return self.tables.get(resource.title, [])

    def add(self, resource: Resource, *values: Object) -> Snapshot:
        """Put objects in; for tests and for watches."""
        self.tables.setdefault(resource.title, []).extend(trim(resource, value) for value in values)
        self._owned.clear()
        self._replicas = None
        return self

    def named(self, resource: Resource, namespace: str | None, name: str) -> Object | None:
        """The object of that name."""
        for item in self.of(resource):
            if meta(item).get("name") == name and (namespace is None or meta(item).get("namespace") == namespace):
                return item
        return None

    def by_uid(self, *resources: Resource) -> dict[str, Object]:
        """The objects of these kinds."""
        return {str(meta(item).get("uid", "")): item for resource in resources for item in self.of(resource)}

    def owners_of(self, item: Object, *resources: Resource) -> list[tuple[Resource, Object]]:
        """Those of these kinds that the object belongs to, each with its kind."""
        uids = owner_uids(item)
        found = ((resource, owner) for resource in resources for owner in self.of(resource))
        return [row for row in found if meta(row[1]).get("uid") in uids]

    def owned_by(self, resource: Resource, owner: Object) -> list[Object]:
        """Objects that belong to another one, by its uid."""
        index = self._owned.get(resource.title)
        if index is None:
            index = self._owned[resource.title] = {}
            for item in self.of(resource):
                for uid in owner_uids(item):
                    index.setdefault(uid, []).append(item)
        return index.get(str(meta(owner).get("uid") or ""), [])

    def selected_by(self, deployment: Object) -> list[Object]:
        """The pods of a Deployment: those of its labels that a ReplicaSet has made."""
        wanted = texts(mapping(spec_of(deployment).get("selector")).get("matchLabels")).items()
        place = meta(deployment).get("namespace")
        if self._replicas is None:
            self._replicas = [pod for pod in self.of(PODS) if any(
                ref.get("kind") == "ReplicaSet" for ref in meta(pod).get("ownerReferences") or [])]  # fmt: skip
        return [
            pod
            for pod in self._replicas
            if wanted and meta(pod).get("namespace") == place and wanted <= (meta(pod).get("labels") or {}).items()
        ]

    def events_of(self, item: Object) -> list[Object]:
        """Newest first."""
        uid, name, kind = meta(item).get("uid"), meta(item).get("name"), item.get("kind")
        found = []
        for event in self.of(EVENTS):
            about = event.get("involvedObject") or {}
            same_name = about.get("name") == name and (not kind or about.get("kind") == kind)
            if (uid and about.get("uid") == uid) or (same_name and not about.get("uid")):
                found.append(event)
        return sorted(found, key=event_time, reverse=True)


def take_snapshot(
    client: Client, namespace: str | None, kinds: Collection[Resource], *, now: float, labels: str = ""
) -> Snapshot:
    """Read the kinds; ``labels`` narrows those that carry the run's label."""
    observed = Snapshot(now)
    present, observed.unseen = resolve_served(client, list(kinds))
    for resource in present:
        chosen = labels if resource.kind in LABELLED_KINDS else ""
        place = namespace if resource.namespaced else None
        try:
            observed.tables[resource.title] = list(_slimmed(client, resource, place, chosen))
        except ObjectMissingError as error:
            observed.unseen[resource.title] = error.message
        except ClusterLoginError:
            raise  # nobody is let in: not a matter of one kind
        except ClusterAccessError as error:
            observed.unseen[resource.title] = error.message
    observed.now += client.skew_seconds  # ages are told by the clock that the times in the objects come from
    return observed


def take_snapshot_to_explain(client: Client, namespace: str | None, *, now: float) -> Snapshot:
    """Everything that can hold a workload up."""
    return take_snapshot(client, namespace, (*FOR_EXPLAIN, *CLUSTER_WIDE_FOR_EXPLAIN), now=now)


def _slimmed(client: Client, resource: Resource, namespace: str | None, labels: str) -> Iterator[Object]:
    for turn in range(3):
        seen: list[Object] = []
        try:
            for page in client.pages(resource, namespace, labels=labels):
                seen += [trim(resource, item) for item in page.items]
            break
        except VersionGoneError:
            if turn == 2:
                raise
    yield from seen
