"""What the watch may do by itself, each by name and only when asked."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from holdfast.cluster.causes.queueing import explain_request
from holdfast.cluster.client import Client
from holdfast.cluster.interruptions import end_of
from holdfast.cluster.observe import LEASE_ENDS_AT, TERMINATION_AT, Observed, meta, seconds_at, spec_of
from holdfast.cluster.resources import NODES, PODS, PROVISIONING_REQUESTS, Resource
from holdfast.errors import ClusterError

COPY_LEASE, RECREATE_REQUEST = "copy-lease", "recreate-request"
ACTIONS = {
    COPY_LEASE: "write the end of a machine's lease into its pods' annotation, where the runtime reads it",
    RECREATE_REQUEST: "delete a request for machines that is stuck for a day or has failed; Kueue makes a new one",
}


class Deed(NamedTuple):
    """One action on one object."""

    action: str
    resource: Resource
    namespace: str
    name: str
    uid: str
    sentence: str
    value: str = ""

    @property
    def key(self) -> str:
        """Done once for as long as this stays the same."""
        return f"{self.action}/{self.uid}/{self.value}"


def find_deeds(observed: Observed, allowed: set[str]) -> list[Deed]:
    """What is to be done now, of what is allowed."""
    found: list[Deed] = []
    if COPY_LEASE in allowed:
        found += _leases(observed)
    if RECREATE_REQUEST in allowed:
        found += _requests(observed)
    return found


def _leases(observed: Observed) -> Iterator[Deed]:
    ends = {
        str(meta(node).get("name")): str((meta(node).get("annotations") or {}).get(TERMINATION_AT) or "")
        for node in observed.of(NODES)
    }
    for pod in observed.of(PODS):
        ends_at = ends.get(str(spec_of(pod).get("nodeName") or ""), "")
        known = (meta(pod).get("annotations") or {}).get(LEASE_ENDS_AT)
        if seconds_at(ends_at) is None or known == ends_at or end_of(pod) is not None:
            continue
        name, namespace = str(meta(pod).get("name")), str(meta(pod).get("namespace"))
        sentence = f"pod {name} learns that its machine ends at {ends_at}"
        yield Deed(COPY_LEASE, PODS, namespace, name, str(meta(pod).get("uid")), sentence, ends_at)


def _requests(observed: Observed) -> Iterator[Deed]:
    for request in observed.of(PROVISIONING_REQUESTS):
        found = explain_request(request, observed.now)
        if found is None or found.code not in ("provisioning-stuck", "provisioning-failed", "booking-expired"):
            continue
        name, namespace = str(meta(request).get("name")), str(meta(request).get("namespace"))
        yield Deed(
            RECREATE_REQUEST, PROVISIONING_REQUESTS, namespace, name, str(meta(request).get("uid")),
            f"request {name} is deleted: {found.cause}",
        )  # fmt: skip


def do(client: Client, deed: Deed, resource: Resource) -> str | None:
    """Nothing when done, else why not; ``resource`` is the served version of the deed's kind."""
    try:
        if deed.action == COPY_LEASE:
            change = {"metadata": {"annotations": {LEASE_ENDS_AT: deed.value}}}
            client.merge(resource, deed.namespace, deed.name, change)
        else:
            client.delete(resource, deed.namespace, deed.name, uid=deed.uid)
    except ClusterError as error:
        return error.message
    return None
