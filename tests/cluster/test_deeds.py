"""What ``watch --act`` does to a cluster: each action alone, twice, cut off midway, and beside a second watch."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from cluster.scenarios import (
    NOW,
    TEMPLATE,
    at,
    classes_map,
    condition,
    ended,
    job,
    node,
    numbered,
    pod,
    queued_job,
    request,
    stopped,
    workers,
    workload,
)
from servers.api_server import ApiServer, Fault
from stayfast.clock import ManualClock, from_rfc3339
from stayfast.cluster.kubernetes.client import Client
from stayfast.cluster.kubernetes.resources import (
    CONFIG_MAPS,
    JOB_SETS,
    JOBS,
    NODES,
    PODS,
    PROVISIONING_REQUESTS,
    WORKLOADS,
)
from stayfast.cluster.observed.runs import summarize
from stayfast.cluster.observed.snapshot import Snapshot, take_snapshot
from stayfast.cluster.watch.actions.action import ACTIONS, find_actions, plan_actions
from stayfast.cluster.watch.alert_store import AlertState
from stayfast.cluster.watch.alerts import Thresholds, find_alerts
from stayfast.cluster.watch.manifests import WATCHED
from stayfast.cluster.watch.watcher import Watcher, WatchOptions
from stayfast.model.labels import (
    CLASS_NUMBER,
    FALLING_BACK,
    REACTIVATED_AT,
    REACTIVATIONS,
    REQUEUED_LEASE,
    RUN_LABEL,
    SPLIT_AT,
)

LIMITS = Thresholds(pending_seconds={"spot": 900.0}, pending_other_seconds=1800.0)
WORLD = {"Job": JOBS, "JobSet": JOB_SETS, "Pod": PODS, "Workload": WORKLOADS, "ConfigMap": CONFIG_MAPS, "Node": NODES,
         "ProvisioningRequest": PROVISIONING_REQUESTS}  # fmt: skip


def put(server: ApiServer, *values: dict[str, Any]) -> None:
    for value in values:
        server.add(WORLD[value["kind"]], value, "ml")


class Hand:
    """A watch that looks when it is told to; another one is another process."""

    def __init__(self, client: Client, *actions: str, dry_run: bool = False) -> None:
        self.client = client
        duties = WatchOptions(thresholds=LIMITS, actions=set(actions), dry_run=dry_run)
        self.man = Watcher(client, AlertState(), duties, clock=ManualClock(wall=NOW))

    def observe(self, now: float = NOW) -> Snapshot:
        return take_snapshot(self.client, None, WATCHED, now=now, labels=RUN_LABEL)

    def look(self, now: float = NOW) -> list[tuple[str, str]]:
        return self.act_on(self.observe(now))

    def act_on(self, observed: Snapshot) -> list[tuple[str, str]]:
        return [(deed.action, result) for deed, result in self.man.look(observed)[0].deeds]


@pytest.fixture
def hand(client: Client) -> Callable[..., Hand]:
    return lambda *actions, **more: Hand(client, *actions, **more)


def stored(server: ApiServer, kind: str, name: str) -> dict[str, Any]:
    return server.objects.table(WORLD[kind])["ml", name]


# -- reactivate-workload


REVOKED = request(condition("Accepted"), condition("Provisioned"), condition("CapacityRevoked"))


def taken_back() -> list[dict[str, Any]]:
    """As Kueue 0.19.2 leaves it: no request any more, GKE's words in the reason."""
    found = stopped("DeactivatedDueToAdmissionCheck")
    found["status"]["conditions"][0]["message"] = (
        'The workload is deactivated due to AdmissionCheck in Rejected state: "prov" (Capacity provisioned for the '
        "Provisioning Request was reclaimed and is no longer available in the cluster.)"
    )
    return [found]


def marked(root: dict[str, Any], count: str, *, ago: float) -> dict[str, Any]:
    root["metadata"]["annotations"] = {REACTIVATIONS: count, REACTIVATED_AT: at(ago)}
    return root


class TestReactivate:
    def test_machines_that_were_taken_back_mean_the_next_lease(self, server: ApiServer, hand: Any) -> None:
        """Kueue 0.19 leaves a workload out that is only made active again; it makes a new one for a deleted one."""
        put(server, queued_job(template=TEMPLATE), stopped("DeactivatedDueToAdmissionCheck"), REVOKED)
        man = hand("reactivate-workload")
        assert man.look() == [("reactivate-workload", "done")]
        assert server.objects.table(WORKLOADS) == {}
        marks = stored(server, "Job", "train")["metadata"]["annotations"]
        assert marks[REACTIVATIONS] == "1"
        assert from_rfc3339(marks[REACTIVATED_AT]) == NOW
        assert man.look() == hand("reactivate-workload").look() == []

    def test_kueue_has_deleted_the_request_with_the_workload_that_it_stopped(
        self, server: ApiServer, hand: Any
    ) -> None:
        put(server, queued_job(template=TEMPLATE), *taken_back())
        man = hand("reactivate-workload")
        [alert] = [alert for alert in find_alerts(man.observe(), LIMITS) if alert.code != "pending"]
        assert (alert.code, alert.run) == ("capacity-revoked", "train")
        assert "was reclaimed" in alert.evidence
        assert man.look() == [("reactivate-workload", "done")]
        assert server.objects.table(WORKLOADS) == {}

    @pytest.mark.parametrize(
        ("reason", "more", "acts"),
        [
            ("DeactivatedDueToRequeuingLimitExceeded", [], True),
            ("DeactivatedDueToMaximumExecutionTimeExceeded", [], True),
            ("DeactivatedDueToAdmissionCheck", [], False),  # some other check said no
            ("DeactivatedDueToAdmissionCheck", [request(condition("Accepted"))], False),
            ("DeactivatedDueToAdmissionCheck", [request(condition("Failed"))], True),
            ("Deactivated", [REVOKED], False),  # a person
            ("InactiveWorkload", [REVOKED], False),
            ("Preempted", [REVOKED], False),
            ("AdmissionCheck", [REVOKED], False),  # a person, while Kueue tried again
            ("DeactivatedDueToAdmissionCheck", [REVOKED, pod(phase="Running", node="n1")], False),  # still saving
        ],
    )
    def test_only_what_kueue_stopped_and_what_passes(
        self, server: ApiServer, hand: Any, reason: str, more: list[Any], acts: bool
    ) -> None:
        put(server, queued_job(template=TEMPLATE), stopped(reason), *more)
        assert bool(hand("reactivate-workload").look()) is acts

    def test_a_workload_of_somebody_else_is_left_alone(self, server: ApiServer, hand: Any) -> None:
        put(server, stopped("DeactivatedDueToAdmissionCheck"), REVOKED)
        assert hand("reactivate-workload").look() == []

    def test_each_time_it_waits_longer_and_a_good_day_is_forgiven(self, server: ApiServer, hand: Any) -> None:
        reason = "DeactivatedDueToRequeuingLimitExceeded"
        put(server, marked(queued_job(template=TEMPLATE), "4", ago=5000), stopped(reason, ago=4700))
        man = hand("reactivate-workload")
        assert man.look() == []  # 5 min, 10, 20, 40, then 80
        assert man.look(NOW + 101) == [("reactivate-workload", "done")]
        assert stored(server, "Job", "train")["metadata"]["annotations"][REACTIVATIONS] == "5"
        put(server, marked(queued_job(template=TEMPLATE), "9", ago=90_000), stopped(reason, ago=301))
        assert hand("reactivate-workload").look() == [("reactivate-workload", "done")]

    def test_two_watches_count_once(self, server: ApiServer, client: Client) -> None:
        put(server, queued_job(template=TEMPLATE), *taken_back())
        one, other = Hand(client, "reactivate-workload"), Hand(client, "reactivate-workload")
        first, second = one.observe(), other.observe()
        [(_, result)], [(_, refused)] = one.act_on(first), other.act_on(second)
        assert result == "done"
        assert "somebody else was faster" in refused
        assert stored(server, "Job", "train")["metadata"]["annotations"][REACTIVATIONS] == "1"

    @pytest.mark.parametrize("count", ["-1", "x", "9" * 50, "١"])
    def test_marks_that_somebody_else_wrote(self, count: str) -> None:
        found = stopped("DeactivatedDueToRequeuingLimitExceeded", ago=1e6)
        observed = Snapshot(NOW).add(WORKLOADS, found).add(JOBS, marked(queued_job(template=TEMPLATE), count, ago=10))
        assert len(plan_actions(observed, {"reactivate-workload"})) == 1


# -- recreate-request


QUOTA = condition("QuotaReserved", ago=3600)
EXPIRED = (condition("Accepted"), condition("Provisioned"), condition("BookingExpired", ago=3000))
FAILED = condition("Failed", reason="OutOfResources", ago=3000)
CONSUMED = "autoscaling.x-k8s.io/consume-provisioning-request"


def gang(*, node: str = "n1", phase: str = "Running", **more: Any) -> list[dict[str, Any]]:
    """A JobSet of two pods."""
    root = {**queued_job(uid="js-1"), "kind": "JobSet", "spec": {"suspend": False}}
    child = job("train-node-0", uid="js-job", parallelism=2)
    child["metadata"]["ownerReferences"] = [{"kind": "JobSet", "uid": "js-1"}]
    return [root, child, *(pod(name, owner="js-job", node=node, phase=phase, **more) for name in ("p0", "p1"))]


class TestRecreate:
    @pytest.mark.parametrize("phase", ["Running", "Pending"])
    @pytest.mark.parametrize("rows", [EXPIRED, (*EXPIRED[:2], FAILED), (condition("Accepted", ago=90_000),)])
    def test_the_request_of_an_admitted_workload_is_left_alone(
        self, server: ApiServer, hand: Any, phase: str, rows: tuple[Any, ...]
    ) -> None:
        """GKE sets BookingExpired some 10 minutes after the machines came, on healthy requests too."""
        admitted = workload(QUOTA, condition("Admitted", ago=3000), owner="js-1")
        put(server, *gang(phase=phase), admitted, request(*rows))
        man = hand("recreate-request")
        assert man.look() == []
        assert [alert.code for alert in find_alerts(man.observe(), LIMITS)] == []
        assert {verb for verb, _ in server.used} == {"list"}

    @pytest.mark.parametrize("labels", [{}, {"metadata": {"annotations": {CONSUMED: "job-train-a1-prov-1"}}}])
    def test_nor_that_of_pods_that_have_machines(self, server: ApiServer, hand: Any, labels: Any) -> None:
        """Kueue is just putting the workload out, or back in: its pods have not gone yet."""
        put(server, *gang(**labels), workload(QUOTA, owner="js-1"), request(*EXPIRED))
        man = hand("recreate-request")
        assert man.look() == []
        assert bool(find_alerts(man.observe(), LIMITS)) is not bool(labels)  # the pods that say which request is theirs

    @pytest.mark.parametrize(
        "workload_now",
        [
            workload(QUOTA, admissionChecks=[{"name": "prov", "state": "Retry", "requeueAfterSeconds": 60}]),
            workload(QUOTA, requeueState={"count": 1, "requeueAt": at(-60)}),
            workload(QUOTA, admissionChecks=[{"name": "prov", "state": "Rejected"}]),
            workload(condition("QuotaReserved", "False"), condition("Evicted", reason="AdmissionCheck")),
            workload(QUOTA, condition("Evicted", reason="AdmissionCheck")),
            workload(QUOTA, condition("Finished")),
            workload(),
            stopped("DeactivatedDueToAdmissionCheck"),
            workload(QUOTA, owner="somebody-else"),
            workload(QUOTA, name="another"),
        ],
        ids=["retry", "requeue", "rejected", "out", "going", "done", "new", "inactive", "not a run", "no owner"],
    )
    def test_only_a_request_that_kueue_waits_for(self, server: ApiServer, hand: Any, workload_now: Any) -> None:
        put(server, queued_job(), workload_now, request(condition("Accepted"), FAILED))
        assert hand("recreate-request").look() == []

    def test_a_failed_request_that_kueue_has_left_alone(self, server: ApiServer, hand: Any) -> None:
        put(server, queued_job(), workload(QUOTA), request(condition("Accepted"), FAILED))
        assert hand("recreate-request").look() == [("recreate-request", "done")]
        assert server.objects.table(PROVISIONING_REQUESTS) == {}

    def test_each_pause_is_twice_the_last_whatever_watch_looks(self, server: ApiServer, client: Client) -> None:
        """The autoscaler fails at once, and every look is the first one of a new watch."""
        put(server, queued_job(), workload(condition("QuotaReserved", ago=0)))
        put(server, request(condition("Failed", ago=0), ago=0))
        deleted: list[float] = []
        for second in range(0, 10_000, 100):
            if Hand(client, "recreate-request").look(NOW + second):
                deleted.append(second)
                put(server, request(condition("Failed", ago=-second), ago=-second))
        assert deleted == [300, 600, 1200, 2400, 4800, 9600]

    def test_a_request_that_changed_meanwhile_stays(self, server: ApiServer, hand: Any) -> None:
        put(server, queued_job(), workload(QUOTA), request(condition("Accepted", ago=90_000)))
        man = hand("recreate-request")
        seen = man.observe()
        provisioned = {"status": {"conditions": [condition("Provisioned")]}}
        server.objects.merge(PROVISIONING_REQUESTS, "ml", "job-train-a1-prov-1", provisioned, {})
        [(_, result)] = man.act_on(seen)
        assert "somebody else was faster" in result
        assert man.look() == []

    def test_pods_that_cannot_be_seen_are_not_taken_for_gone(self, server: ApiServer, hand: Any) -> None:
        put(server, queued_job(), workload(QUOTA), request(FAILED))
        server.allowed = {("list", kind.title) for kind in (JOBS, WORKLOADS, PROVISIONING_REQUESTS)}
        assert hand("recreate-request").look() == []


def test_requests_that_fail_one_after_the_other_are_one_alert(server: ApiServer, hand: Any) -> None:
    man = hand()
    begun = []
    for number in range(5):
        again = request(FAILED)
        again["metadata"] |= {"name": f"prov-{number}", "uid": f"pr-{number}"}
        put(server, queued_job(), workload(QUOTA), again)
        begun += man.man.look(man.observe(NOW + number))[0].news.begun
        server.objects.delete(PROVISIONING_REQUESTS, "ml", f"prov-{number}", None)
    assert [alert.code for alert in begun if alert.code != "pending"] == ["provisioning-failed"]


# -- requeue-lease


def leased(*, left: bool, ends_in: float = 600.0, cause: str = "run-limit") -> list[dict[str, Any]]:
    """A queued run on a machine that ends soon; its pod has saved and left, or not."""
    message = json.dumps({"outcome": "interrupted", "cause": cause, "code": 75, "step": 9})
    ending = node(metadata={"annotations": {"node.gke.io/machine-termination-datetime": at(-ends_in)}})
    admitted = workload(condition("QuotaReserved"), condition("Admitted"))
    admitted["spec"]["active"] = True
    pods = [pod("first", phase="Failed" if left else "Running", node="n1")]
    if left:
        pods[0]["status"]["containerStatuses"] = ended(75, message=message)
        pods.append(pod("second", node="n1", ago=5))
    return [{**queued_job(), "spec": {"parallelism": 1, "suspend": False}}, admitted, ending, *pods]


class TestRequeue:
    def test_out_of_the_lease_and_into_the_queue_over_a_restart(self, server: ApiServer, hand: Any) -> None:
        put(server, *leased(left=True))
        assert hand("requeue-lease", dry_run=True).look() == [("requeue-lease", "would be done")]
        man = hand("requeue-lease")
        assert man.look() == [("requeue-lease", "done")]
        found = stored(server, "Workload", "job-train-a1")
        assert found["spec"]["active"] is False
        assert found["metadata"]["annotations"][REQUEUED_LEASE] == at(-600)
        assert man.look() == hand("requeue-lease").look() == []  # Kueue has not taken it yet
        rows = [condition("Evicted", reason="Deactivated"), condition("QuotaReserved", "False")]
        server.objects.merge(WORKLOADS, "ml", "job-train-a1", {"status": {"conditions": rows}}, {})
        assert hand("requeue-lease").look() == [("requeue-lease", "done")]  # a watch that was not there before
        assert stored(server, "Workload", "job-train-a1")["spec"]["active"] is True
        assert man.look() == []

    def test_nobody_who_has_not_saved_is_touched(self, server: ApiServer, hand: Any) -> None:
        put(server, *leased(left=False))
        assert hand("requeue-lease").look() == []

    @pytest.mark.parametrize(("ends_in", "cause"), [(7200.0, "run-limit"), (-7200.0, "run-limit"), (600.0, "eviction")])
    def test_nor_one_that_left_for_another_reason(
        self, server: ApiServer, hand: Any, ends_in: float, cause: str
    ) -> None:
        *objects, _ = leased(left=True, ends_in=ends_in, cause=cause)  # without the successor, which tells by itself
        put(server, *objects)
        assert hand("requeue-lease").look() == []

    @pytest.mark.parametrize(("age", "ends_in", "acts"), [(60, 600, True), (60, 1200, False), (1200, 600, False)])
    def test_a_life_that_began_on_a_machine_with_minutes_left(
        self, server: ApiServer, hand: Any, age: float, ends_in: float, acts: bool
    ) -> None:
        """A JobSet has deleted the pods that left: only their successors are there."""
        objects = leased(left=False, ends_in=ends_in)
        objects[-1]["metadata"]["creationTimestamp"] = at(age)
        put(server, *objects)
        assert bool(hand("requeue-lease").look()) is acts

    @pytest.mark.parametrize("left", [True, False])
    def test_a_worker_that_has_not_left_is_waited_for(self, server: ApiServer, hand: Any, left: bool) -> None:
        """Kueue ends all pods of the workload and deletes its request."""
        objects = leased(left=left)
        objects[-1]["metadata"]["creationTimestamp"] = at(4)  # the next life of the worker that left
        put(server, *objects, pod("third", phase="Running", node="n1", ago=5000))
        man = hand("requeue-lease")
        assert man.look() == []
        message = {"outcome": "interrupted", "cause": "run-limit", "code": 75, "step": 9}
        gone = {"phase": "Failed", "containerStatuses": ended(75, message=json.dumps(message), ago=1)}
        server.objects.merge(PODS, "ml", "third", {"status": gone}, {})
        assert man.look() == [("requeue-lease", "done")]

    def test_without_a_queue_there_is_nothing_to_do(self, server: ApiServer, hand: Any) -> None:
        put(server, *(item for item in leased(left=True) if item["kind"] != "Workload"))
        assert hand("requeue-lease").look() == []


# -- split-parallelism


class TestSplit:
    def test_no_more_at_a_time_than_have_machines(self, server: ApiServer, hand: Any) -> None:
        put(server, *workers())
        man = hand("split-parallelism")
        assert man.look() == [("split-parallelism", "done")]
        found = stored(server, "Job", "train")
        assert (found["spec"]["parallelism"], found["spec"]["completions"]) == (2, 4)
        assert from_rfc3339(found["metadata"]["annotations"][SPLIT_AT]) == NOW
        assert man.look() == hand("split-parallelism").look() == []  # the waiting pods are still there for a moment

    def test_not_again_before_the_limit_has_passed_again(self, server: ApiServer, hand: Any) -> None:
        put(server, *workers(4, running=2, waiting=2))
        hand("split-parallelism").look()
        server.objects.delete(PODS, "ml", "r0", None)
        assert hand("split-parallelism").look(NOW + 1000) == []
        assert hand("split-parallelism").look(NOW + 2000) == [("split-parallelism", "done")]
        assert stored(server, "Job", "train")["spec"]["parallelism"] == 1

    @pytest.mark.parametrize(
        "objects",
        [
            workers(running=0, waiting=4),  # nothing runs: fewer would not come sooner
            workers(1, running=0, waiting=1),
            workers(running=4, waiting=0),
            workers(labels={"kueue.x-k8s.io/queue-name": "gpus"}),  # admitted as it is
            [job(parallelism=4), *workers()[1:]],  # says nothing about being coupled
            [*workers()[:3], pod("w0", ago=60)],
        ],
        ids=["none", "one", "all", "queued", "gang", "young"],
    )
    def test_left_alone(self, server: ApiServer, hand: Any, objects: list[Any]) -> None:
        put(server, *objects)
        assert hand("split-parallelism").look() == []

    def test_an_all_or_nothing_request_is_halved(self, server: ApiServer, hand: Any) -> None:
        queue = {"kueue.x-k8s.io/queue-name": "gpus"}
        put(
            server,
            workers(9, labels=queue, suspend=True)[0],
            workload(condition("QuotaReserved")),
            request(condition("Accepted", ago=5000)),
        )
        assert hand("split-parallelism").look() == [("split-parallelism", "done")]
        assert stored(server, "Job", "train")["spec"]["parallelism"] == 4

    def test_a_job_that_changed_meanwhile_is_looked_at_again(self, server: ApiServer, hand: Any) -> None:
        put(server, *workers())
        man = hand("split-parallelism")
        seen = man.observe()
        server.objects.merge(JOBS, "ml", "train", {"spec": {"parallelism": 3}}, {})
        [(_, result)] = man.act_on(seen)
        assert result.startswith("failed: ")
        assert "somebody else was faster" in result
        assert stored(server, "Job", "train")["spec"]["parallelism"] == 3
        assert man.look() == [("split-parallelism", "done")]


# -- fall-back


WAITING = [job(), pod(ago=4000)]


class TestFallBack:
    def test_the_next_class_takes_its_place(self, server: ApiServer, hand: Any) -> None:
        put(server, *WAITING, classes_map(numbered()))
        assert hand("fall-back", dry_run=True).look() == [("fall-back", "would be done")]
        before = stored(server, "Job", "train")["metadata"]["uid"]
        man = hand("fall-back")
        assert man.look() == [("fall-back", "done")]
        assert ("ml", "train") not in server.objects.table(JOBS)
        assert man.look() == [("fall-back", "done")]
        found = stored(server, "Job", "train")
        assert found["metadata"]["uid"] != before
        assert found["metadata"]["annotations"][CLASS_NUMBER] == "1"
        assert FALLING_BACK not in stored(server, "ConfigMap", "train-classes")["metadata"]["annotations"]
        assert man.look() == hand("fall-back").look() == []
        [row] = summarize(man.observe())
        assert (row.capacity, row.usd_per_hour) == ("on-demand", 9.0)
        # The last class of the plan: nothing is left to fall back to.
        assert man.look(NOW + 1e6) == []

    @pytest.mark.parametrize("cut", [0, 1, 2, 3])
    def test_a_watch_that_dies_anywhere_is_continued(self, server: ApiServer, client: Client, cut: int) -> None:
        """The requests are: note, delete, create, forget; the process dies before the one with this number."""
        put(server, *WAITING, classes_map(numbered()))
        done = 0
        real = Client._send

        def dying(self: Client, method: str, *arguments: Any, **more: Any) -> Any:
            nonlocal done
            if method != "GET":
                if done == cut:
                    raise KeyboardInterrupt
                done += 1
            return real(self, method, *arguments, **more)

        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(Client, "_send", dying)
            with pytest.raises(KeyboardInterrupt):
                for _ in range(3):
                    Hand(client, "fall-back").look()
        for _ in range(4):
            Hand(client, "fall-back").look()
        assert stored(server, "Job", "train")["metadata"]["annotations"][CLASS_NUMBER] == "1"
        assert FALLING_BACK not in stored(server, "ConfigMap", "train-classes")["metadata"]["annotations"]
        created = [path for method, path, _ in server.seen if method == "POST"]
        assert len(created) == 1

    def test_two_watches_make_one_run(self, server: ApiServer, client: Client) -> None:
        put(server, *WAITING, classes_map(numbered()))
        one, other = Hand(client, "fall-back"), Hand(client, "fall-back")
        for _ in range(3):
            first, second = one.observe(), other.observe()
            results = [*one.act_on(first), *other.act_on(second)]
            assert sum(result == "done" for _, result in results) <= 1
        assert stored(server, "Job", "train")["metadata"]["annotations"][CLASS_NUMBER] == "1"
        assert len([path for method, path, _ in server.seen if method == "DELETE" and "/jobs/" in path]) == 1

    @pytest.mark.parametrize(
        "objects",
        [
            [job(), pod(ago=1000)],  # longer than the alert's limit, not twice
            [job(parallelism=2), pod(ago=4000), pod("b", phase="Running", node="n1", ago=4000)],
            [job(), pod(ago=4000, node="n1")],  # it has its machine and pulls the image
            [job(), pod(ago=4000, node="n1", metadata={"deletionTimestamp": at(1)}), pod("b", ago=4000)],
            [job(status={"conditions": [condition("Failed")]})],
            [
                queued_job(ago=9999),
                workload(condition("QuotaReserved", "False", message="insufficient unused quota")),
            ],
        ],
        ids=["early", "half", "starting", "draining", "failed", "quota"],
    )
    def test_left_alone(self, server: ApiServer, hand: Any, objects: list[Any]) -> None:
        put(server, *objects, classes_map(numbered()))
        assert hand("fall-back").look() == []
        assert {verb for verb, _ in server.used} == {"list"}

    def test_a_queued_gang_whose_machines_do_not_come(self, server: ApiServer, hand: Any) -> None:
        gang = {**queued_job(ago=99_999), "kind": "JobSet"}
        wl = workload(condition("QuotaReserved"))
        put(
            server, gang, wl, request(condition("Accepted", ago=50_000), ago=50_000), classes_map(numbered(1, "JobSet"))
        )
        man = hand("fall-back")
        assert [man.look(), man.look()] == [[("fall-back", "done")]] * 2
        assert stored(server, "JobSet", "train")["spec"] == {"replicatedJobs": []}

    def test_a_pod_that_still_writes_is_waited_for(self, server: ApiServer, hand: Any) -> None:
        put(server, classes_map(numbered(), **{FALLING_BACK: "1"}), pod(phase="Running", node="n1"))
        man = hand("fall-back")
        assert man.look() == []
        server.objects.delete(PODS, "ml", "train-x", None)
        assert man.look() == [("fall-back", "done")]

    def test_an_intention_that_is_out_of_date_is_forgotten(self, server: ApiServer, hand: Any) -> None:
        put(server, job(), pod(phase="Running", node="n1"), classes_map(numbered(), **{FALLING_BACK: "1"}))
        assert hand("fall-back").look() == [("fall-back", "done")]
        assert FALLING_BACK not in stored(server, "ConfigMap", "train-classes")["metadata"]["annotations"]
        assert ("ml", "train") in server.objects.table(JOBS)

    def test_jobs_that_cannot_be_seen_are_not_taken_for_gone(self, server: ApiServer, hand: Any) -> None:
        put(server, job(), classes_map(numbered(), **{FALLING_BACK: "1"}))
        server.allowed = {("list", title) for title in ("pods", "configmaps")} | {("create", "jobs.batch")}
        assert hand("fall-back").look() == []

    @pytest.mark.parametrize(
        "item",
        [
            {**numbered(), "kind": "Secret"},
            {**numbered(), "metadata": {**numbered()["metadata"], "namespace": "kube-system"}},
            {**numbered(), "metadata": {**numbered()["metadata"], "labels": {RUN_LABEL: "other"}}},
            numbered(name="other"),
            [],
            None,
        ],
    )
    def test_a_config_map_cannot_make_it_write_elsewhere(self, server: ApiServer, hand: Any, item: Any) -> None:
        put(server, *WAITING, classes_map(item))
        man = hand("fall-back")
        assert man.look() == []
        put(server, classes_map(item, **{FALLING_BACK: "1"}))
        server.objects.delete(JOBS, "ml", "train", None)
        man.look()
        assert not [path for method, path, _ in server.seen if method == "POST"]

    def test_a_refusal_is_told_less_and_less_often(self, server: ApiServer, hand: Any) -> None:
        put(server, *WAITING, classes_map(numbered()))
        server.allowed = {("list", title) for title in ("pods", "configmaps", "jobs.batch")}
        man = hand("fall-back")
        told = [bool(man.look(NOW + second)) for second in range(0, 600, 20)]
        assert told[:2] == [True, True]
        assert sum(told) < 8


# -- all of them


def running_gang(kind: str, *, ago: float, state: str, rows: tuple[Any, ...]) -> list[dict[str, Any]]:
    """All pods of a gang run, on a machine that ends in 10 minutes, and a plan has a class to fall back to."""
    root, child, *pods = gang(ago=ago)
    if kind == "Job":
        root, child = {**root, "kind": "Job"}, {**child, "metadata": {**child["metadata"], "ownerReferences": []}}
        for each in pods:
            each["metadata"]["ownerReferences"] = [{"kind": "Job", "uid": root["metadata"]["uid"], "controller": True}]
    of_kueue = {
        "admitted": lambda: workload(QUOTA, condition("Admitted", ago=3000)),
        "waiting": lambda: workload(QUOTA),  # as seen, for a moment, while the pods go or come
        "stopped": lambda: stopped("DeactivatedDueToAdmissionCheck", ago=30_000),
    }[state]()
    of_kueue["metadata"]["ownerReferences"] = [{"kind": kind, "uid": "js-1"}]
    ending = node(metadata={"annotations": {"node.gke.io/machine-termination-datetime": at(-600)}})
    return [root, child, *pods, of_kueue, ending, request(*rows, ago=90_000), classes_map(numbered(1, kind))]


REQUESTS = {
    "expired": EXPIRED,
    "failed": (*EXPIRED[:2], FAILED),
    "revoked": (*EXPIRED[:2], condition("CapacityRevoked", ago=50_000)),
    "stuck": (condition("Accepted", ago=90_000),),
}


def all_but_pods(server: ApiServer) -> str:
    return json.dumps([list(server.objects.table(kind).values()) for kind in WORLD.values() if kind is not PODS])


@pytest.mark.parametrize(
    "actions", [*([name] for name in ACTIONS.names()), list(ACTIONS.names())], ids=[*ACTIONS.names(), "all"]
)
@pytest.mark.parametrize("rows", REQUESTS)
@pytest.mark.parametrize("state", ["admitted", "waiting", "stopped"])
@pytest.mark.parametrize("kind", ["JobSet", "Job"])
def test_no_action_touches_the_request_of_a_gang_that_runs(
    server: ApiServer, hand: Any, kind: str, state: str, rows: str, actions: list[str]
) -> None:
    """Nor anything else of it: the pods learn when their machine ends, and that is all."""
    put(server, *running_gang(kind, ago=5000, state=state, rows=REQUESTS[rows]))
    before = all_but_pods(server)
    man = hand(*actions)
    told = [("copy-lease", "done")] * 2 if "copy-lease" in actions else []
    assert (man.look(), man.look()) == (told, [])
    assert all_but_pods(server) == before
    assert {row for row in server.used if row[0] != "list"} == ({("patch", "pods")} if told else set())


@pytest.mark.parametrize("rows", REQUESTS)
@pytest.mark.parametrize("kind", ["JobSet", "Job"])
def test_the_end_of_a_lease_changes_the_workload_alone(server: ApiServer, hand: Any, kind: str, rows: str) -> None:
    """The gang started over a minute ago on machines that end in ten: what the one before left for."""
    put(server, *running_gang(kind, ago=60, state="admitted", rows=REQUESTS[rows]))
    before = json.loads(all_but_pods(server))
    assert sorted(hand(*ACTIONS.names()).look()) == [("copy-lease", "done")] * 2 + [("requeue-lease", "done")]
    (found,) = (item for table in before for item in table if item["kind"] == "Workload")
    now = stored(server, "Workload", "job-train-a1")
    found["spec"]["active"] = False
    found["metadata"] |= {"annotations": {REQUEUED_LEASE: at(-600)}}
    found["metadata"]["resourceVersion"] = now["metadata"]["resourceVersion"]
    assert json.loads(all_but_pods(server)) == before
    assert {row for row in server.used if row[0] != "list"} == {
        ("patch", "pods"),
        ("patch", "workloads.kueue.x-k8s.io"),
    }


def test_every_action_says_what_it_uses_and_none_uses_wildcards() -> None:
    known = find_actions(set(ACTIONS.names()))
    assert [action.name for action in known if action.rights] == list(ACTIONS.names())


def test_an_answer_that_was_lost_is_found_at_the_next_look(server: ApiServer, hand: Any) -> None:
    put(server, *workers())
    server.faults.append(Fault("apply_drop", "patch"))
    man = hand("split-parallelism")
    [(_, result)] = man.look()  # sent again, and refused for its version: our own change was there already
    assert "somebody else was faster" in result
    assert stored(server, "Job", "train")["spec"]["parallelism"] == 2
    assert man.look() == []


def test_what_ran_for_days_has_not_waited_for_days() -> None:
    again = queued_job(ago=500_000, status={"conditions": [condition("Suspended", ago=120)]})
    [row] = summarize(Snapshot(NOW).add(JOBS, again).add(WORKLOADS, workload()))
    assert (row.phase.value, row.pending_seconds) == ("queued", 120.0)
