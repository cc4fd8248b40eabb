"""What the watch may do by itself, each by name and only when asked."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from stayfast.cluster.kubernetes.client import Client
from stayfast.cluster.kubernetes.resources import (
    CONFIG_MAPS,
    JOB_SETS,
    JOBS,
    PODS,
    PROVISIONING_REQUESTS,
    WORKLOADS,
    Resource,
)
from stayfast.cluster.observed.objects import meta
from stayfast.cluster.observed.runs import RunSummary, summarize
from stayfast.cluster.observed.snapshot import Snapshot
from stayfast.cluster.watch.actions import (
    fall_back,
    reactivate_workload,
    recreate_request,
    requeue_lease,
    split_parallelism,
)
from stayfast.cluster.watch.actions.action import PlannedAction, Step, Verb
from stayfast.cluster.watch.alerts import Thresholds
from stayfast.errors import ClusterError, ObjectConflictError

ACTIONS = {
    requeue_lease.COPY_LEASE: (
        "write the end of a machine's lease into its pods' annotation, where the runtime reads it"
    ),
    requeue_lease.REQUEUE_LEASE: (
        "give back machines whose lease ends, when the pods have saved and left; queue for the next"
    ),
    reactivate_workload.REACTIVATE: (
        "put a run back into its queue that Kueue stopped: machines taken back, or too many tries"
    ),
    recreate_request.RECREATE_REQUEST: (
        "delete a request for machines that is stuck or has failed and Kueue does not retry"
    ),
    split_parallelism.SPLIT: "independent workers that wait too long: no more of them at a time than have machines",
    fall_back.FALL_BACK: "a run that waits twice too long and has no machine: the next class (submit --fall-back)",
}
USED: dict[str, tuple[tuple[Resource, Verb], ...]] = {
    requeue_lease.COPY_LEASE: ((PODS, Verb.PATCH),),
    requeue_lease.REQUEUE_LEASE: ((WORKLOADS, Verb.PATCH),),
    reactivate_workload.REACTIVATE: ((WORKLOADS, Verb.DELETE), (JOBS, Verb.PATCH), (JOB_SETS, Verb.PATCH)),
    recreate_request.RECREATE_REQUEST: ((PROVISIONING_REQUESTS, Verb.DELETE),),
    split_parallelism.SPLIT: ((JOBS, Verb.PATCH),),
    fall_back.FALL_BACK: (
        (CONFIG_MAPS, Verb.PATCH),
        (JOBS, Verb.DELETE),
        (JOBS, Verb.CREATE),
        (JOB_SETS, Verb.DELETE),
        (JOB_SETS, Verb.CREATE),
    ),
}
"""The requests that each action makes: the rights that it needs."""


def plan_actions(
    observed: Snapshot, allowed: set[str], thresholds: Thresholds | None = None, *, rows: list[RunSummary] | None = None
) -> list[PlannedAction]:
    """What is to be done now, of what is allowed; ``rows`` if they are added up already."""
    found: list[PlannedAction] = []
    for name, find in (
        (requeue_lease.COPY_LEASE, requeue_lease.copy_leases),
        (requeue_lease.REQUEUE_LEASE, requeue_lease.requeue_leases),
        (reactivate_workload.REACTIVATE, reactivate_workload.reactivate_workloads),
        (recreate_request.RECREATE_REQUEST, recreate_request.recreate_requests),
    ):
        if name in allowed:
            found += find(observed)
    if allowed & {split_parallelism.SPLIT, fall_back.FALL_BACK}:
        rows = summarize(observed) if rows is None else rows
        found += _by_run(observed, rows, allowed, thresholds or Thresholds())
    return _one_change_per_object(found)


def _by_run(observed: Snapshot, rows: list[RunSummary], allowed: set[str], limits: Thresholds) -> list[PlannedAction]:
    found: list[PlannedAction] = []
    roots = {str(meta(item).get("uid", "")): item for kind in (JOB_SETS, JOBS) for item in observed.of(kind)}
    plans = fall_back.plans_of(observed) if fall_back.FALL_BACK in allowed else {}
    standing: dict[fall_back.Key, list[str]] = {key: [] for key in plans}
    leaving: set[fall_back.Key] = set()
    for row in rows:
        root, key = roots.get(row.uid), (row.namespace, row.run)
        if root is None:
            continue
        limit = limits.pending_limit(row.capacity)
        if key in plans:
            standing[key].append(row.uid)
            begun = list(fall_back.start_fall_back(observed, row, root, plans[key], limit))
            found += begun
            leaving |= {key} if begun else set()
        if split_parallelism.SPLIT in allowed and key not in leaving:  # not both at once to one run
            found += split_parallelism.split(observed, row, root, limit)
    for key, config_map in plans.items():
        found += fall_back.finish_fall_back(
            observed, config_map, [roots[uid] for uid in standing[key]], due=key in leaving
        )
    return found


def _one_change_per_object(deeds: list[PlannedAction]) -> list[PlannedAction]:
    """One change to an object at a time: the second would be refused, for its version is no longer the one seen."""
    taken: set[tuple[str, str, str]] = set()
    found = []
    for deed in deeds:
        places = {(step.resource.title, step.namespace, step.name) for step in deed.steps}
        if not places & taken:
            found.append(deed)
            taken |= places
    return found


def carry_out(client: Client, deed: PlannedAction, served: Callable[[Resource], Resource]) -> str | None:
    """Nothing when done, else why not; ``served`` gives the version of a kind that this server has."""
    for step in deed.steps:
        try:
            _take(client, step, served(step.resource))
        except ObjectConflictError as error:
            return f"{error.message}; somebody else was faster, it is looked at again"
        except ClusterError as error:
            return error.message
    return None


def _take(client: Client, step: Step, resource: Resource) -> None:
    match step.verb:
        case Verb.PATCH:
            client.merge(resource, step.namespace, step.name, step.body)
        case Verb.DELETE:
            version = step.body.get("resourceVersion")
            client.delete(resource, step.namespace, step.name, uid=step.body.get("uid"), version=version)
        case Verb.CREATE:
            client.create(resource, step.namespace, step.body)


def rights_of(actions: Mapping[str, str] | set[str]) -> list[tuple[Resource, Verb]]:
    """What the actions need beyond looking."""
    return [right for name in sorted(actions) for right in USED[name]]
