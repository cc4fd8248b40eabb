"""A workload that is over: finished, finished wrongly, or failed, with the pod that tells why."""

from __future__ import annotations

from stayfast.cluster.diagnosis.diagnosis import Diagnosis, Verdict
from stayfast.cluster.diagnosis.workload_view import WorkloadView
from stayfast.cluster.kubernetes.client import Object
from stayfast.cluster.kubernetes.resources import PODS
from stayfast.cluster.observed.objects import condition, spec_of, status_of, title
from stayfast.cluster.observed.pod_endings import PodEnding, ending_of
from stayfast.cluster.observed.snapshot import Snapshot
from stayfast.model.exit_codes import Outcome
from stayfast.text.safe import line

_FAILED = {
    "BackoffLimitExceeded": (
        "backoff-limit",
        "its attempts are used up",
        "mend the program and submit again; interruptions should not count: stayfast lint (SF104)",
    ),
    "DeadlineExceeded": (
        "deadline",
        "its activeDeadlineSeconds are over; they run while it is Pending",
        "remove activeDeadlineSeconds from the Job (SF301), and submit again",
    ),
    "PodFailurePolicy": (
        "failure-policy",
        "a rule of its podFailurePolicy ended it",
        "read the rule and the exit code",
    ),
    "MaxFailedIndexesExceeded": ("indexes-failed", "too many of its indexes have failed", "look at the failed indexes"),
    "FailedIndexes": ("indexes-failed", "some of its indexes have failed for good", "look at the failed indexes"),
}


def explain_ended_pod(_observed: Snapshot, view: WorkloadView) -> Diagnosis | None:
    """Somebody asks about a pod that is over."""
    end = ending_of(view.root) if view.kind == "Pod" else None
    if end is None:
        return None
    return Diagnosis(
        "pod-ended", Verdict.FINE if end.code == 0 else Verdict.ACT, f"the pod has ended: {end.outcome.value}",
        (end.evidence,), "ask about its Job instead",
    )  # fmt: skip


def explain_ended_workload(observed: Snapshot, view: WorkloadView) -> Diagnosis | None:
    """The Job or JobSet is over."""
    return explain_ending(observed, view.root) if view.makes_pods_by_jobs else None


def explain_ending(observed: Snapshot, job: Object) -> Diagnosis | None:
    """This Job is over, as its pods tell."""
    pods = observed.owned_by(PODS, job)
    ends = sorted((end for end in map(ending_of, pods) if end), key=lambda end: end.at or 0.0)
    done = condition(job, "Complete") or condition(job, "Completed")
    if done is not None:
        return _explain_success(job, ends)
    failed = condition(job, "Failed")
    if failed is None:
        return None
    reason, message = str(failed.get("reason", "")), failed.get("message")
    code, words, fix = _FAILED.get(reason, ("failed", "it has failed", "read the log of its last pod: stayfast logs"))
    bad = [end for end in ends if end.outcome is not Outcome.FINISHED]
    lines = [line(title(job), "Failed", reason, "·", message), *(end.evidence for end in bad[-3:])]
    if bad and bad[-1].reason == "OOMKilled":
        words, fix = f"{words}: the last one ran out of memory", "ask for more memory"
        code = "out-of-memory"
    elif code == "backoff-limit" and bad and all(end.outcome is Outcome.INTERRUPTED for end in bad):
        code, words = "interruptions-counted", "interruptions used up its attempts"
        fix = "add the podFailurePolicy that stayfast render writes: Ignore DisruptionTarget, then 75 and 143"
    return Diagnosis(code, Verdict.ACT, words, tuple(lines), fix)


def _explain_success(job: Object, ends: list[PodEnding]) -> Diagnosis:
    status, spec = status_of(job), spec_of(job)
    wrong = [end for end in ends if end.is_false_success]
    lines = [line(title(job), f"Complete, succeeded {status.get('succeeded', 0)}")]
    if wrong:
        return Diagnosis(
            "wrong-success",
            Verdict.ACT,
            "it counts as finished, but a pod was interrupted and left with exit 0",
            (*lines, *(end.evidence for end in wrong[:3])),
            "leave with 75 when interrupted (stayfast.run and stayfast exec do), then: stayfast submit --replace",
        )
    lost = [end for end in ends if end.outcome is not Outcome.FINISHED]
    parallel = spec.get("parallelism")
    if spec.get("completions") is None and isinstance(parallel, int) and parallel > 1:
        succeeded = status.get("succeeded") or 0
        if lost and isinstance(succeeded, int) and succeeded < parallel:
            return Diagnosis(
                "complete-too-early",
                Verdict.ACT,
                f"{succeeded} of {parallel} workers finished; without completions the others were not replaced",
                (*lines, *(end.evidence for end in lost[:3])),
                "set completions equal to parallelism, check with stayfast audit, then: stayfast submit --replace",
            )
    return Diagnosis("finished", Verdict.FINE, "it has finished", tuple(lines), "nothing to do")
