"""A Job without pods: the API server accepted it and refuses its pods, or the controller waits before the next one."""

from __future__ import annotations

import re

from stayfast.clock import seconds_at
from stayfast.cluster.diagnosis.diagnosis import NODE_LOST_WAIT, REPLACEMENT_WAIT, Diagnosis, Verdict
from stayfast.cluster.kubernetes.client import Object
from stayfast.cluster.kubernetes.resources import BUDGETS, NODES, PODS
from stayfast.cluster.observed.objects import age_seconds, condition, event_time, meta, spec_of, title
from stayfast.cluster.observed.pod_endings import PodEnding, ending_of
from stayfast.cluster.observed.snapshot import Snapshot
from stayfast.model.exit_codes import FIRST_BACKOFF_SECONDS, LONGEST_BACKOFF_SECONDS, Outcome
from stayfast.model.label_selector import matches
from stayfast.text.safe import line
from stayfast.text.units import duration

UNSEEN_SECONDS = 60.0
_REFUSALS = (
    (
        re.compile(r"no PriorityClass with name (\S+) was found"),
        "priority-class-missing",
        "the PriorityClass {0} does not exist, so no pod can be made",
        "apply the PriorityClass (10-access.yaml of stayfast render), or remove priorityClassName (SF803)",
    ),
    (
        re.compile(r"exceeded quota: ([\w.-]+)"),
        "namespace-quota",
        "the namespace's ResourceQuota {0} is used up",
        "run: kubectl describe resourcequota {0}",
    ),
    (
        re.compile(r'violates PodSecurity "([^"]+)"'),
        "pod-security",
        "the namespace enforces Pod Security {0}, and the pod does not keep to it",
        "stayfast render writes pods that do; a server dry run names the fields",
    ),
    (
        re.compile(r'serviceaccount "?([\w.-]+)"? not found|service account [\w.-]+/([\w.-]+) was not found'),
        "service-account-missing",
        "its ServiceAccount {0} does not exist",
        "apply 10-access.yaml of stayfast render",
    ),
    (
        re.compile(r'admission webhook "([^"]+)" denied'),
        "admission-webhook",
        "the admission webhook {0} refuses its pods",
        "read the message, or ask whoever runs the webhook",
    ),
)


def explain_creation(observed: Snapshot, job: Object) -> Diagnosis | None:
    """No pod of the Job is waiting or running."""
    pods = observed.owned_by(PODS, job)
    alive = [pod for pod in pods if ending_of(pod) is None]
    if alive:
        return None
    refused = _explain_refusal(observed, job)
    ends = sorted((end for end in map(ending_of, pods) if end), key=lambda end: end.at or 0.0)
    last_end = ends[-1].at if ends and ends[-1].at is not None else 0.0
    if refused is not None and (not ends or refused[1] >= last_end):
        return refused[0]
    if ends:
        return _explain_pause(observed, ends)
    if age_seconds(job, observed.now) > UNSEEN_SECONDS:
        return Diagnosis(
            "no-pods",
            Verdict.ACT,
            "the Job has made no pod, and no event says why",
            (line(title(job), "active 0, no pods, no events about failures"),),
            f"run: kubectl describe job {meta(job).get('name')} -n {meta(job).get('namespace')}",
        )
    return Diagnosis("just-created", Verdict.WAIT, "the Job has just been made", (), "wait", "a few seconds")


def _explain_refusal(observed: Snapshot, job: Object) -> tuple[Diagnosis, float] | None:
    for event in observed.events_of(job):
        if event.get("reason") != "FailedCreate":
            continue
        message = str(event.get("message", ""))
        lines = (line(title(job), "FailedCreate ·", message),)
        return _refusal(message, lines), event_time(event)
    return None


def _refusal(message: str, lines: tuple[str, ...]) -> Diagnosis:
    """From the words in which the API server refuses a pod."""
    for pattern, code, words, fix in _REFUSALS:
        match = pattern.search(message)
        if match:
            name = line(next((group for group in match.groups() if group), ""))
            return Diagnosis(code, Verdict.ACT, words.format(name), lines, fix.format(name))
    return Diagnosis("pods-refused", Verdict.ACT, "the API server refuses its pods", lines, "read the message above")


def _explain_pause(observed: Snapshot, ends: list[PodEnding]) -> Diagnosis:
    """Between two attempts."""
    last = ends[-1]
    since = observed.now - last.at if last.at is not None else 0.0
    unbroken = 0
    for end in reversed(ends):
        if end.outcome is Outcome.FINISHED:
            break
        unbroken += 1
    pause = min(LONGEST_BACKOFF_SECONDS, FIRST_BACKOFF_SECONDS * 2 ** min(10, max(0, unbroken - 1)))
    lines = tuple(end.evidence for end in ends[-3:])
    what = "was interrupted" if last.outcome is Outcome.INTERRUPTED else "ended"
    words = f"the last attempt {what} {duration(since)} ago; the next one starts about {duration(pause)} after that end"
    if since > pause + 120:
        return Diagnosis(
            "replacement-late",
            Verdict.ACT,
            f"the last attempt {what} {duration(since)} ago and no new pod was made",
            lines,
            "look for FailedCreate events and at the controller manager: kubectl describe job",
            REPLACEMENT_WAIT,
        )
    return Diagnosis("waiting-for-replacement", Verdict.WAIT, words, lines, "wait", REPLACEMENT_WAIT)


def explain_terminating(observed: Snapshot, pods: list[Object]) -> Diagnosis | None:
    """A pod that was told to leave and is still there, while the Job waits for its end."""
    for pod in pods:
        deadline = seconds_at(meta(pod).get("deletionTimestamp"))  # the API server adds the grace to it
        if deadline is None or ending_of(pod) is not None:
            continue
        late = observed.now - deadline
        when = f"its time ended {duration(late)} ago" if late > 0 else f"it has {duration(-late)} left"
        lines = [line(title(pod), "is being deleted;", when)]
        finalizers = [str(item) for item in meta(pod).get("finalizers") or []]
        if finalizers:
            lines.append(line(title(pod), "finalizers:", ", ".join(finalizers)))
        if late < 60:
            return Diagnosis(
                "draining",
                Verdict.WAIT,
                "the pod was told to leave and is saving",
                tuple(lines),
                "wait",
                "at most its grace period",
            )
        return _explain_late(observed, pod, late, lines)
    return None


def _explain_late(observed: Snapshot, pod: Object, late: float, lines: list[str]) -> Diagnosis:
    """Its time is over, and something holds it."""
    finalizers = [str(item) for item in meta(pod).get("finalizers") or []]
    foreign = [name for name in finalizers if name != "batch.kubernetes.io/job-tracking"]
    node = str(spec_of(pod).get("nodeName") or "")
    gone = node and NODES.title in observed.tables and observed.named(NODES, None, node) is None
    if gone:
        lines.append(f"node/{node} does not exist any more")
        return Diagnosis(
            "node-lost",
            Verdict.WAIT,
            "its machine is gone, and the cluster is about to notice",
            tuple(lines),
            "wait",
            NODE_LOST_WAIT,
        )
    if foreign:
        return Diagnosis(
            "finalizer",
            Verdict.ACT,
            f"the pod cannot go: {', '.join(foreign)} holds it",
            tuple(lines),
            "find out whose finalizer it is and why its controller does not remove it",
        )
    return Diagnosis(
        "stuck-terminating",
        Verdict.ACT,
        f"the pod should have ended {duration(late)} ago",
        tuple(lines),
        "the node does not answer: look at it, and as a last resort kubectl delete pod --force (two pods may then "
        "run at once; stayfast's checkpoints bear that)",
    )


def draining_nodes(observed: Snapshot, pods: list[Object]) -> list[str]:
    """Nodes under the pods that are being emptied."""
    names = {str(spec_of(pod).get("nodeName") or "") for pod in pods} - {""}
    cordoned = [node for node in observed.of(NODES) if spec_of(node).get("unschedulable") is True]
    return sorted(str(meta(node).get("name")) for node in cordoned if meta(node).get("name") in names)


def budget_notes(observed: Snapshot, pods: list[Object]) -> tuple[str, ...]:
    """Budgets that will block a drain, or already do."""
    notes = []
    for budget in observed.of(BUDGETS):
        selector = spec_of(budget).get("selector")
        if not selector or not any(matches(selector, meta(pod).get("labels") or {}) for pod in pods):
            continue
        failed = condition(budget, "DisruptionAllowed", "False")
        if failed is not None and failed.get("reason") == "SyncFailed":
            notes.append(
                line(title(budget), "SyncFailed: every eviction is refused ·", failed.get("message"), "(SF701)")
            )
        elif failed is not None and draining_nodes(observed, pods):
            nodes = ", ".join(draining_nodes(observed, pods))
            notes.append(line(title(budget), f"allows no eviction: the drain of {nodes} waits for it (SF702)"))
    return tuple(notes)


def explain_deployment(observed: Snapshot, root: Object) -> Diagnosis:
    """An endpoint without pods."""
    name, place = meta(root).get("name"), meta(root).get("namespace")
    if spec_of(root).get("replicas") == 0:
        return Diagnosis(
            "scaled-to-zero", Verdict.ACT, "it is scaled to no pods at all", (line(title(root), "spec.replicas: 0"),),
            f"run: kubectl scale deployment {name} -n {place} --replicas 1",
        )  # fmt: skip
    failed = condition(root, "ReplicaFailure")
    if failed is not None:
        evidence = (line(title(root), "ReplicaFailure", failed.get("reason"), "·", failed.get("message")),)
        return _refusal(str(failed.get("message", "")), evidence)
    late = age_seconds(root, observed.now) > UNSEEN_SECONDS
    return Diagnosis(
        "no-pods" if late else "just-created", Verdict.ACT if late else Verdict.WAIT, "it has no pods",
        (line(title(root), "no pods, and no reason told"),), f"run: kubectl describe deployment {name} -n {place}",
        "a few seconds",
    )  # fmt: skip
