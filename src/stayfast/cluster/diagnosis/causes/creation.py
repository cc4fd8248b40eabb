"""A Job without pods: the API server accepted it and refuses its pods, or the controller waits before the next one."""

from __future__ import annotations

import re

from stayfast.cluster.diagnosis.causes.endings import explain_ending
from stayfast.cluster.diagnosis.diagnosis import REPLACEMENT_WAIT, Diagnosis, Verdict
from stayfast.cluster.diagnosis.workload_view import WorkloadView
from stayfast.cluster.kubernetes.client import Object
from stayfast.cluster.kubernetes.resources import PODS
from stayfast.cluster.observed.objects import age_seconds, condition, event_time, meta, spec_of, title
from stayfast.cluster.observed.pod_endings import PodEnding, ending_of
from stayfast.cluster.observed.snapshot import Snapshot
from stayfast.model.exit_codes import FIRST_BACKOFF_SECONDS, LONGEST_BACKOFF_SECONDS, Outcome
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


def explain_missing_jobs(observed: Snapshot, view: WorkloadView) -> Diagnosis | None:
    """A JobSet whose controller has made nothing."""
    if view.kind != "JobSet" or view.jobs:
        return None
    root = view.root
    events = observed.events_of(root)
    lines = tuple(line(title(root), event.get("reason"), "·", event.get("message")) for event in events[:3])
    late = age_seconds(root, observed.now) > 60
    return Diagnosis(
        "jobset-without-jobs", Verdict.ACT if late else Verdict.WAIT, "the JobSet has made no Job",
        lines or (line(title(root), "no Jobs, no events"),),
        "check that the JobSet controller runs: kubectl get pods -n jobset-system", "a few seconds",
    )  # fmt: skip


def explain_missing_pods(observed: Snapshot, view: WorkloadView) -> Diagnosis | None:
    """A Job of it has neither waiting nor running pods."""
    if not view.makes_pods_by_jobs:
        return None
    for job in view.jobs:
        ending = explain_ending(observed, job) if view.kind == "JobSet" else None
        found = ending or _explain_creation(observed, job)
        if found is not None and found.code != "finished":
            return found
    return None


def _explain_creation(observed: Snapshot, job: Object) -> Diagnosis | None:
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


def explain_deployment(observed: Snapshot, view: WorkloadView) -> Diagnosis | None:
    """An endpoint without pods."""
    if view.kind != "Deployment":
        return None
    root = view.root
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
