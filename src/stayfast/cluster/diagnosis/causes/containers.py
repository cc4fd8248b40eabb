"""A pod that has its node and does not run, or runs and fails: images, volumes, secrets, crashes."""

from __future__ import annotations

from typing import Any

from stayfast.clock import seconds_at
from stayfast.cluster.diagnosis.diagnosis import Diagnosis, Verdict
from stayfast.cluster.kubernetes.client import Object
from stayfast.cluster.observed.objects import meta, status_of, title
from stayfast.cluster.observed.snapshot import Snapshot
from stayfast.text.safe import line
from stayfast.text.units import duration

_IMAGE = ("ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "RegistryUnavailable")
_CONFIG = ("CreateContainerConfigError", "CreateContainerError", "RunContainerError")
_VOLUME_EVENTS = ("FailedMount", "FailedAttachVolume")
STARTING_SECONDS = 900.0


def explain_containers(observed: Snapshot, pod: Object) -> Diagnosis | None:
    """Its containers wait for something."""
    rows = _rows(pod)
    for row, waiting in ((row, _state(row, "waiting")) for row in rows):
        reason = str(waiting.get("reason", "")) if waiting else ""
        lines = (line(title(pod), f"container {row.get('name')}: {reason} ·", (waiting or {}).get("message")),)
        if reason in _IMAGE:
            return Diagnosis(
                "image", Verdict.ACT, "its image cannot be pulled", lines,
                "check the name (project/repository/image:tag, SF802) and that the nodes' account may read it",
            )  # fmt: skip
        if reason in _CONFIG:
            return Diagnosis(
                "configuration", Verdict.ACT, "its container cannot be made as written", lines,
                "make the Secret or ConfigMap that the message names",
            )  # fmt: skip
        if reason == "CrashLoopBackOff":
            ended = ((row.get("lastState") or {}).get("terminated")) or {}
            more = line(title(pod), f"last exit {ended.get('exitCode')}", ended.get("reason"), ended.get("message"))
            return Diagnosis(
                "crash-loop", Verdict.ACT, "its program ends again and again", (*lines, more),
                f"run: stayfast logs {_run(pod)} --previous",
            )  # fmt: skip
    if status_of(pod).get("phase") == "Pending" and rows:
        return _explain_starting(observed, pod)
    return None


def _explain_starting(observed: Snapshot, pod: Object) -> Diagnosis:
    events = observed.events_of(pod)
    for event in events:
        if event.get("reason") in _VOLUME_EVENTS:
            message = str(event.get("message", ""))
            fix = "its disk is still attached to another node: wait for the old pod to end, or use a bucket"
            if "Multi-Attach" not in message:
                fix = "check the claim, its class and (for buckets) the pod's Workload Identity"
            return Diagnosis(
                "volume", Verdict.ACT, "its volume cannot be mounted",
                (line(title(pod), event.get("reason"), "·", message),), fix,
            )  # fmt: skip
    started = seconds_at(status_of(pod).get("startTime"))
    waited = observed.now - started if started is not None else 0.0
    lines = tuple(line(title(pod), event.get("reason"), "·", event.get("message")) for event in events[:3])
    return Diagnosis(
        "starting", Verdict.ACT if waited > STARTING_SECONDS else Verdict.WAIT,
        f"it has its node and has been starting for {duration(waited)}",
        lines or (line(title(pod), "ContainerCreating"),), "wait; a large image takes minutes on a new node",
        "1 to 5 minutes, most of it the image",
    )  # fmt: skip


def _rows(pod: Object) -> list[dict[str, Any]]:
    status = status_of(pod)
    rows = [*(status.get("initContainerStatuses") or []), *(status.get("containerStatuses") or [])]
    return [row for row in rows if isinstance(row, dict)]


def _state(row: dict[str, Any], kind: str) -> dict[str, Any] | None:
    state = row.get("state")
    found = state.get(kind) if isinstance(state, dict) else None
    return found if isinstance(found, dict) else None


def _run(pod: Object) -> str:
    from stayfast.model.labels import RUN_LABEL

    return str((meta(pod).get("labels") or {}).get(RUN_LABEL) or meta(pod).get("name") or "RUN")
