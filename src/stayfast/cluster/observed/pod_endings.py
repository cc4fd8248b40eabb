"""How a pod ended, and what took it: from its conditions, reasons, exit codes and our own termination message."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from stayfast.capacity.machines import gke_keys as keys
from stayfast.clock import seconds_at
from stayfast.cluster.kubernetes.client import Object
from stayfast.cluster.observed.objects import condition, meta, spec_of, status_of, title
from stayfast.model.exit_codes import INTERRUPTED, KILLED, TERMINATED, Outcome
from stayfast.model.labels import LEASE_ENDS_AT
from stayfast.model.notice import Cause
from stayfast.text.safe import line

NODE_GONE_REASONS = ("Shutdown", "Terminated", "NodeShutdown", "NodeAffinity", "NodeLost")
KILLED_CODES = (KILLED, 247)  # SIGKILL, as two runtimes write it
_BY_CONDITION = {
    "PreemptionByScheduler": Cause.EVICTION,
    "DeletionByTaintManager": Cause.EVICTION,
    "EvictionByEvictionAPI": Cause.EVICTION,
}
_NODE_CONDITIONS = ("DeletionByPodGC", "TerminationByKubelet")


class PodEnding(NamedTuple):
    """One end."""

    outcome: Outcome
    cause: Cause | None
    evidence: str
    code: int | None = None
    at: float | None = None
    report: dict[str, Any] | None = None
    """Our own termination message."""
    is_false_success: bool = False
    """Exit 0 although it was interrupted: the Job counts it as finished."""
    reason: str = ""
    """What the container runtime says: ``OOMKilled``, ``Error``."""


def ending_of(pod: Object) -> PodEnding | None:
    """How it ended; nothing while it still runs or waits."""
    status = status_of(pod)
    phase = status.get("phase")
    if phase not in ("Succeeded", "Failed"):
        return None
    ended = _terminated(pod)
    code, report = ended.get("exitCode"), _report(ended.get("message"))
    at = seconds_at(ended.get("finishedAt")) or _failed_at(pod)
    target = condition(pod, "DisruptionTarget")
    name = title(pod)
    code = code if isinstance(code, int) else None
    reason = str(ended.get("reason") or "")
    if phase == "Succeeded":
        wrong = target is not None or (report or {}).get("outcome") == Outcome.INTERRUPTED
        why = f" after DisruptionTarget {target.get('reason')}" if target else ""
        return PodEnding(Outcome.FINISHED, None, f"{name} Succeeded, exit 0{why}", 0, at, report, wrong, reason)
    outcome, cause, said = _judge(pod, code, reason, report, target)
    return PodEnding(outcome, cause, f"{name} Failed: {said}", code, at, report, reason=reason)


def _judge(
    pod: Object, code: int | None, reason: str, report: dict[str, Any] | None, target: dict[str, Any] | None
) -> tuple[Outcome, Cause | None, str]:
    status = status_of(pod)
    exit_words = f"exit {code}" if code is not None else "no exit code"
    if report is not None and report.get("outcome") in (Outcome.INTERRUPTED, Outcome.FAILED):
        told = _cause(report.get("cause"))
        if report["outcome"] == Outcome.FAILED and target is None:
            return Outcome.FAILED, None, f"{exit_words}, {_short(report.get('detail') or 'failed by itself')}"
        if told is not None and told is not Cause.UNKNOWN:
            return Outcome.INTERRUPTED, told, f"{exit_words}, its own report says {told.value}"
    if target is not None:
        why = str(target.get("reason", ""))
        cause = _BY_CONDITION.get(why, _node_cause(pod) if why in _NODE_CONDITIONS else Cause.UNKNOWN)
        return Outcome.INTERRUPTED, cause, f"{exit_words}, DisruptionTarget {why}"
    gone = str(status.get("reason") or "")
    if gone in NODE_GONE_REASONS:
        return Outcome.INTERRUPTED, _node_cause(pod), f"{exit_words}, {gone}: {_short(status.get('message'))}"
    if gone == "Evicted":
        return Outcome.INTERRUPTED, Cause.EVICTION, f"Evicted: {_short(status.get('message'))}"
    if reason == "OOMKilled":
        return Outcome.FAILED, None, f"{exit_words}, OOMKilled"
    if code == INTERRUPTED or (code == TERMINATED and meta(pod).get("deletionTimestamp")):
        return Outcome.INTERRUPTED, Cause.UNKNOWN, exit_words
    if code in KILLED_CODES:
        return Outcome.LOST, Cause.UNKNOWN, f"{exit_words}: killed without a word"
    return Outcome.FAILED, None, f"{exit_words}{', ' + reason if reason else ''}"


def _node_cause(pod: Object) -> Cause:
    """The machine went away: what for depends on what sort of machine it was."""
    selector = spec_of(pod).get("nodeSelector") or {}
    if not isinstance(selector, dict):
        return Cause.UNKNOWN
    provisioning = selector.get(keys.PROVISIONING)
    if selector.get(keys.SPOT) == "true" or provisioning in ("spot", "preemptible"):
        return Cause.PREEMPTION
    annotations = meta(pod).get("annotations") or {}
    lease, ended = seconds_at(annotations.get(LEASE_ENDS_AT)), _failed_at(pod)
    if lease is not None and ended is not None and ended >= lease - 600:
        return Cause.RUN_LIMIT
    if selector.get(keys.FLEX_START) == "true" or provisioning in ("flex-start", "standard"):
        return Cause.MAINTENANCE
    return Cause.PREEMPTION if selector.get(keys.PREEMPTIBLE) == "true" else Cause.UNKNOWN


def _terminated(pod: Object) -> dict[str, Any]:
    """The container that tells most: one that did not exit 0, else the first."""
    found: list[dict[str, Any]] = []
    for row in status_of(pod).get("containerStatuses") or []:
        state = row.get("state") if isinstance(row, dict) else None
        ended = state.get("terminated") if isinstance(state, dict) else None
        if isinstance(ended, dict):
            found.append(ended)
    return next((item for item in found if item.get("exitCode") != 0), found[0] if found else {})


def _failed_at(pod: Object) -> float | None:
    target = condition(pod, "DisruptionTarget") or condition(pod, "Ready", None) or {}
    return seconds_at(target.get("lastTransitionTime"))


def _report(message: Any) -> dict[str, Any] | None:
    """Our termination message, if it is one."""
    if not isinstance(message, str) or not message.startswith("{"):
        return None
    try:
        found = json.loads(message)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) and "outcome" in found else None


def _cause(value: Any) -> Cause | None:
    return Cause(value) if isinstance(value, str) and value in set(Cause) else None


def _short(value: Any) -> str:
    text = line(value or "")
    return text if len(text) <= 160 else text[:159] + "…"
