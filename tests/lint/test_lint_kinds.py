"""The same rules through every kind that makes pods, and the objects that decide about capacity."""

from __future__ import annotations

import pytest
from lint_cases import MAIN, POD, SPOT_TOLERATION, cut, dump, fired, good_job, lint, lint_objects, put

from stayfast.lint.objects.bundle import LintSettings

SPOT = "cloud.google.com/gke-spot"
FLEX = {
    "cloud.google.com/gke-flex-start": "true",
    "cloud.google.com/gke-accelerator": "nvidia-l4",
    "cloud.google.com/gke-max-run-duration-seconds": "3600",
}


def template(**changes):
    value = good_job()["spec"]["template"]
    value["spec"].update(changes)
    return value


def custom(api, kind, spec, **metadata):
    return {"apiVersion": api, "kind": kind, "metadata": {"name": "x", "namespace": "ml", **metadata}, "spec": spec}


def jobset(job=None, **spec):
    replicated = [{"name": "w", "template": {"spec": (job or good_job())["spec"]}}]
    return custom("jobset.x-k8s.io/v1alpha2", "JobSet", {"replicatedJobs": replicated, **spec})


WRAPPED = {
    "CronJob": lambda t: custom(
        "batch/v1", "CronJob", {"schedule": "* * * * *", "jobTemplate": {"spec": {**good_job()["spec"], "template": t}}}
    ),
    "JobSet": lambda t: jobset({"spec": {**good_job()["spec"], "template": t}}),
    "RayCluster": lambda t: custom(
        "ray.io/v1", "RayCluster", {"workerGroupSpecs": [{"groupName": "g", "replicas": 2, "template": t}]}
    ),
    "RayJob": lambda t: custom("ray.io/v1", "RayJob", {"rayClusterSpec": {"workerGroupSpecs": [{"template": t}]}}),
    "PyTorchJob": lambda t: custom(
        "kubeflow.org/v1", "PyTorchJob", {"pytorchReplicaSpecs": {"Worker": {"replicas": 2, "template": t}}}
    ),
    "volcano": lambda t: custom("batch.volcano.sh/v1alpha1", "Job", {"tasks": [{"replicas": 2, "template": t}]}),
    "Deployment": lambda t: custom(
        "apps/v1", "Deployment", {"selector": {"matchLabels": {"app": "sweep"}}, "template": t}
    ),
    "runtime": lambda t: custom(
        "trainer.kubeflow.org/v1alpha1",
        "ClusterTrainingRuntime",
        {"template": {"spec": {"replicatedJobs": [{"template": {"spec": {**good_job()["spec"], "template": t}}}]}}},
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", WRAPPED)
def test_a_long_grace_is_found_inside_every_kind(kind):
    finding = next(
        entry
        for entry in lint(dump(WRAPPED[kind](template(terminationGracePeriodSeconds=60)))).findings
        if entry.rule == "SF101"
    )
    assert finding.pointer.endswith("/spec/terminationGracePeriodSeconds")
    assert "SF101" not in fired(dump(WRAPPED[kind](template())))


@pytest.mark.parametrize(
    ("spec", "restarts"),
    [
        ({}, False),
        ({"failurePolicy": {"maxRestarts": 3}}, True),
        ({"failurePolicy": {"maxRestarts": 0}}, False),
        ({"failurePolicy": {"maxRestarts": 0, "rules": [{"action": "RestartJobSetAndIgnoreMaxRestarts"}]}}, True),
    ],
)
def test_a_jobset_that_restarts_needs_no_ignore_rule(spec, restarts):
    job = put(cut(good_job(), "spec", "podFailurePolicy"), ("spec", "backoffLimit"), 0)
    assert ("SF104" in lint_objects(jobset(job, **spec))) is not restarts
    assert ("SF105" in lint_objects(jobset(job, **spec))) is not restarts


def test_a_jobset_that_fails_on_disruption_and_restarts_for_free_is_right():
    fail = {"rules": [{"action": "FailJob", "onPodConditions": [{"type": "DisruptionTarget"}]}]}
    rules = [{"action": "RestartJobSetAndIgnoreMaxRestarts", "onJobFailureReasons": ["PodFailurePolicy"]}]
    job = put(good_job(), ("spec", "podFailurePolicy"), fail)
    assert "SF104" not in lint_objects(jobset(job, failurePolicy={"maxRestarts": 0, "rules": rules}))
    assert "SF104" in lint_objects(jobset(job, failurePolicy={"maxRestarts": 0}))


@pytest.mark.parametrize(("kind", "role"), [("head", True), ("leader", True), ("lone leader", True), ("worker", False)])
def test_coordinators_on_spot(kind, role):
    values = {
        "head": custom("ray.io/v1", "RayCluster", {"headGroupSpec": {"template": template()}}),
        "worker": WRAPPED["RayCluster"](template()),
        "leader": custom(
            "leaderworkerset.x-k8s.io/v1",
            "LeaderWorkerSet",
            {"leaderWorkerTemplate": {"size": 2, "leaderTemplate": template(), "workerTemplate": template()}},
        ),
        "lone leader": custom(
            "leaderworkerset.x-k8s.io/v1",
            "LeaderWorkerSet",
            {"leaderWorkerTemplate": {"size": 2, "workerTemplate": template()}},
        ),
    }
    assert ("SF201" in lint_objects(values[kind])) is role


@pytest.mark.parametrize(
    ("name", "namespace", "fires"),
    [("web", "ml", False), ("web", "kueue-system", True), ("redis-master", "ml", True), ("my-operator", "ml", True)],
)
def test_infrastructure_on_spot(name, namespace, fires):
    value = WRAPPED["Deployment"](template())
    value["metadata"] = {"name": name, "namespace": namespace}
    assert ("SF201" in lint_objects(value)) is fires
    away = put(value, ("spec", "template", "spec", "nodeSelector"), {})
    assert "SF201" not in lint_objects(cut(away, "spec", "template", "spec", "tolerations"))


def flex_job(**annotations):
    job = put(cut(good_job(), *POD, "tolerations"), (*POD, "nodeSelector"), dict(FLEX))
    job = put(cut(job, "spec", "completionMode"), ("spec", "parallelism"), 1)
    return put(job, ("metadata", "annotations"), annotations) if annotations else job


def test_a_single_flex_start_pod_is_fine():
    assert lint_objects(flex_job()) == set()


@pytest.mark.parametrize(
    ("value", "fires"), [("600", False), ("604800", False), ("599", True), ("604801", True), ("1h", True), ("-5", True)]
)
def test_run_durations(value, fires):
    job = put(flex_job(), (*POD, "nodeSelector", "cloud.google.com/gke-max-run-duration-seconds"), value)
    assert ("SF302" in lint_objects(job)) is fires
    request = custom(
        "autoscaling.x-k8s.io/v1",
        "ProvisioningRequest",
        {
            "provisioningClassName": "queued-provisioning.gke.io",
            "parameters": {"maxRunDurationSeconds": value},
            "podSets": [{"count": 1, "podTemplateRef": {"name": "t"}}],
        },
    )
    assert ("SF302" in lint_objects(request)) is fires


def test_only_flex_start_priorities_have_the_flex_start_limit():
    rows = [{"machineFamily": "n4", "maxRunDurationSeconds": 360}]
    klass = {
        "apiVersion": "cloud.google.com/v1",
        "kind": "ComputeClass",
        "metadata": {"name": "c"},
        "spec": {"priorities": rows},
    }
    assert lint_objects(klass) == set()
    rows[0]["flexStart"] = {"enabled": True}
    assert lint_objects(klass) == {"SF302"}


def test_deadlines_on_capacity_that_has_to_be_waited_for():
    job = put(flex_job(), ("spec", "activeDeadlineSeconds"), 3600)
    assert lint_objects(job) == {"SF301"}
    assert lint_objects(put(job, ("metadata", "labels", "kueue.x-k8s.io/queue-name"), "q")) == set()
    assert lint_objects(put(flex_job(), (*POD, "activeDeadlineSeconds"), 3600)) == set()
    assert lint_objects(put(flex_job(), (*POD, "activeDeadlineSeconds"), 700_000)) == {"SF302"}
    assert lint_objects(put(good_job(), ("spec", "activeDeadlineSeconds"), 3600)) == set()


@pytest.mark.parametrize(
    ("change", "fires"),
    [
        (lambda j: j, False),
        (lambda j: put(j, ("spec", "completionMode"), "Indexed"), True),
        (lambda j: put(j, (*MAIN, "command"), ["mpirun", "x"]), True),
        (lambda j: put(j, ("metadata", "name"), "train-llm"), True),
        (lambda j: put(j, (*MAIN, "env"), [{"name": "WORLD_SIZE", "value": "4"}]), True),
        (lambda j: put(put(j, ("metadata", "name"), "train"), ("spec", "parallelism"), 1), False),
        (
            lambda j: put(
                put(j, ("metadata", "name"), "train"), ("metadata", "labels", "kueue.x-k8s.io/queue-name"), "q"
            ),
            False,
        ),
    ],
)
def test_gangs_on_plain_flex_start(change, fires):
    assert ("SF303" in lint_objects(change(put(flex_job(), ("spec", "parallelism"), 4)))) is fires


def test_suspended_without_a_queue():
    assert "SF304" in lint_objects(jobset(suspend=True))
    assert "SF304" not in lint_objects(
        {**jobset(suspend=True), "metadata": {"name": "x", "labels": {"kueue.x-k8s.io/queue-name": "q"}}}
    )
    cron = WRAPPED["CronJob"](template())
    cron["spec"]["suspend"] = True  # a pause button, not a queue
    assert "SF304" not in lint_objects(cron)


def test_queued_nodes_need_a_request():
    toleration = {"key": "cloud.google.com/gke-queued", "operator": "Exists", "effect": "NoSchedule"}
    job = put(flex_job(), (*POD, "tolerations"), [toleration])
    assert lint_objects(job) == {"SF307"}
    assert lint_objects(put(job, ("metadata", "labels", "kueue.x-k8s.io/queue-name"), "q")) == set()
    asked = put(
        job, ("spec", "template", "metadata", "annotations", "autoscaling.x-k8s.io/consume-provisioning-request"), "r"
    )
    assert lint_objects(asked) == set()


def tpu_job(chips, pods, topology, accelerator="tpu-v6e-slice"):
    job = put(
        good_job(),
        (*POD, "nodeSelector"),
        {"cloud.google.com/gke-tpu-accelerator": accelerator, "cloud.google.com/gke-tpu-topology": topology},
    )
    job = put(
        cut(job, *POD, "tolerations"),
        (*MAIN, "resources"),
        {"limits": {"cpu": 1, "memory": "1Gi", "google.com/tpu": chips}},
    )
    return put(put(job, ("spec", "parallelism"), pods), ("spec", "completions"), pods)


@pytest.mark.parametrize(
    ("chips", "pods", "topology", "accelerator", "fires"),
    [
        (4, 4, "4x4", "tpu-v6e-slice", False),
        (4, 3, "4x4", "tpu-v6e-slice", True),
        (8, 1, "2x4", "tpu-v6e-slice", False),
        (8, 2, "2x2x2", "tpu-v5p-slice", True),
        (4, 16, "4x4x4", "tpu7x", False),
        (4, 32, "4x4x4", "tpu7x", False),
        (4, 1, "1x1", "tpu-v6e-slice", True),
        (4, 2, "axb", "tpu-v6e-slice", False),
    ],
)
def test_tpu_slices(chips, pods, topology, accelerator, fires):
    assert ("SF604" in lint_objects(tpu_job(chips, pods, topology, accelerator))) is fires


def test_tpu_chips_need_selectors_unless_something_else_chooses():
    bare = put(tpu_job(4, 4, "4x4"), (*POD, "nodeSelector"), {})
    assert "SF604" in lint_objects(bare)
    for selector in ({"cloud.google.com/gke-nodepool": "p"}, {"cloud.google.com/compute-class": "c"}):
        assert "SF604" not in lint_objects(put(bare, (*POD, "nodeSelector"), selector))


def test_nodes_of_a_running_cluster_are_pools():
    node = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "n1", "labels": {SPOT: "true", "cloud.google.com/gke-accelerator": "nvidia-l4"}},
        "spec": {"taints": [{"key": SPOT, "value": "true", "effect": "NoSchedule"}]},
        "status": {"allocatable": {"nvidia.com/gpu": "1"}},
    }
    assert lint_objects(node, good_job()) == set()
    node["metadata"]["labels"]["cloud.google.com/gke-accelerator"] = "nvidia-tesla-t4"
    assert lint_objects(node, good_job()) == {"SF508"}


def test_cluster_mode_matters():
    low = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "p"}, "value": -100}
    assert lint_objects(low) == {"SF204"}
    assert lint_objects(low, settings=LintSettings(cluster_mode="autopilot")) == set()
    untolerated = dump(cut(good_job(), *POD, "tolerations"))
    severities = {
        mode: [f.severity.value for f in lint(untolerated, settings=LintSettings(cluster_mode=mode)).findings]
        for mode in ("unknown", "standard")
    }
    assert severities == {"unknown": ["advice"], "standard": ["warning"]}


@pytest.mark.parametrize(
    ("selector", "toleration", "spot"),
    [
        ({"cloud.google.com/gke-provisioning": "spot"}, SPOT_TOLERATION, True),
        ({"cloud.google.com/gke-preemptible": "true"}, SPOT_TOLERATION, True),
        ({"cloud.google.com/gke-nodepool": "gpu-spot"}, SPOT_TOLERATION, True),
        ({"tier": "spot"}, {"key": "tier", "value": "spot"}, True),
        ({"karpenter.sh/capacity-type": "spot"}, {"key": "x", "value": "y"}, False),
        ({"app": "spotlight-x"}, {"key": "x", "value": "y"}, False),
        ({"disk": "ssd"}, {"key": "x", "value": "y"}, False),
    ],
)
def test_what_counts_as_spot(selector, toleration, spot):
    job = put(good_job(), (*POD, "nodeSelector"), selector)
    job = put(put(job, (*POD, "tolerations"), [toleration]), (*POD, "terminationGracePeriodSeconds"), 60)
    assert ("SF101" in lint_objects(job)) is spot


def affinity(*terms, soft=()):
    value = {}
    if terms:
        value["requiredDuringSchedulingIgnoredDuringExecution"] = {
            "nodeSelectorTerms": [{"matchExpressions": list(term)} for term in terms]
        }
    if soft:
        value["preferredDuringSchedulingIgnoredDuringExecution"] = [
            {"weight": 1, "preference": {"matchExpressions": list(soft)}}
        ]
    return {"nodeAffinity": value}


IS_SPOT = {"key": SPOT, "operator": "In", "values": ["true"]}
NOT_SPOT = {"key": SPOT, "operator": "DoesNotExist"}
L4 = {"key": "cloud.google.com/gke-accelerator", "operator": "In", "values": ["nvidia-l4"]}


@pytest.mark.parametrize(
    ("value", "codes"),
    [
        (affinity([IS_SPOT, L4]), {"SF101"}),  # required: a Spot pod, and 60 s is too long
        (affinity([IS_SPOT, L4], [L4]), {"SF101", "SF503"}),  # an alternative without Spot: only tolerated
        (affinity([NOT_SPOT, L4]), set()),
        (affinity([L4], soft=[IS_SPOT]), {"SF101"}),  # a wish is a request
        (affinity([L4]), {"SF101", "SF503"}),
    ],
)
def test_affinity_counts_as_selection_where_it_is_required(value, codes):
    job = put(cut(good_job(), *POD, "nodeSelector"), (*POD, "affinity"), value)
    assert lint_objects(put(job, (*POD, "terminationGracePeriodSeconds"), 60)) == codes


def test_a_queue_serves_its_own_namespace():
    queue = custom("kueue.x-k8s.io/v1beta1", "LocalQueue", {"clusterQueue": "c"})
    job = put(good_job(), ("metadata", "labels", "kueue.x-k8s.io/queue-name"), "x")
    assert lint_objects(queue, job) == set()
    assert lint_objects(queue, put(job, ("metadata", "namespace"), "other")) == {"SF305"}
    assert lint_objects(queue, cut(job, "metadata", "namespace")) == set()


def test_an_object_needs_a_name():
    assert lint_objects(cut(good_job(), "metadata", "name")) == {"SF601"}
    assert lint_objects(put(cut(good_job(), "metadata", "name"), ("metadata", "generateName"), "x-")) == set()


def severities(value):
    return {finding.rule: finding.severity.value for finding in lint(dump(value)).findings}


def test_severities_follow_the_profile():
    spot = put(cut(good_job(), "spec", "podFailurePolicy"), ("spec", "backoffLimit"), 0)
    flex = put(cut(flex_job(), "spec", "podFailurePolicy"), ("spec", "backoffLimit"), 0)
    none = cut(cut(spot, *POD, "tolerations"), *POD, "nodeSelector", SPOT)
    assert severities(spot) == {"SF104": "warning", "SF105": "error"}
    assert severities(flex) == {"SF104": "advice", "SF105": "warning"}
    assert severities(none) == {}
    assert severities(put(good_job(), (*POD, "terminationGracePeriodSeconds"), 1)) == {"SF101": "error"}
    assert severities(put(good_job(), (*POD, "terminationGracePeriodSeconds"), 16)) == {"SF101": "warning"}
    assert severities(put(flex_job(), (*POD, "terminationGracePeriodSeconds"), 600)) == {}


def test_selecting_queued_nodes_makes_a_queued_pod():
    job = put(
        flex_job(),
        (*POD, "nodeSelector"),
        {"cloud.google.com/gke-queued": "true", "cloud.google.com/gke-accelerator": "nvidia-l4"},
    )
    assert lint_objects(job) == {"SF302", "SF307"}
    assert lint_objects(put(job, ("metadata", "labels", "kueue.x-k8s.io/queue-name"), "q")) == {"SF302"}
