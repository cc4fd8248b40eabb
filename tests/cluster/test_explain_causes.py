"""Every situation that was recorded gets its cause, with the line it rests on and something to do."""

from __future__ import annotations

import json
from typing import Any

import pytest

from cluster.scenarios import (
    NOW,
    SPOT,
    at,
    condition,
    ended,
    event,
    interrupted,
    job,
    local_queue,
    node,
    pod,
    queued_job,
    request,
    unschedulable,
    waiting,
    workload,
)
from stayfast.cluster.diagnosis.diagnose import diagnose, find_root
from stayfast.cluster.diagnosis.diagnosis import Diagnosis, Verdict
from stayfast.cluster.kubernetes.resources import (
    BUDGETS,
    CLUSTER_QUEUES,
    EVENTS,
    JOB_SETS,
    JOBS,
    LOCAL_QUEUES,
    NODES,
    PODS,
    PROVISIONING_REQUESTS,
    WORKLOADS,
)
from stayfast.cluster.observed.pod_endings import ending_of
from stayfast.cluster.observed.snapshot import Snapshot
from stayfast.model.exit_codes import Outcome
from stayfast.model.notice import Cause

TABLES = {
    "Job": JOBS, "Pod": PODS, "Event": EVENTS, "Workload": WORKLOADS, "ProvisioningRequest": PROVISIONING_REQUESTS,
    "LocalQueue": LOCAL_QUEUES, "ClusterQueue": CLUSTER_QUEUES, "Node": NODES, "JobSet": JOB_SETS,
    "PodDisruptionBudget": BUDGETS,
}  # fmt: skip


def seen(*values: dict[str, Any]) -> Snapshot:
    observed = Snapshot(NOW)
    for value in values:
        observed.add(TABLES[value["kind"]], value)
    return observed


def why(*values: dict[str, Any]) -> Diagnosis:
    """About the first of them."""
    observed = seen(*values)
    root = find_root(observed, values[0]["metadata"]["name"], "ml")
    assert root is not None
    found = diagnose(observed, root)
    assert found.cause
    if found.verdict is Verdict.ACT:
        assert found.fix, found
    if found.verdict is Verdict.WAIT:
        assert found.fix or found.usual_wait
    json.dumps(found.to_json())
    return found


def scheduled(message: str, *events: tuple[str, str]) -> Diagnosis:
    waiting_pod = pod(conditions=unschedulable(message), selector=SPOT)
    return why(job(), waiting_pod, *(event(waiting_pod, *entry) for entry in events))


NO_FLAVOR = "couldn't assign flavors to pod set main: "
NODES_3 = "0/3 nodes are available: "
PREEMPTION = " preemption: 0/3 nodes are available: 3 Preemption is not helpful for scheduling."


class TestScheduling:
    @pytest.mark.parametrize(
        ("message", "code", "words"),
        [
            (
                NODES_3
                + "1 node(s) had untolerated taint {cloud.google.com/gke-spot: true}, 2 Insufficient nvidia.com/gpu."
                + PREEMPTION,
                "untolerated-taint",
                "gke-spot",
            ),
            (NODES_3 + "3 node(s) had untolerated taint(s)." + PREEMPTION, "untolerated-taint", "taints"),
            (
                NODES_3 + "3 Insufficient nvidia.com/gpu." + PREEMPTION,
                "not-enough-resources",
                "enough nvidia.com/gpu free",
            ),
            (
                NODES_3 + "3 node(s) didn't match Pod's node affinity/selector." + PREEMPTION,
                "no-matching-node",
                "cloud.google.com/gke-spot=true",
            ),
            (NODES_3 + "pod has unbound immediate PersistentVolumeClaims.", "volume-not-bound", "claim"),
            (NODES_3 + "3 node(s) had volume node affinity conflict.", "volume-in-another-zone", "zone"),
            ("0/0 nodes are available: no nodes available to schedule pods", "no-nodes", "no node at all"),
            ("something new in 1.40", "unschedulable", "no node"),
        ],
    )
    def test_the_schedulers_words(self, message: str, code: str, words: str) -> None:
        found = scheduled(message)
        assert found.code == code
        assert words in found.cause
        assert message[:40] in found.evidence[0]

    def test_a_node_is_being_made(self) -> None:
        text = (
            "pod triggered scale-up: [{https://compute/zones/us-central1-a/instanceGroups/gke-spot-grp 0->1 (max: 5)}]"
        )
        found = scheduled(NODES_3 + "3 Insufficient nvidia.com/gpu.", ("TriggeredScaleUp", text))
        assert (found.code, found.verdict) == ("waiting-for-node", Verdict.WAIT)
        assert "6 minutes" in found.usual_wait

    @pytest.mark.parametrize(
        ("text", "code"),
        [
            ("pod didn't trigger scale-up: 2 max node group size reached", "pool-at-maximum"),
            ("pod didn't trigger scale-up: 1 in backoff after failed scale-up", "scale-up-backoff"),
            ("pod didn't trigger scale-up: 4 node(s) didn't match Pod's node affinity/selector", "no-scale-up"),
        ],
    )
    def test_the_autoscaler_declines(self, text: str, code: str) -> None:
        assert scheduled(NODES_3 + "3 Insufficient cpu.", ("NotTriggerScaleUp", text)).code == code

    def test_the_autoscaler_and_a_taint_name_the_taint(self) -> None:
        taint = "3 node(s) had untolerated taint {cloud.google.com/gke-queued: true}."
        found = scheduled(
            NODES_3 + taint, ("NotTriggerScaleUp", "pod didn't trigger scale-up: 3 node(s) had untolerated taint(s)")
        )
        assert found.code == "untolerated-taint"
        assert "queue" in found.fix
        assert len(found.evidence) == 2

    @pytest.mark.parametrize(
        ("text", "code"),
        [
            (
                "Node scale up in zones us-central1-a failed: GCE_STOCKOUT. Pod is at risk of not being scheduled.",
                "out-of-capacity",
            ),
            ("Node scale up in zones us-central1-a failed: GCE quota exceeded: QUOTA_EXCEEDED", "cloud-quota"),
        ],
    )
    def test_machines_that_cannot_be_had(self, text: str, code: str) -> None:
        assert scheduled(NODES_3 + "3 Insufficient nvidia.com/gpu.", ("FailedScaleUp", text)).code == code

    def test_a_gate(self) -> None:
        held = pod(
            spec={"schedulingGates": [{"name": "kueue.x-k8s.io/admission"}]},
            conditions=[condition("PodScheduled", "False", "SchedulingGated")],
        )
        assert why(job(), held).code == "scheduling-gate"

    def test_a_gang_says_how_many_wait(self) -> None:
        running = pod("a", phase="Running", node="n1")
        found = why(job(), running, pod("b", conditions=unschedulable(NODES_3 + "3 Insufficient nvidia.com/gpu.")))
        assert "1 of 2 pods do not run" in found.evidence


class TestQueue:
    def test_others_use_the_quota_and_the_place_in_the_queue(self) -> None:
        text = f"{NO_FLAVOR}insufficient unused quota for nvidia.com/gpu in flavor h100, 8 more needed"
        mine = workload(condition("QuotaReserved", "False", "Pending", text))
        older = workload(condition("QuotaReserved", "False", "Pending", text), owner="o", name="older", ago=999)
        holder = workload(condition("QuotaReserved"), owner="h", name="holder", ago=9999)
        found = why(queued_job(), mine, older, holder, local_queue())
        assert (found.code, found.verdict) == ("quota-in-use", Verdict.WAIT)
        assert "8 more nvidia.com/gpu of flavor h100" in found.cause
        assert any(line.startswith("1 older") for line in found.evidence)

    @pytest.mark.parametrize(
        ("reason", "text", "code"),
        [
            (
                "Pending",
                NO_FLAVOR + "insufficient quota for nvidia.com/gpu in flavor h100, request (16) > maximum capacity (8)",
                "quota-too-small",
            ),
            ("ExceedsMaxQuota", "too much", "quota-too-small"),
            ("Inadmissible", "LocalQueue gpus doesn't exist", "queue-missing"),
            ("Inadmissible", "ClusterQueue cq is inactive", "queue-stopped"),
            ("Pending", "", "queued"),
        ],
    )
    def test_kueues_words(self, reason: str, text: str, code: str) -> None:
        mine = workload(condition("QuotaReserved", "False", reason, text))
        assert why(queued_job(), mine, local_queue()).code == code

    def test_a_queue_that_is_not_there(self) -> None:
        assert why(queued_job(), workload(), local_queue("other")).code == "queue-missing"

    def test_a_queue_on_hold(self) -> None:
        held = local_queue()
        held["spec"]["stopPolicy"] = "Hold"
        assert why(queued_job(), workload(), held).code == "queue-stopped"

    def test_kueue_took_its_place_away_without_a_disruption_target(self) -> None:
        evicted = condition("Evicted", "True", "Preempted", "Preempted to accommodate a higher priority Workload")
        found = why(
            queued_job(), workload(condition("QuotaReserved", "False", "Pending", "preempted"), evicted), local_queue()
        )
        assert found.code == "queue-preempted"
        assert any("higher priority" in line for line in found.evidence)

    def test_suspended_by_hand(self) -> None:
        found = why(job(suspend=True))
        assert (found.code, found.verdict) == ("suspended", Verdict.ACT)
        assert "kubectl patch job train -n ml" in found.fix

    def test_no_workload_for_it(self) -> None:
        assert why(queued_job()).code == "not-in-queue"
        observed = seen(queued_job())
        observed.unseen["workloads.kueue.x-k8s.io"] = "Kueue is not installed in this cluster"
        assert diagnose(observed, observed.of(JOBS)[0]).code == "no-kueue"

    reserved = condition("QuotaReserved")

    @pytest.mark.parametrize(
        ("conditions", "code", "verdict"),
        [
            (
                [condition("Accepted"), condition("Provisioned", "False", "WaitingForCapacity")],
                "waiting-for-capacity",
                Verdict.WAIT,
            ),
            ([condition("Accepted", ago=90_000), condition("Provisioned", "False")], "provisioning-stuck", Verdict.ACT),
            (
                [condition("Accepted"), condition("Failed", "True", "OutOfResources", "no resources")],
                "provisioning-failed",
                Verdict.ACT,
            ),
            ([condition("Provisioned"), condition("BookingExpired")], "booking-expired", Verdict.ACT),
            ([condition("Provisioned"), condition("CapacityRevoked")], "capacity-revoked", Verdict.ACT),
            ([], "provisioning-not-accepted", Verdict.ACT),
        ],
    )
    def test_the_request_for_machines(self, conditions: list[Any], code: str, verdict: Verdict) -> None:
        found = why(queued_job(), workload(self.reserved), request(*conditions), local_queue())
        assert (found.code, found.verdict) == (code, verdict)
        if code == "capacity-revoked":  # Kueue learns of it from the request
            assert "kubectl delete workload job-train-a1 -n ml" in found.fix
        elif verdict is Verdict.ACT and code != "provisioning-not-accepted":
            assert "kubectl delete provisioningrequest job-train-a1-prov-1 -n ml" in found.fix

    def test_a_request_that_kueue_repeats_by_itself(self) -> None:
        checks = [{"name": "prov", "state": "Retry", "message": "Retrying after failure: no resources"}]
        for status in ({"admissionChecks": checks}, {"requeueState": {"count": 2, "requeueAt": at(-240)}}):
            found = why(queued_job(), workload(self.reserved, **status), request(condition("Failed")), local_queue())
            assert (found.code, found.verdict) == ("provisioning-failed", Verdict.WAIT)
            assert "Kueue asks again" in found.cause
            assert "delete" not in found.fix

    def test_a_booking_that_has_expired_under_a_running_workload(self) -> None:
        rows = [condition("Accepted"), condition("Provisioned"), condition("BookingExpired")]
        observed = seen(queued_job(), workload(self.reserved, condition("Admitted")), request(*rows))
        assert diagnose(observed, observed.of(PROVISIONING_REQUESTS)[0]).code == "provisioned"

    def test_admission_checks(self) -> None:
        checks = [{"name": "prov", "state": "Retry", "message": "again"}]
        found = why(queued_job(), workload(self.reserved, admissionChecks=checks), local_queue())
        assert found.code == "admission-check"
        checks[0]["state"] = "Rejected"
        assert (
            why(queued_job(), workload(self.reserved, admissionChecks=checks), local_queue()).code
            == "admission-rejected"
        )


class TestCreation:
    @pytest.mark.parametrize(
        ("message", "code", "name"),
        [
            (
                'Error creating: pods "train-" is forbidden: no PriorityClass with name low was found',
                "priority-class-missing",
                "low",
            ),
            (
                'Error creating: pods "train-x" is forbidden: exceeded quota: gpus, requested: nvidia.com/gpu=8',
                "namespace-quota",
                "gpus",
            ),
            (
                'Error creating: pods "t" is forbidden: violates PodSecurity "restricted:latest": allowPrivilege',
                "pod-security",
                "restricted",
            ),
            (
                'Error creating: pods "t" is forbidden: error looking up: serviceaccount "trainer" not found',
                "service-account-missing",
                "trainer",
            ),
            (
                'Error creating: admission webhook "policy.example.org" denied the request: no',
                "admission-webhook",
                "policy.example.org",
            ),
            ("Error creating: a new sort of refusal", "pods-refused", ""),
        ],
    )
    def test_pods_that_the_server_refuses(self, message: str, code: str, name: str) -> None:
        root = job()
        found = why(root, event(root, "FailedCreate", message))
        assert found.code == code
        assert name in found.cause

    def test_nothing_at_all(self) -> None:
        assert why(job()).code == "no-pods"
        assert why(job(ago=5)).code == "just-created"

    def test_an_interrupted_attempt_and_the_pause_before_the_next(self) -> None:
        found = why(job(), interrupted("a", ago=300), interrupted("b", ago=100), interrupted("c", ago=15))
        assert (found.code, found.verdict) == ("waiting-for-replacement", Verdict.WAIT)
        assert "40 s after" in found.cause
        assert "10 minutes" in found.usual_wait

    def test_a_refusal_from_before_the_last_attempt_is_history(self) -> None:
        root = job()
        old = event(root, "FailedCreate", "Error creating: exceeded quota: gpus", ago=500)
        assert why(root, old, interrupted("a", ago=15)).code == "waiting-for-replacement"
        new = event(root, "FailedCreate", "Error creating: exceeded quota: gpus", ago=5)
        assert why(root, new, interrupted("a", ago=15)).code == "namespace-quota"

    def test_a_replacement_that_does_not_come(self) -> None:
        assert why(job(), interrupted("a", ago=900)).code == "replacement-late"

    def test_the_job_waits_for_the_old_pod(self) -> None:
        old = pod(phase="Running", node="n1", metadata={"deletionTimestamp": at(-10), "deletionGracePeriodSeconds": 15})
        assert why(job(), old, node()).code == "draining"
        old["metadata"]["deletionTimestamp"] = at(600)
        assert why(job(), old, node()).code == "stuck-terminating"
        assert why(job(), old, node("other")).code == "node-lost"
        old["metadata"]["finalizers"] = ["batch.kubernetes.io/job-tracking", "example.org/hold"]
        found = why(job(), old, node())
        assert found.code == "finalizer"
        assert "example.org/hold" in found.cause


class TestContainers:
    @pytest.mark.parametrize(
        ("reason", "code"),
        [
            ("ErrImagePull", "image"),
            ("ImagePullBackOff", "image"),
            ("InvalidImageName", "image"),
            ("CreateContainerConfigError", "configuration"),
            ("CrashLoopBackOff", "crash-loop"),
            ("ContainerCreating", "starting"),
        ],
    )
    def test_waiting_containers(self, reason: str, code: str) -> None:
        phase = "Running" if reason == "CrashLoopBackOff" else "Pending"
        assert why(job(), pod(phase=phase, node="n1", containerStatuses=waiting(reason, "words"))).code == code

    def test_a_volume_that_another_node_holds(self) -> None:
        held = pod(node="n1", containerStatuses=waiting("ContainerCreating"))
        text = 'Multi-Attach error for volume "pvc-1" Volume is already used by pod(s) train-old'
        found = why(job(), held, event(held, "FailedAttachVolume", text))
        assert found.code == "volume"
        assert "another node" in found.fix

    def test_running(self) -> None:
        found = why(job(), pod(phase="Running", node="n1"))
        assert (found.code, found.verdict) == ("running", Verdict.FINE)

    def test_being_interrupted(self) -> None:
        target = condition("DisruptionTarget", "True", "EvictionByEvictionAPI", "Eviction API: evicting")
        assert why(job(), pod(phase="Running", node="n1", conditions=[target])).code == "being-interrupted"


class TestEndings:
    complete = {"conditions": [condition("Complete")], "succeeded": 1}

    def failed(self, reason: str) -> dict[str, Any]:
        return {"conditions": [condition("Failed", "True", reason, "words")]}

    def test_finished(self) -> None:
        found = why(job(status=self.complete), pod(phase="Succeeded", containerStatuses=ended(0, reason="Completed")))
        assert (found.code, found.verdict) == ("finished", Verdict.FINE)

    def test_succeeded_with_a_disruption_target_is_a_wrong_success(self) -> None:
        target = condition("DisruptionTarget", "True", "TerminationByKubelet")
        bad = pod(phase="Succeeded", conditions=[target], containerStatuses=ended(0, reason="Completed"))
        assert why(job(status=self.complete), bad).code == "wrong-success"

    def test_one_success_and_two_disrupted_workers_is_complete_too_early(self) -> None:
        root = job(status=self.complete, parallelism=3)
        del root["spec"]["completions"]
        good = pod("a", phase="Succeeded", containerStatuses=ended(0, reason="Completed"))
        found = why(root, good, interrupted("b"), interrupted("c"))
        assert found.code == "complete-too-early"
        assert "1 of 3" in found.cause

    @pytest.mark.parametrize(
        ("reason", "code"),
        [
            ("BackoffLimitExceeded", "backoff-limit"),
            ("DeadlineExceeded", "deadline"),
            ("PodFailurePolicy", "failure-policy"),
            ("FailedIndexes", "indexes-failed"),
            ("Novelty", "failed"),
        ],
    )
    def test_failed(self, reason: str, code: str) -> None:
        found = why(job(status=self.failed(reason)), pod(phase="Failed", containerStatuses=ended(1)))
        assert found.code == code
        assert "train-x Failed: exit 1" in found.evidence[1]

    def test_attempts_used_up_by_interruptions(self) -> None:
        found = why(job(status=self.failed("BackoffLimitExceeded")), interrupted("a"), interrupted("b"))
        assert found.code == "interruptions-counted"
        assert "podFailurePolicy" in found.fix

    def test_out_of_memory(self) -> None:
        bad = pod(phase="Failed", containerStatuses=ended(137, reason="OOMKilled"))
        assert why(job(status=self.failed("BackoffLimitExceeded")), bad).code == "out-of-memory"


class TestJobSets:
    def job_set(self, **status: Any) -> dict[str, Any]:
        found = job("gang", uid="js-1")
        return {**found, "kind": "JobSet", "apiVersion": "jobset.x-k8s.io/v1alpha2", "spec": {}, "status": status}

    def child(self, **more: Any) -> dict[str, Any]:
        found = job("gang-workers-0", **more)
        found["metadata"]["ownerReferences"] = [{"kind": "JobSet", "uid": "js-1"}]
        return found

    def test_without_jobs(self) -> None:
        assert why(self.job_set()).code == "jobset-without-jobs"

    def test_its_pods_answer(self) -> None:
        held = pod("g0", conditions=unschedulable(NODES_3 + "3 Insufficient nvidia.com/gpu."))
        assert why(self.job_set(), self.child(), held).code == "not-enough-resources"

    def test_completed(self) -> None:
        assert why(self.job_set(conditions=[condition("Completed")]), self.child()).code == "finished"


def test_a_budget_that_blocks_drains_is_mentioned() -> None:
    text = "jobs.batch does not implement the scale subresource"
    budget = {
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "pdb", "namespace": "ml"},
        "spec": {"selector": {"matchLabels": {"stayfast.dev/run": "train"}}, "maxUnavailable": 1},
        "status": {"conditions": [condition("DisruptionAllowed", "False", "SyncFailed", text)]},
    }
    found = why(job(), pod(phase="Running", node="n1"), budget)
    assert "SF701" in found.also[0]
    budget["status"]["conditions"][0]["reason"] = "InsufficientPods"  # type: ignore[index]
    assert why(job(), pod(phase="Running", node="n1"), budget).also == ()
    found = why(job(), pod(phase="Running", node="n1"), budget, node(spec={"unschedulable": True}))
    assert "the drain of n1 waits" in found.also[0]


class TestEnds:
    def report(self, **more: Any) -> str:
        return json.dumps({"outcome": "interrupted", "code": 75, "cause": "preemption", "step": 41, **more})

    @pytest.mark.parametrize(
        ("ended_pod", "outcome", "cause"),
        [
            (interrupted("a", "TerminationByKubelet"), Outcome.INTERRUPTED, Cause.PREEMPTION),
            (interrupted("a", "DeletionByPodGC"), Outcome.INTERRUPTED, Cause.PREEMPTION),
            (interrupted("a", "EvictionByEvictionAPI", code=143), Outcome.INTERRUPTED, Cause.EVICTION),
            (interrupted("a", "PreemptionByScheduler", code=137), Outcome.INTERRUPTED, Cause.EVICTION),
            (interrupted("a", "DeletionByTaintManager", code=0), Outcome.INTERRUPTED, Cause.EVICTION),
            (
                interrupted("a", "TerminationByKubelet", selector={"cloud.google.com/gke-flex-start": "true"}),
                Outcome.INTERRUPTED,
                Cause.MAINTENANCE,
            ),
            (
                interrupted(
                    "a",
                    "TerminationByKubelet",
                    selector={"cloud.google.com/gke-flex-start": "true"},
                    metadata={"annotations": {"stayfast.dev/lease-ends-at": at(100)}},
                ),
                Outcome.INTERRUPTED,
                Cause.RUN_LIMIT,
            ),
            (pod(phase="Failed", reason="Terminated", selector=SPOT), Outcome.INTERRUPTED, Cause.PREEMPTION),
            (pod(phase="Failed", reason="NodeShutdown"), Outcome.INTERRUPTED, Cause.UNKNOWN),
            (
                pod(phase="Failed", reason="Evicted", message="The node was low on resource: memory."),
                Outcome.INTERRUPTED,
                Cause.EVICTION,
            ),
            (pod(phase="Failed", containerStatuses=ended(75)), Outcome.INTERRUPTED, Cause.UNKNOWN),
            (
                pod(phase="Failed", containerStatuses=ended(143), metadata={"deletionTimestamp": at(5)}),
                Outcome.INTERRUPTED,
                Cause.UNKNOWN,
            ),
            (pod(phase="Failed", containerStatuses=ended(143)), Outcome.FAILED, None),
            (pod(phase="Failed", containerStatuses=ended(247)), Outcome.LOST, Cause.UNKNOWN),
            (pod(phase="Failed", containerStatuses=ended(137, reason="OOMKilled")), Outcome.FAILED, None),
            (pod(phase="Failed", containerStatuses=ended(1)), Outcome.FAILED, None),
            (pod(phase="Failed"), Outcome.FAILED, None),
        ],
    )
    def test_every_way_to_end(self, ended_pod: dict[str, Any], outcome: Outcome, cause: Cause | None) -> None:
        end = ending_of(ended_pod)
        assert end is not None
        assert (end.outcome, end.cause) == (outcome, cause)

    def test_our_own_report_is_believed_over_an_exit_code(self) -> None:
        end = ending_of(pod(phase="Failed", containerStatuses=ended(1, message=self.report(cause="run-limit"))))
        assert end is not None
        assert (end.outcome, end.cause, end.report and end.report["step"]) == (Outcome.INTERRUPTED, Cause.RUN_LIMIT, 41)

    @pytest.mark.parametrize("message", ["{", '{"a":1}', "[" * 100_000, '{"outcome": 7}', "null"])
    def test_other_messages_are_ignored(self, message: str) -> None:
        end = ending_of(pod(phase="Failed", containerStatuses=ended(1, message=message)))
        assert end is not None
        assert end.outcome is Outcome.FAILED

    def test_a_pod_that_lives_has_no_end(self) -> None:
        assert ending_of(pod(phase="Running")) is None


@pytest.mark.parametrize(
    "junk", [{}, {"status": None}, {"status": {"conditions": "x"}}, {"metadata": None}, {"spec": []}]
)
def test_objects_that_make_no_sense_are_no_crash(junk: dict[str, Any]) -> None:
    for kind, resource in TABLES.items():
        observed = seen(job(), pod(), event(job(), "FailedCreate", "x"))
        strange = {"kind": kind, "metadata": {"name": "train", "namespace": "ml"}, **junk}
        observed.add(resource, strange)
        for root in observed.of(resource):
            diagnose(observed, root)
