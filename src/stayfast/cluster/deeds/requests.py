"""Requests for machines that will not be answered any more."""

from __future__ import annotations

from collections.abc import Iterator

from stayfast.cluster.causes.queueing import explain_request
from stayfast.cluster.deeds.deed import Deed, Step, Verb
from stayfast.cluster.explanation import line
from stayfast.cluster.observe import Observed, meta
from stayfast.cluster.resources import PROVISIONING_REQUESTS

RECREATE_REQUEST = "recreate-request"
_HOPELESS = ("provisioning-stuck", "provisioning-failed", "booking-expired")


def recreate_requests(observed: Observed) -> Iterator[Deed]:
    """Delete it: Kueue makes a new one."""
    for request in observed.of(PROVISIONING_REQUESTS):
        found = explain_request(request, observed.now)
        if found is None or found.code not in _HOPELESS:
            continue
        name, namespace, uid = (str(meta(request).get(key) or "") for key in ("name", "namespace", "uid"))
        step = Step(Verb.DELETE, PROVISIONING_REQUESTS, namespace, name, {"uid": uid})
        sentence = line(f"request {name} is deleted: {found.cause}")
        yield Deed(RECREATE_REQUEST, namespace, name, uid, sentence, (step,))
