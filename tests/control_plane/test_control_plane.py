"""The scenarios of an interruptible run on a control plane; ``make test-cluster`` uses a real one (1.30 or later)."""

from __future__ import annotations

import copy
import json
import os
from typing import Any

import pytest

from control_plane.conftest import CLOCK, Plane
from render.render_cases import CASES, case, job_spec, template
from stayfast.capacity.machines.gke_limits import GkeVersion
from stayfast.clock import SystemClock
from stayfast.cluster.diagnosis.diagnose import diagnose, find_root
from stayfast.cluster.diagnosis.diagnosis import Diagnosis
from stayfast.cluster.kubernetes.discovery import Discovery
from stayfast.cluster.kubernetes.resources import (
    BUDGETS,
    CONFIG_MAPS,
    EVENTS,
    JOB_SETS,
    JOBS,
    NAMESPACES,
    PODS,
    PRIORITY_CLASSES,
)
from stayfast.cluster.kubernetes.watch_stream import ChangeKind, ResourceWatch
from stayfast.cluster.observed.pod_endings import ending_of
from stayfast.cluster.observed.snapshot import take_snapshot, take_snapshot_to_explain
from stayfast.cluster.submission.preflight import dry_run_objects, resolve_resources
from stayfast.cluster.watch.alert_store import AlertState
from stayfast.cluster.watch.alerts import Thresholds
from stayfast.cluster.watch.manifests import WATCHED
from stayfast.cluster.watch.watcher import Watcher, WatchOptions
from stayfast.errors import ObjectConflictError, ObjectRefusedError
from stayfast.model.exit_codes import Outcome
from stayfast.model.labels import CLASS_NUMBER, RUN_LABEL

SPOT_TAINT = {"key": "cloud.google.com/gke-spot", "value": "true", "effect": "NoSchedule"}
TOLERATION = {"key": "cloud.google.com/gke-spot", "operator": "Equal", "value": "true", "effect": "NoSchedule"}
LONG = bool(os.environ.get("STAYFAST_TEST_LONG"))


def rendered(plane: Plane, name: str, job: str, **spec: Any) -> dict[str, Any]:
    """The Job of a rendered bundle, with its policies as rendered and its pod cut down to what runs on our nodes."""
    found = copy.deepcopy(job_spec(case(name)))
    pod = found["template"]["spec"]
    container = {"name": "main", "image": "registry.k8s.io/pause:3.9", "command": ["true"]}
    template = {
        "restartPolicy": pod["restartPolicy"],
        "terminationGracePeriodSeconds": pod["terminationGracePeriodSeconds"],
        "containers": [container],
        "nodeSelector": {"stayfast-test": plane.tag},
        "tolerations": [TOLERATION],
    }
    found["template"] = {"metadata": {"labels": {"stayfast.dev/run": job}}, "spec": template}
    found |= spec
    metadata = {"name": job, "namespace": plane.namespace, "labels": {"stayfast.dev/run": job}}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": found}


def why(plane: Plane, name: str) -> Diagnosis:
    observed = take_snapshot_to_explain(plane.client, plane.namespace, now=SystemClock().wall())
    root = find_root(observed, name, plane.namespace)
    assert root is not None
    return diagnose(observed, root)


# -- with any server


def test_an_unknown_field_is_refused_in_both_ways(plane: Plane) -> None:
    value = rendered(plane, "train-spot", "bad")
    value["spec"]["maxParallelism"] = 1
    for way in (plane.client.create, plane.client.apply):
        with pytest.raises(ObjectRefusedError, match="maxParallelism"):
            way(JOBS, plane.namespace, value)


def test_exit_code_0_cannot_be_ignored_and_the_policy_needs_never(plane: Plane) -> None:
    value = rendered(plane, "train-spot", "zero")
    value["spec"]["podFailurePolicy"]["rules"][1]["onExitCodes"]["values"] = [0]
    with pytest.raises(ObjectRefusedError, match="0"):
        plane.client.apply(JOBS, plane.namespace, value)
    value = rendered(plane, "train-spot", "onfailure")
    value["spec"]["template"]["spec"]["restartPolicy"] = "OnFailure"
    with pytest.raises(ObjectRefusedError, match="Never"):
        plane.client.apply(JOBS, plane.namespace, value)


def test_conflicts_name_the_owner(plane: Plane) -> None:
    value = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": {"a": "1"}}
    plane.client.apply(CONFIG_MAPS, plane.namespace, value)
    plane.client.field_manager = "somebody"
    with pytest.raises(ObjectConflictError, match="stayfast manages"):
        plane.client.apply(CONFIG_MAPS, plane.namespace, {**value, "data": {"a": "2"}})


def test_a_change_to_what_has_changed_meanwhile_is_refused(plane: Plane) -> None:
    value = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": {"a": "1"}}
    seen = plane.client.apply(CONFIG_MAPS, plane.namespace, value)["metadata"]["resourceVersion"]
    plane.client.merge(CONFIG_MAPS, plane.namespace, "c", {"data": {"a": "2"}})
    with pytest.raises(ObjectConflictError):
        plane.client.merge(
            CONFIG_MAPS, plane.namespace, "c", {"metadata": {"resourceVersion": seen}, "data": {"a": "3"}}
        )
    with pytest.raises(ObjectConflictError):
        plane.client.delete(CONFIG_MAPS, plane.namespace, "c", version=seen)
    assert plane.client.get(CONFIG_MAPS, plane.namespace, "c")["data"] == {"a": "2"}


def test_a_watch_sees_what_happens(plane: Plane) -> None:
    watch = ResourceWatch(plane.client, CONFIG_MAPS, plane.namespace)
    changes = iter(watch)
    while next(changes).kind is not ChangeKind.SYNCED:
        pass
    value = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "seen"}}
    plane.client.apply(CONFIG_MAPS, plane.namespace, value)
    for change in changes:  # a real control plane puts a ConfigMap of its own into every namespace
        if (change.object.get("metadata") or {}).get("name") == "seen":
            assert change.kind is ChangeKind.ADDED
            break
    watch.stop()


@pytest.mark.parametrize("name", sorted(CASES))
def test_every_rendered_object_passes_a_server_dry_run(plane: Plane, name: str) -> None:
    """In a namespace that enforces Pod Security ``restricted``; kinds that are not installed are left out, and said."""
    labels = {"pod-security.kubernetes.io/enforce": "restricted", "pod-security.kubernetes.io/warn": "restricted"}
    plane.client.apply(
        NAMESPACES,
        None,
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": plane.namespace, "labels": labels}},
    )
    objects = json.loads(json.dumps(case(name).objects))
    discovery = Discovery(plane.client)
    absent = sorted({item["kind"] for item in objects if discovery.find(item) is None})
    kept = [item for item in objects if discovery.find(item) is not None and item["kind"] != "Namespace"]
    for item in kept:
        if "namespace" in item["metadata"]:
            item["metadata"]["namespace"] = plane.namespace
    placed, problems = resolve_resources(plane.client, kept, plane.namespace)
    problems += dry_run_objects(plane.client, placed, force=False, absent=set())
    assert problems == []
    # Pod Security is enforced on pods, not on what makes them: the pod itself is tried as well.
    pod = json.loads(json.dumps(template(case(name))))
    for needed in ("serviceAccountName", "priorityClassName"):  # of the bundle: nothing of it has been applied
        pod["spec"].pop(needed, None)
    pod["spec"].setdefault("restartPolicy", "Always")
    pod |= {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "tried", "labels": pod["metadata"].get("labels", {})},
    }
    plane.client.create(PODS, plane.namespace, pod, dry_run=True)
    warnings = [text for text in plane.client.warnings if "PodSecurity" in text]
    assert warnings == []
    if absent:
        print(f"{name}: not installed here: {', '.join(absent)}")
    assert plane.is_real or not absent


# -- with controllers


def test_taints_and_tolerations_decide(controlled: Plane) -> None:
    controlled.node("spot", taints=[SPOT_TAINT])
    value = rendered(controlled, "train-spot", "intolerant")
    del value["spec"]["template"]["spec"]["tolerations"]
    controlled.client.apply(JOBS, controlled.namespace, value)
    found = controlled.until(lambda: _coded(controlled, "intolerant", "untolerated-taint"), "the explanation")
    assert found.evidence
    controlled.client.apply(JOBS, controlled.namespace, rendered(controlled, "train-spot", "tolerant"))
    controlled.until(
        lambda: [pod for pod in controlled.pods("tolerant") if pod["spec"].get("nodeName")], "the pod to be bound"
    )


def _coded(plane: Plane, name: str, code: str) -> Diagnosis | None:
    found = why(plane, name)
    return found if found.code == code else None


def test_no_such_node_is_explained(controlled: Plane) -> None:
    value = rendered(controlled, "train-spot", "lost")
    value["spec"]["template"]["spec"]["nodeSelector"] = {"stayfast-test": "nowhere"}
    controlled.client.apply(JOBS, controlled.namespace, value)
    found = controlled.until(lambda: explained_as_waiting(controlled, "lost"), "the explanation")
    assert found.code in ("no-matching-node", "untolerated-taint", "no-nodes"), found


def explained_as_waiting(plane: Plane, name: str) -> Diagnosis | None:
    found = why(plane, name)
    return found if found.code not in ("just-created", "not-seen-yet", "no-pods") else None


def start(plane: Plane, value: dict[str, Any]) -> str:
    """Apply a Job and let its first pod run; returns the Job's name."""
    name = str(value["metadata"]["name"])
    plane.client.apply(JOBS, plane.namespace, value)
    next_pod(plane, name, set())
    return name


def next_pod(plane: Plane, job: str, before: set[str], seconds: float = 120.0) -> str:
    """The next pod of the Job that is bound, started."""

    def fresh() -> list[str]:
        return [
            pod["metadata"]["name"]
            for pod in plane.alive(job)
            if pod["metadata"]["name"] not in before and pod["spec"].get("nodeName")
        ]

    name = str(plane.until(fresh, f"a new pod of {job}", seconds)[0])
    plane.run(name)
    return name


def test_interrupted_pods_are_replaced_and_do_not_count(controlled: Plane) -> None:
    controlled.node("spot", taints=[SPOT_TAINT])
    job = start(controlled, rendered(controlled, "train-spot", "train", backoffLimit=0))
    seen = {pod["metadata"]["name"] for pod in controlled.pods(job)}
    first = next(iter(seen))
    message = json.dumps({"outcome": "interrupted", "cause": "preemption", "code": 75, "step": 7})
    controlled.end(first, 75, message=message)
    second = next_pod(controlled, job, seen)
    seen.add(second)
    controlled.end(second, 143, target="TerminationByKubelet")
    third = next_pod(controlled, job, seen)
    status = controlled.job(job)["status"]
    assert not status.get("failed"), status
    assert "Failed" not in controlled.conditions(job)
    ends = {pod["metadata"]["name"]: ending_of(pod) for pod in controlled.pods(job)}
    assert all(end is None or end.outcome is Outcome.INTERRUPTED for end in ends.values())
    assert why(controlled, job).code == "running"
    controlled.end(third, 0)
    controlled.until(lambda: "Complete" in controlled.conditions(job), "the Job to complete")
    assert why(controlled, job).code == "finished"


def test_exit_1_counts_and_fails_the_job(controlled: Plane) -> None:
    controlled.node("spot", taints=[SPOT_TAINT])
    job = start(controlled, rendered(controlled, "train-spot", "broken", backoffLimit=0))
    controlled.end(controlled.pods(job)[0]["metadata"]["name"], 1)
    controlled.until(lambda: "Failed" in controlled.conditions(job), "the Job to fail")
    assert why(controlled, job).code == "backoff-limit"


def test_a_batch_job_is_not_complete_while_a_worker_has_not_finished(controlled: Plane) -> None:
    controlled.node("spot", taints=[SPOT_TAINT])
    value = rendered(controlled, "batch-spot", "batch")
    workers = value["spec"]["completions"]
    assert workers == value["spec"]["parallelism"] > 1
    controlled.client.apply(JOBS, controlled.namespace, value)

    def all_bound() -> list[dict[str, Any]]:
        found = [pod for pod in controlled.alive("batch") if pod["spec"].get("nodeName")]
        return found if len(found) == workers else []

    pods = controlled.until(all_bound, "all workers")
    names = [pod["metadata"]["name"] for pod in pods]
    for name in names:
        controlled.run(name)
    for name in names[1:]:
        controlled.end(name, 0)
    controlled.end(names[0], 75, target="EvictionByEvictionAPI")
    last = next_pod(controlled, "batch", set(names))
    assert "Complete" not in controlled.conditions("batch")
    controlled.end(last, 0)
    controlled.until(lambda: "Complete" in controlled.conditions("batch"), "the Job to complete")


def test_restart_delays_are_measured(controlled: Plane) -> None:
    """Printed, not judged: how long an interrupted Job waits, and how long a new Job (as a JobSet makes one) does."""
    controlled.node("spot", taints=[SPOT_TAINT])
    job = start(controlled, rendered(controlled, "train-spot", "delays"))
    turns = 10 if LONG else 3
    seen: set[str] = set()
    delays = []
    for turn in range(1, turns + 1):
        pod = next(item["metadata"]["name"] for item in controlled.alive(job) if item["metadata"]["name"] not in seen)
        seen |= {item["metadata"]["name"] for item in controlled.pods(job)}
        controlled.end(pod, 75)
        started = CLOCK.monotonic()
        next_pod(controlled, job, seen, seconds=900.0)
        delays.append(CLOCK.monotonic() - started)
        if turn in (1, 5, 10):
            print(f"restart delay {turn} of an interrupted Job: {delays[-1]:.1f} s")
    print("restart delays of an interrupted Job: " + ", ".join(f"{delay:.1f} s" for delay in delays))
    assert delays == sorted(delays) or max(delays) > 300
    fresh = []
    for turn in range(1, 11):
        started = CLOCK.monotonic()
        name = f"fresh-{turn}"
        controlled.client.apply(JOBS, controlled.namespace, rendered(controlled, "train-spot", name))
        pod = next_pod(controlled, name, set())
        fresh.append(CLOCK.monotonic() - started)
        controlled.end(pod, 75)
        controlled.client.delete(JOBS, controlled.namespace, name)
    print(f"restart delays with a new Job each time: 1: {fresh[0]:.1f} s, 5: {fresh[4]:.1f} s, 10: {fresh[9]:.1f} s")
    assert max(fresh) < 30


def test_a_budget_over_job_pods_works_only_as_an_integer(controlled: Plane) -> None:
    controlled.node("spot", taints=[SPOT_TAINT])
    job = start(controlled, rendered(controlled, "train-spot", "guarded"))
    pod = controlled.pods(job)[0]["metadata"]["name"]
    selector = {"matchLabels": {"stayfast.dev/run": "guarded"}}
    budget = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "integer"},
        "spec": {"minAvailable": 1, "selector": selector},
    }
    controlled.client.apply(BUDGETS, controlled.namespace, budget)

    def is_counted() -> bool:
        found = controlled.client.get(BUDGETS, controlled.namespace, "integer").get("status") or {}
        return bool(found.get("expectedPods") == 1 and found.get("observedGeneration"))

    controlled.until(is_counted, "the budget to be counted")
    with pytest.raises(ObjectRefusedError, match="disruption budget"):
        controlled.client.evict(controlled.namespace, pod)
    controlled.client.delete(BUDGETS, controlled.namespace, "integer")
    controlled.client.apply(
        BUDGETS, controlled.namespace,
        {**budget, "metadata": {"name": "relative"}, "spec": {"maxUnavailable": 1, "selector": selector}},
    )  # fmt: skip
    controlled.until(lambda: any("SF701" in note for note in why(controlled, job).also), "the note about SyncFailed")


def test_a_missing_priority_class_makes_no_pods_and_is_explained(controlled: Plane) -> None:
    value = rendered(controlled, "train-spot", "unranked")
    value["spec"]["template"]["spec"]["priorityClassName"] = f"none-{controlled.tag}"
    controlled.client.apply(JOBS, controlled.namespace, value)
    found = controlled.until(lambda: _coded(controlled, "unranked", "priority-class-missing"), "the explanation")
    assert f"none-{controlled.tag}" in found.cause


def gang(plane: Plane, name: str, **priority: int) -> str:
    """Apply the JobSet of a rendered gang, its pods cut down as above, under its PriorityClass; the name of its Job."""
    if Discovery(plane.client).find({"apiVersion": JOB_SETS.api_version, "kind": JOB_SETS.kind}) is None:
        pytest.skip("the cluster has no JobSets")
    objects = {item["kind"]: item for item in copy.deepcopy(case("train-spot-gang").objects)}
    ranked = {**objects["PriorityClass"], **priority, "metadata": {"name": f"{plane.tag}-{name}"}}
    plane.client.apply(PRIORITY_CLASSES, None, ranked)
    plane._classes.append(ranked["metadata"]["name"])
    value = {**objects["JobSet"], "metadata": {"name": name, "labels": {RUN_LABEL: name}}}
    (group,) = value["spec"]["replicatedJobs"]
    group["template"]["spec"]["template"] = rendered(plane, "train-spot", name)["spec"]["template"]
    group["template"]["spec"]["template"]["spec"]["priorityClassName"] = ranked["metadata"]["name"]
    plane.client.apply(JOB_SETS, plane.namespace, value)
    return f"{name}-{group['name']}-0"


def test_job_set_takes_the_pods_of_a_rendered_gang(controlled: Plane) -> None:
    """From 0.11 on it copies their priority into a label."""
    job = gang(controlled, "gang")
    pods = controlled.until(lambda: controlled.pods(job), "the pods of the gang")
    controlled.until(lambda: len(controlled.pods(job)) == 2, "both pods of the gang")
    assert {pod["metadata"]["labels"]["jobset.sigs.k8s.io/priority"] for pod in pods} == {"0"}


def test_job_set_makes_no_pods_below_priority_0(controlled: Plane) -> None:
    job = gang(controlled, "below", value=-10)

    def refused() -> bool:
        rows = controlled.client.list(EVENTS, controlled.namespace)
        return any(
            row["reason"] == "FailedCreate"
            and row["involvedObject"]["name"] == job
            and "a valid label must be" in row["message"]
            for row in rows
        )

    controlled.until(refused, "the refusal of the pods")
    assert controlled.pods(job) == []


def test_the_rendered_priority_gives_way(controlled: Plane) -> None:
    priority = next(item for item in case("train-spot").objects if item["kind"] == "PriorityClass")
    name = f"{controlled.tag}-low"
    value = {**priority, "metadata": {"name": name}}
    controlled.client.apply(PRIORITY_CLASSES, None, value)
    controlled._classes.append(name)
    assert controlled.client.get(PRIORITY_CLASSES, None, name)["value"] == priority["value"] < 0


def test_a_pod_deleted_by_hand_is_ignored_through_its_exit_code(controlled: Plane) -> None:
    controlled.node("spot", taints=[SPOT_TAINT])
    job = start(controlled, rendered(controlled, "train-spot", "deleted", backoffLimit=0))
    pod = controlled.pods(job)[0]["metadata"]["name"]
    controlled.client.delete(PODS, controlled.namespace, pod)
    controlled.end(pod, 143)
    controlled.forget(pod)
    next_pod(controlled, job, {pod})
    assert "Failed" not in controlled.conditions(job)


# -- what the watch does by itself


def act(plane: Plane, action: str) -> list[str]:
    """One look of a watch that finds every wait too long; what came of each deed."""
    limits = Thresholds(pending_seconds={}, pending_other_seconds=0.5)
    man = Watcher(plane.client, AlertState(), WatchOptions(thresholds=limits, actions={action}), clock=CLOCK)
    observed = take_snapshot(plane.client, plane.namespace, WATCHED, now=CLOCK.wall() + 5, labels=RUN_LABEL)
    return [result for _, result in man.look(observed)[0].deeds]


def test_workers_that_wait_are_made_fewer_and_those_that_run_stay(controlled: Plane) -> None:
    name = controlled.node("spot", taints=[SPOT_TAINT])
    value = rendered(controlled, "batch-spot", "wide")
    value["spec"]["template"]["metadata"]["labels"]["stayfast.dev/coupled"] = "false"
    width, room = value["spec"]["parallelism"], 2
    controlled.shrink(name, room)
    controlled.client.apply(JOBS, controlled.namespace, value)

    def bound() -> set[str]:
        return {pod["metadata"]["name"] for pod in controlled.alive("wide") if pod["spec"].get("nodeName")}

    def settled() -> bool:
        return len(bound()) == room and len(controlled.alive("wide")) == width

    controlled.until(settled, "two to run and the others to wait")
    kept = bound()
    for pod in kept:
        controlled.run(pod)
    assert act(controlled, "split-parallelism") == ["done"]
    assert controlled.job("wide")["spec"]["parallelism"] == room
    controlled.until(lambda: len(controlled.alive("wide")) == room, "the waiting pods to go")
    assert bound() == kept
    assert "Failed" not in controlled.conditions("wide")


def test_a_run_that_gets_no_machine_falls_back(controlled: Plane) -> None:
    controlled.node("plain")
    first = rendered(controlled, "train-spot", "moved")
    first["spec"]["template"]["spec"]["nodeSelector"] = {"stayfast-test": "nowhere"}
    controlled.client.apply(JOBS, controlled.namespace, first)
    following = rendered(controlled, "train-spot", "moved")
    following["metadata"]["annotations"] = {CLASS_NUMBER: "1"}
    rows = [{"capacity": "on-demand", "workload": following}]
    labels = {RUN_LABEL: "moved", "stayfast.dev/part": "classes"}
    kept = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "moved-classes", "labels": labels},
        "data": {"classes.json": json.dumps(rows)},
    }
    controlled.client.apply(CONFIG_MAPS, controlled.namespace, kept)
    controlled.until(lambda: controlled.alive("moved"), "the pod that waits")
    before = controlled.job("moved")["metadata"]["uid"]

    def is_new() -> bool:
        act(controlled, "fall-back")
        found = controlled.client.find(JOBS, controlled.namespace, "moved")
        return found is not None and found["metadata"]["uid"] != before

    controlled.until(is_new, "the next class")
    next_pod(controlled, "moved", set())
    assert controlled.job("moved")["metadata"]["annotations"][CLASS_NUMBER] == "1"
    assert act(controlled, "fall-back") == []


def test_the_version_is_one_we_know(plane: Plane) -> None:
    version = GkeVersion.parse(str(plane.client.get_path("/version")["gitVersion"]))
    assert version is not None
    assert version >= (1, 30, 0, 0)
