"""Machines whose end is known: the pods on them are told in time."""

from __future__ import annotations

from collections.abc import Iterator

from stayfast.clock import seconds_at
from stayfast.cluster.kubernetes.resources import NODES, PODS
from stayfast.cluster.observed.objects import meta, spec_of
from stayfast.cluster.observed.pod_endings import ending_of
from stayfast.cluster.observed.snapshot import TERMINATION_AT, Snapshot
from stayfast.cluster.watch.actions.action import Action, PlannedAction, Verb, WatchInput, annotation, patch
from stayfast.model.labels import LEASE_ENDS_AT
from stayfast.text.safe import line

COPY_LEASE = "copy-lease"


def copy_leases(look: WatchInput) -> Iterator[PlannedAction]:
    """The end of the machine, written where the runtime reads it."""
    ends = machine_ends(look.observed)
    for pod in look.observed.of(PODS):
        ends_at = ends.get(str(spec_of(pod).get("nodeName") or ""), "")
        if seconds_at(ends_at) is None or annotation(pod, LEASE_ENDS_AT) == ends_at or ending_of(pod) is not None:
            continue
        name, namespace = str(meta(pod).get("name")), str(meta(pod).get("namespace"))
        # Without the version: a pod's status changes all the time, and this annotation is nobody else's.
        step = patch(PODS, pod, {"metadata": {"annotations": {LEASE_ENDS_AT: ends_at}}}, guarded=False)
        sentence = line(f"pod {name} learns that its machine ends at {ends_at}")
        yield PlannedAction(COPY_LEASE, namespace, name, str(meta(pod).get("uid")), sentence, (step,), ends_at)


def machine_ends(observed: Snapshot) -> dict[str, str]:
    """Node -> when its machine is taken away, as GKE writes it."""
    return {str(meta(node).get("name")): annotation(node, TERMINATION_AT) for node in observed.of(NODES)}


ACTION = Action(
    COPY_LEASE,
    "write the end of a machine's lease into its pods' annotation, where the runtime reads it",
    ((PODS, Verb.PATCH),),
    copy_leases,
)
