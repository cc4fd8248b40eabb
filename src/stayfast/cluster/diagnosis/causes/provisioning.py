"""A request for machines: what its conditions mean beside what Kueue says of the workload that it belongs to."""

from __future__ import annotations

from stayfast.clock import seconds_at
from stayfast.cluster.diagnosis.diagnosis import FLEX_START_WAIT, Diagnosis, Verdict
from stayfast.cluster.diagnosis.workload_view import WorkloadView
from stayfast.cluster.kubernetes.client import Object
from stayfast.cluster.kubernetes.resources import PODS, WORKLOADS
from stayfast.cluster.observed.objects import age_seconds, condition, meta, spec_of, status_of, title
from stayfast.cluster.observed.pod_endings import ending_of
from stayfast.cluster.observed.snapshot import Snapshot
from stayfast.documents.lookup import mapping, mappings
from stayfast.text.safe import line
from stayfast.text.units import duration

STUCK_SECONDS = 86_400.0  # "accepted but stuck over a day; recreating it works" (kueue#3245, kueue#13159)
UNSEEN_SECONDS = 300.0
_RECREATE = (
    "delete the ProvisioningRequest, Kueue makes a new one: kubectl delete provisioningrequest {name} -n {place}"
)


_FAILURES = (
    ("booking-expired", "BookingExpired", "the machines came, and nothing ran on them in time"),
    ("provisioning-failed", "Failed", "the request for machines has failed"),
)
FAILURES = {code: kind for code, kind, _ in _FAILURES}
"""Code -> the condition of the request."""
_CONSUMED = "autoscaling.x-k8s.io/consume-provisioning-request"


def workload_behind(observed: Snapshot, request: Object) -> Object | None:
    """The Workload that Kueue made the request for."""
    return next((item for _, item in observed.owners_of(request, WORKLOADS)), None)


def next_try(workload: Object, now: float) -> str | None:
    """When Kueue asks again by itself: a time, an empty text where it gives none, or nothing if it does not."""
    at = mapping(status_of(workload).get("requeueState")).get("requeueAt")
    due = seconds_at(at)
    if due is not None and due > now:
        return str(at)
    retried = any(row.get("state") == "Retry" for row in mappings(status_of(workload).get("admissionChecks")))
    return "" if retried else None


def explain_request(observed: Snapshot, view: WorkloadView) -> Diagnosis | None:
    """Somebody asks about the request itself."""
    if view.kind != "ProvisioningRequest":
        return None
    return request_status(observed, view.root) or Diagnosis(
        "provisioned", Verdict.FINE, "the machines are there", (line(title(view.root), "Provisioned=True"),),
        "ask about its run instead",
    )  # fmt: skip


def request_status(observed: Snapshot, request: Object) -> Diagnosis | None:
    """Where a ProvisioningRequest stands; nothing when it has done its work."""
    workload = workload_behind(observed, request)
    lines = tuple(
        line(title(request), f"{row.get('type')}={row.get('status')}", row.get("reason"), "·", row.get("message"))
        for row in mappings(status_of(request).get("conditions"))
    )
    if condition(request, "CapacityRevoked") is not None:
        words = "the machines it was given have been taken back"
        return Diagnosis("capacity-revoked", Verdict.ACT, words, lines, _queue_again(request, workload))
    if _is_used(observed, request, workload):
        return None  # GKE sets BookingExpired some 10 minutes after the machines came, on healthy requests too
    for code, kind, words in _FAILURES:
        if condition(request, kind) is not None:
            return _failed(workload, request, observed.now, Diagnosis(code, Verdict.ACT, words, lines))
    if condition(request, "Provisioned") is not None:
        return None
    return _waiting(request, lines, observed.now)


def _is_used(observed: Snapshot, request: Object, workload: Object | None) -> bool:
    """Kueue has started the workload on its machines, or a pod that names the request has one."""
    if workload is not None and condition(workload, "Admitted") is not None:
        return True
    name, place = meta(request).get("name"), meta(request).get("namespace")
    return any(
        (meta(pod).get("annotations") or {}).get(_CONSUMED) == name
        and meta(pod).get("namespace") == place
        and spec_of(pod).get("nodeName")
        and ending_of(pod) is None
        for pod in observed.of(PODS)
    )


def _queue_again(request: Object, workload: Object | None) -> str:
    """Not by deleting the request: Kueue learns from it that the machines are gone."""
    name = meta(workload).get("name", "") if workload is not None else "NAME"
    return (
        "let Kueue stop the workload; then delete it, and Kueue makes a new one: "
        f"kubectl delete workload {name} -n {meta(request).get('namespace', '')}, or stayfast watch --act "
        "reactivate-workload"
    )


def _recreate(request: Object) -> str:
    return _RECREATE.format(name=meta(request).get("name", ""), place=meta(request).get("namespace", ""))


def _failed(workload: Object | None, request: Object, now: float, found: Diagnosis) -> Diagnosis:
    again = next_try(workload, now) if workload is not None else None
    if again is None:
        return found._replace(fix=_recreate(request))
    when = f"at {again}" if again else "soon"
    return found._replace(
        verdict=Verdict.WAIT, cause=f"{found.cause}; Kueue asks again {when}", fix="wait: Kueue makes the next request",
        usual_wait="Kueue waits 1 minute before the second request, then twice as long each time, up to 30 minutes",
    )  # fmt: skip


def _waiting(request: Object, lines: tuple[str, ...], now: float) -> Diagnosis:
    accepted = condition(request, "Accepted")
    if accepted is None:
        waited = age_seconds(request, now)
        seen = lines or (line(title(request), "has no conditions after", duration(waited)),)
        late = waited > UNSEEN_SECONDS
        return Diagnosis(
            "provisioning-not-accepted", Verdict.ACT if late else Verdict.WAIT,
            "the request for machines was not accepted yet", seen,
            f"check its class ({spec_of(request).get('provisioningClassName')}) and that a pool with queued "
            "provisioning exists",
            "a minute",
        )  # fmt: skip
    since = seconds_at(accepted.get("lastTransitionTime"))
    waited = now - since if since is not None else age_seconds(request, now)
    if waited > STUCK_SECONDS:
        return Diagnosis(
            "provisioning-stuck", Verdict.ACT, f"the request was accepted {duration(waited)} ago and nothing came",
            lines, f"{_recreate(request)}; or fall back to the next class of the plan", FLEX_START_WAIT,
        )  # fmt: skip
    return Diagnosis(
        "waiting-for-capacity", Verdict.WAIT, f"accepted; waiting for machines for {duration(waited)}", lines,
        "wait, or fall back to another class: stayfast plan", FLEX_START_WAIT,
    )  # fmt: skip
