"""The comments of a bundle: at a field, why it has the value it has."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from stayfast.documents.writer import Path, Why
from stayfast.model.capacity import CapacityClass
from stayfast.render.context import Controller, RenderContext


def comments_for(outline: RenderContext) -> Callable[[dict[str, Any]], Why]:
    """For each object, a function from the path of a field to its comment."""
    table = _table(outline)

    def of(value: dict[str, Any]) -> Why:
        kind = value.get("kind", "")

        def at(path: Path) -> str | None:
            return table.get((kind, path[-1])) or table.get(("", path[-1]))

        return at

    return of


def _table(outline: RenderContext) -> dict[tuple[str, str], str]:
    return {
        ("", "terminationGracePeriodSeconds"): _grace(outline),
        ("", "priorityClassName"): f"{_gives_way(outline)}; a missing class would mean no pods at all",
        ("", "readOnlyRootFilesystem"): "writable: /tmp, which is also HOME, and the volumes below",
        ("", "podReplacementPolicy"): "the next pod starts when the last one has ended: never two writers",
        ("", "suspend"): "Kueue starts it when every node is there",
        ("", "downwardAPI"): "written by `stayfast watch` from the node's annotation; empty until then",
        ("", "fsGroupChangePolicy"): "no walk over a volume that is right already",
        ("Job", "podFailurePolicy"): "interruptions are free; every other failure counts against the limit",
        ("JobSet", "podFailurePolicy"): "one rank lost is the gang lost: fail at once, so that the set starts all anew",
        ("JobSet", "failurePolicy"): (
            "interruptions restart the set for free and without back-off; other failures use up maxRestarts"
        ),
        ("Job", "completions"): _completions(outline),
        ("Job", "backoffLimit"): "real failures only: the runtime gives up after 5 attempts without progress",
        ("PriorityClass", "value"): (
            "not below 0: JobSet copies it into a label, where a minus sign is not allowed"
            if outline.form == Controller.JOBSET
            else "above -10, under which no node is ever added for a pod"
        ),
        ("PriorityClass", "preemptionPolicy"): "interruptible work never takes the place of another pod",
        ("StorageClass", "reclaimPolicy"): "deleting the claim must not delete the checkpoints",
        (
            "PersistentVolume",
            "persistentVolumeReclaimPolicy",
        ): "deleting the claim must not delete the bucket's content",
        ("ClusterQueue", "resourceGroups"): "exactly what this gang needs",
        (
            "ProvisioningRequestConfig",
            "retryStrategy",
        ): "Kueue gives up after 3 refusals by default; a queue may be long",
        ("ProvisioningRequestConfig", "podSetUpdates"): "run on the nodes of one's own request only",
        ("ComputeClass", "priorities"): "tried from the top",
        ("ComputeClass", "activeMigration"): "back to the cheaper machines when they return",
        ("ComputeClass", "nodeSystemConfig"): f"{outline.window.pod_seconds} s for a save instead of 15",
        ("PodMonitoring", "batch.kubernetes.io/job-completion-index"): "rank 0 serves the metrics of the whole gang",
        ("PodDisruptionBudget", "minAvailable"): "drains take one pod at a time; an integer, since Jobs have no scale",
        ("Service", "publishNotReadyAddresses"): "ranks look for each other before any of them is ready",
        ("Deployment", "rollingUpdate"): "there is no spare accelerator to surge onto",
        ("Namespace", "pod-security.kubernetes.io/enforce"): "all pods of the run meet the strictest profile",
    }


def _gives_way(outline: RenderContext) -> str:
    return "takes no other pod's place" if outline.form == Controller.JOBSET else "gives way to everything else"


def _grace(outline: RenderContext) -> str:
    window = outline.window
    if outline.capacity not in (CapacityClass.SPOT, CapacityClass.HYBRID):
        return "drains and upgrades honour it; sized for the last save"
    if window.is_long:
        return f"what is left of the {window.shutdown_seconds} s that the Spot nodes are set to"
    return "all that a reclaimed Spot node gives: 30 s, of which system pods get the second half"


def _completions(outline: RenderContext) -> str:
    if outline.is_queue_worker:
        return "fixed: without it, the first worker to finish would end the replacement of all others"
    if outline.is_gang and outline.form == Controller.JOB:
        return "one stable rank per node"
    return ""
