"""Pitfall 1, second half: interruptions that use up the retry budget."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from stayfast.documents.editor import Edit
from stayfast.documents.lookup import dig, items, mapping, number
from stayfast.lint.finding import ADVICE, ERROR, WARNING, Fix, Hit
from stayfast.lint.objects.bundle import Bundle
from stayfast.lint.objects.pod import PodProfile
from stayfast.lint.objects.workloads import JobSpecAt
from stayfast.lint.rule import POD, rule
from stayfast.model.exit_codes import INTERRUPTED, KILLED, TERMINATED

_IGNORE_DISRUPTION = {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]}
_IGNORE_EXITS = {"action": "Ignore", "onExitCodes": {"operator": "In", "values": [INTERRUPTED, TERMINATED]}}


def failure_rules(job: JobSpecAt) -> list[dict[str, Any]]:
    """The rules of a Job's podFailurePolicy."""
    return [mapping(entry) for entry in items(dig(job.spec, "podFailurePolicy", "rules"))]


def is_on_disruption(entry: dict[str, Any]) -> bool:
    """Whether a rule matches pods that were taken away."""
    for condition in items(entry.get("onPodConditions")):
        condition = mapping(condition)
        if condition.get("type") == "DisruptionTarget" and str(condition.get("status", "True")) == "True":
            return True
    return False


def ignores_disruption(job: JobSpecAt) -> bool:
    """Whether interruptions are free."""
    return any(entry.get("action") == "Ignore" and is_on_disruption(entry) for entry in failure_rules(job))


def set_restarts(pod: PodProfile) -> bool:
    """Whether a JobSet above the Job starts everything again."""
    if pod.kind != "JobSet":
        return False
    policy = mapping(pod.item.spec.get("failurePolicy"))
    restarts = number(policy.get("maxRestarts"), 0) or 0
    rules = [mapping(entry) for entry in items(policy.get("rules"))]
    job = pod.template.job
    if restarts > 0:
        hard_stop = any(entry.get("action") == "FailJobSet" and not entry.get("onJobFailureReasons") for entry in rules)
        return not hard_stop
    for entry in rules:
        if str(entry.get("action", "")).endswith("AndIgnoreMaxRestarts"):
            reasons = items(entry.get("onJobFailureReasons"))
            only_policy = reasons == ["PodFailurePolicy"]
            fails_on_disruption = job is not None and any(
                rule_entry.get("action") == "FailJob" and is_on_disruption(rule_entry)
                for rule_entry in failure_rules(job)
            )
            return fails_on_disruption or not only_policy
    return False


@rule("SF104", "disruption-counts-as-failure", POD)
def disruption_counts_as_failure(pod: PodProfile, _bundle: Bundle) -> Iterator[Hit]:
    """Each interruption of an interruptible Job is counted as a failure."""
    job = pod.template.job
    if job is None or not pod.is_interruptible or pod.is_partial or ignores_disruption(job) or set_restarts(pod):
        return
    limit = job.spec.get("backoffLimit", 6)
    yield Hit(
        (*job.path, "podFailurePolicy") if "podFailurePolicy" in job.spec else job.path,
        f"every interruption counts against backoffLimit ({limit}): add a podFailurePolicy rule that ignores "
        "DisruptionTarget" + ("" if pod.spec.get("restartPolicy") == "Never" else ", with restartPolicy: Never"),
        WARNING if pod.is_spot else ADVICE,
        _policy_fix(pod, job),
    )


def _policy_fix(pod: PodProfile, job: JobSpecAt) -> Fix | None:
    restart = pod.spec.get("restartPolicy")
    safe = False
    if failure_rules(job):
        edits = [Edit("prepend", (*job.path, "podFailurePolicy", "rules"), _IGNORE_DISRUPTION)]
    elif "podFailurePolicy" in job.spec:
        return None
    else:
        safe = restart == "Never"
        rules = [_IGNORE_DISRUPTION, _IGNORE_EXITS]
        edits = [Edit("set", job.path, {"rules": rules}, key="podFailurePolicy")]
    if restart != "Never":
        edits.append(Edit("set", pod.spec_path, "Never", key="restartPolicy"))
    return Fix(tuple(edits), safe)


@rule("SF105", "no-retry-budget", POD)
def no_retry_budget(pod: PodProfile, _bundle: Bundle) -> Iterator[Hit]:
    """The first interruption fails the Job for good."""
    job = pod.template.job
    if job is None or not pod.is_interruptible or ignores_disruption(job) or set_restarts(pod):
        return
    for field in ("backoffLimit", "backoffLimitPerIndex"):
        if number(job.spec.get(field)) == 0:
            yield Hit(
                (*job.path, field),
                f"{field} is 0 and interruptions are not ignored: the first one fails the Job for good",
                ERROR if pod.is_spot else WARNING,
                Fix((Edit("set", job.path, 6, key=field),), safe=False),
            )
            return


@rule("SF106", "failure-rule-order", POD)
def failure_rule_order(pod: PodProfile, _bundle: Bundle) -> Iterator[Hit]:
    """A rule that fails the Job on 137 or 143 stands before the one that forgives interruptions."""
    job = pod.template.job
    if job is None:
        return
    rules = failure_rules(job)
    target = next((index for index, entry in enumerate(rules) if is_on_disruption(entry)), None)
    if target is None or rules[target].get("action") not in ("Ignore", "Count"):
        return
    for index, entry in enumerate(rules[:target]):
        codes = [code for code in (KILLED, TERMINATED) if _matches_code(entry, code)]
        if entry.get("action") in ("FailJob", "FailIndex") and codes:
            path = (*job.path, "podFailurePolicy", "rules")
            yield Hit(
                (*path, index),
                f"this {entry['action']} rule matches exit code {codes[0]} before the DisruptionTarget rule is "
                "looked at: "
                "the first match wins, so move that rule to the front",
                ERROR,
                Fix((Edit("first", (*path, target)),), safe=True),
            )
            return


def _matches_code(entry: dict[str, Any], code: int) -> bool:
    condition = mapping(entry.get("onExitCodes"))
    values = items(condition.get("values"))
    if condition.get("operator") == "In":
        return code in values
    return condition.get("operator") == "NotIn" and code not in values


@rule("SF108", "work-queue-loses-pods", POD)
def work_queue_loses_pods(pod: PodProfile, _bundle: Bundle) -> Iterator[Hit]:
    """Workers without a number of completions: after the first success no pod is replaced."""
    job = pod.template.job
    if job is None or pod.kind not in ("Job", "CronJob") or not pod.is_interruptible or "completions" in job.spec:
        return
    parallelism = number(job.spec.get("parallelism"), 1) or 1
    if parallelism > 1 and job.spec.get("completionMode") != "Indexed":
        yield Hit(
            (*job.path, "parallelism"),
            f"{parallelism} workers and no completions: once one of them has ended with 0, interrupted ones are never "
            f"replaced and the Job is Complete without their work; set completions: {parallelism}",
            WARNING,
            Fix((Edit("set", job.path, parallelism, key="completions"),), safe=False),
        )
