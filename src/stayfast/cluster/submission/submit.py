"""The flow of a submit: checked against the cluster, applied, and followed until it runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

from stayfast.capacity.plan.planner import Plan
from stayfast.clock import Clock
from stayfast.cluster.diagnosis.diagnose import diagnose, find_root
from stayfast.cluster.diagnosis.diagnosis import Diagnosis, Verdict
from stayfast.cluster.kubernetes.client import Client
from stayfast.cluster.kubernetes.resources import NAMESPACES
from stayfast.cluster.observed.bucket_location import check_region
from stayfast.cluster.observed.problem import Problem, ProblemSeverity
from stayfast.cluster.observed.snapshot import take_snapshot_to_explain
from stayfast.cluster.submission.apply import Action, Decision, apply_all, check_update, decide
from stayfast.cluster.submission.preflight import (
    TargetedObject,
    check_dependencies,
    dry_run_objects,
    missing_namespaces,
    resolve_resources,
)
from stayfast.errors import ObjectRefusedError, StayfastError, UsageError
from stayfast.model.kubernetes_objects import identity
from stayfast.render.bundle import Bundle
from stayfast.render.fallback_classes import fallback_classes

POLL_SECONDS = 5.0
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class SubmitOptions:
    """What a submit may do."""

    replace: bool = False
    force_conflicts: bool = False
    dry_run: bool = False
    """Everything but the last step."""


class SubmitResult(NamedTuple):
    """What was decided, found and done."""

    decision: Decision
    problems: list[Problem]
    objects: list[tuple[str, str]]
    """Name of each object, and what happened to it."""
    is_confirmed: bool = True


def with_fallback_classes(bundle: Bundle, plan: Plan, say: Say) -> Bundle:
    """The later classes of the plan go into the cluster before the workload that may need them."""
    config_map, left_out = fallback_classes(bundle, plan)
    for reason in left_out:
        say(f"not kept for falling back: {reason}")
    if config_map is None:
        say("there is no class to fall back to")
        return bundle
    at = bundle.objects.index(bundle.workload)
    return replace(bundle, objects=[*bundle.objects[:at], config_map, *bundle.objects[at:]])


def submit(
    client: Client,
    bundle: Bundle,
    options: SubmitOptions,
    *,
    clock: Clock,
    confirm: Callable[[Decision, int], bool],
    say: Say,
) -> SubmitResult:
    """Apply the bundle; ``confirm`` is asked with the decision and the number of objects, ``say`` hears problems."""
    return _Submission(client, bundle, options, clock, say).run(confirm)


class _Submission:
    def __init__(self, client: Client, bundle: Bundle, options: SubmitOptions, clock: Clock, say: Say) -> None:
        self._client, self._bundle, self._options, self._clock, self._say = client, bundle, options, clock, say
        self._namespace = bundle.outline.namespace

    def run(self, confirm: Callable[[Decision, int], bool]) -> SubmitResult:
        client = self._client
        placed, problems = resolve_resources(client, self._bundle.objects, self._namespace)
        workload = next((item for item in placed if item.value is self._bundle.workload), None)
        absent = missing_namespaces(client, placed)
        decision = Decision(Action.CREATE, "it is new")
        if workload is not None and self._namespace not in absent:
            decision = decide(client, workload, replace=self._options.replace)
            check_update(client, workload, decision, force=self._options.force_conflicts)
        problems += self._preflight(placed, workload, decision, absent)
        for problem in problems:
            fix = f"; {problem.fix}" if problem.fix else ""
            self._say(f"{problem.weight.value}: {problem.object}: {problem.sentence}{fix}")
        if any(problem.weight is ProblemSeverity.ERROR for problem in problems):
            raise ObjectRefusedError("nothing was applied: the cluster would not run it", help="mend the errors above")
        if self._options.dry_run:
            return SubmitResult(decision, problems, [(identity(item.value), "tried") for item in placed])
        assert workload is not None
        if not confirm(decision, len(placed)):
            return SubmitResult(decision, problems, [], is_confirmed=False)
        done = self._apply(placed, workload, decision, absent)
        return SubmitResult(decision, problems, done + self._monitor(workload, decision))

    def _preflight(
        self, placed: list[TargetedObject], workload: TargetedObject | None, decision: Decision, absent: set[str]
    ) -> list[Problem]:
        tried = placed
        if decision.action in (Action.REPLACE, Action.NOTHING):  # the one that is there is in the way of the dry run
            tried = [item for item in placed if item is not workload]
        problems = dry_run_objects(self._client, tried, force=self._options.force_conflicts, absent=absent)
        if workload is not None and self._namespace not in absent and decision.action is not Action.NOTHING:
            problems += check_dependencies(self._client, placed, workload.value, self._namespace)
        spec = self._bundle.outline.spec
        return problems + check_region(self._client, [spec.checkpoint_url, spec.sink_url], spec.bucket_region)

    def _apply(
        self, placed: list[TargetedObject], workload: TargetedObject, decision: Decision, absent: set[str]
    ) -> list[tuple[str, str]]:
        """A namespace that is new comes first, so that the rest can be tried in it before it is applied."""
        done: list[tuple[str, str]] = []
        if absent:
            done += self._apply_all([item for item in placed if item.resource == NAMESPACES], workload, decision)
            placed = [item for item in placed if item.resource != NAMESPACES]
            problems = dry_run_objects(self._client, placed, force=self._options.force_conflicts, absent=set())
            problems += check_dependencies(self._client, placed, workload.value, self._namespace)
            bad = [problem for problem in problems if problem.weight is ProblemSeverity.ERROR]
            if bad:
                names = "; ".join(f"{problem.object}: {problem.sentence}" for problem in bad)
                raise ObjectRefusedError(f"only the namespace was made, the cluster would not run the rest: {names}")
        return done + self._apply_all(placed, workload, decision)

    def _apply_all(
        self, placed: list[TargetedObject], workload: TargetedObject, decision: Decision
    ) -> list[tuple[str, str]]:
        force = self._options.force_conflicts
        return apply_all(self._client, placed, workload, decision, clock=self._clock, force=force)

    def _monitor(self, workload: TargetedObject, decision: Decision) -> list[tuple[str, str]]:
        """Have its metrics collected, where the cluster knows how; the run does not depend on it."""
        wanted = [item for item in self._bundle.optional if item["kind"] == "PodMonitoring"]
        try:
            placed, _ = resolve_resources(self._client, wanted, self._namespace)
            return self._apply_all(placed, workload, decision)
        except StayfastError as error:
            self._say(f"warning: its metrics will not be collected: {error}")
            return []


def wait_until_running(
    client: Client,
    name: str,
    namespace: str,
    *,
    limit_seconds: float,
    clock: Clock,
    on_change: Callable[[Diagnosis], None],
) -> Diagnosis:
    """The last diagnosis: that it runs, has ended or needs help; its verdict is WAIT where the time is over."""
    deadline = clock.monotonic() + limit_seconds
    last = ""
    while True:
        observed = take_snapshot_to_explain(client, namespace, now=clock.wall())
        root = find_root(observed, name, namespace)
        if root is None:
            raise UsageError(f"the run {name} was deleted while we waited for it")
        found = diagnose(observed, root)
        if found.code != last:
            on_change(found)
            last = found.code
        if found.verdict is not Verdict.WAIT or clock.monotonic() >= deadline:
            return found
        clock.sleep(POLL_SECONDS)
