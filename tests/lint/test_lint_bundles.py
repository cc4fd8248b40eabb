"""Rules that look across objects: queues, claims, budgets, classes, pools."""

from __future__ import annotations

import gc
import time

import pytest
from lint_cases import MAIN, POD, cut, dump, fired, good_job, lint, lint_objects, put

from stayfast.lint.objects.bundle import LintSettings


def pdb(**spec):
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "b", "namespace": "ml"},
        "spec": {"selector": {"matchLabels": {"app": "sweep"}}, **spec},
    }


def deployment(replicas=3, **pod):
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web", "namespace": "ml"},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": "sweep"}},
            "template": {
                "metadata": {"labels": {"app": "sweep"}},
                "spec": {"containers": [{"name": "c", "image": "nginx"}], **pod},
            },
        },
    }


def hpa(minimum):
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "h", "namespace": "ml"},
        "spec": {"scaleTargetRef": target, "minReplicas": minimum, "maxReplicas": 9},
    }


BUDGETS = {"SF701", "SF702", "SF703", "SF704"}


@pytest.mark.parametrize(
    ("objects", "codes"),
    [
        ([pdb(minAvailable=1)], set()),
        ([pdb(maxUnavailable=0)], {"SF702"}),
        ([pdb(maxUnavailable=1), good_job()], {"SF701", "SF704"}),
        ([pdb(minAvailable="50%"), good_job()], {"SF701", "SF704"}),
        ([pdb(minAvailable=1), good_job()], {"SF704"}),
        ([pdb(minAvailable=2), good_job()], {"SF702", "SF704"}),
        ([pdb(maxUnavailable=1), deployment()], set()),
        ([pdb(minAvailable=3), deployment()], {"SF702"}),
        ([pdb(minAvailable=3), deployment(1), hpa(4)], set()),
        ([pdb(minAvailable=3), deployment(9), hpa(3)], {"SF702"}),
        ([pdb(minAvailable="100%"), deployment()], {"SF702"}),
        ([put(pdb(minAvailable=1), ("spec", "selector", "matchLabels", "app"), "x"), deployment()], {"SF703"}),
        ([put(pdb(minAvailable=1), ("metadata", "namespace"), "other"), deployment()], set()),
        ([put(pdb(minAvailable=1), ("spec", "selector"), {}), deployment()], set()),
        (
            [put(pdb(minAvailable=1), ("spec", "selector"), {"matchLabels": {"job-name": "sweep"}}), good_job()],
            {"SF704"},
        ),
    ],
)
def test_budgets(objects, codes):
    assert lint_objects(*objects) & BUDGETS == codes


def queue_objects(flavor="l4", covered=("cpu", "memory", "nvidia.com/gpu"), quota="100", cohort=None, check="dws"):
    api = "kueue.x-k8s.io/v1beta1"
    resources = [{"name": name, "nominalQuota": "1Ti" if name == "memory" else quota} for name in covered]
    group = {"coveredResources": list(covered), "flavors": [{"name": flavor, "resources": resources}]}
    spec = {"namespaceSelector": {}, "resourceGroups": [group], "admissionChecks": [check]}
    if cohort:
        spec["cohort"] = cohort
    check_spec = {
        "controllerName": "kueue.x-k8s.io/provisioning-request",
        "parameters": {"apiGroup": "kueue.x-k8s.io", "kind": "ProvisioningRequestConfig", "name": "config"},
    }
    return [
        {"apiVersion": api, "kind": "ResourceFlavor", "metadata": {"name": "l4"}},
        {"apiVersion": api, "kind": "ClusterQueue", "metadata": {"name": "all"}, "spec": spec},
        {
            "apiVersion": api,
            "kind": "LocalQueue",
            "metadata": {"name": "q", "namespace": "ml"},
            "spec": {"clusterQueue": "all"},
        },
        {"apiVersion": api, "kind": "AdmissionCheck", "metadata": {"name": "dws"}, "spec": check_spec},
        {
            "apiVersion": api,
            "kind": "ProvisioningRequestConfig",
            "metadata": {"name": "config"},
            "spec": {"provisioningClassName": "queued-provisioning.gke.io"},
        },
    ]


def queued_job(queue="q"):
    job = put(good_job(), ("metadata", "labels", "kueue.x-k8s.io/queue-name"), queue)
    annotations = {"provreq.kueue.x-k8s.io/maxRunDurationSeconds": "3600"}
    job = put(cut(job, *POD, "tolerations"), ("metadata", "annotations"), annotations)
    return cut(job, *POD, "nodeSelector", "cloud.google.com/gke-spot")


QUEUES = {"SF305", "SF306", "SF603"}


@pytest.mark.parametrize(
    ("objects", "codes"),
    [
        (queue_objects(), set()),
        ([*queue_objects(), queued_job()], set()),
        ([queued_job("anything")], set()),
        ([*queue_objects(), queued_job("typo")], {"SF305"}),
        (queue_objects(flavor="L4"), {"SF305"}),
        (queue_objects(check="dsw"), {"SF305"}),
        (
            [
                put(item, ("spec", "clusterQueue"), "non") if item["kind"] == "LocalQueue" else item
                for item in queue_objects()
            ],
            {"SF305"},
        ),
        ([*queue_objects(covered=("cpu", "memory")), queued_job()], {"SF306"}),
        ([*queue_objects(quota="1"), queued_job()], {"SF603"}),
        ([*queue_objects(quota="1", cohort="shared"), queued_job()], set()),
    ],
)
def test_kueue_chains(objects, codes):
    assert lint_objects(*objects) & QUEUES == codes


def test_the_cap_of_the_configuration_counts():
    assert "SF603" in lint_objects(good_job(), settings=LintSettings(max_accelerators=1))
    assert "SF603" not in lint_objects(good_job(), settings=LintSettings(max_accelerators=2))


def test_a_queue_with_spot_flavors_makes_its_jobs_spot_jobs():
    objects = queue_objects()
    objects[0]["spec"] = {"nodeLabels": {"cloud.google.com/gke-spot": "true"}}
    del objects[1]["spec"]["admissionChecks"]
    job = put(cut(queued_job(), "metadata", "annotations"), (*POD, "terminationGracePeriodSeconds"), 60)
    assert "SF101" not in lint_objects(job)
    assert "SF101" in lint_objects(*objects, job)


@pytest.mark.parametrize(
    ("labels", "codes"),
    [
        ({"cloud.google.com/gke-accelerator": "nvidia-l4"}, set()),
        ({"cloud.google.com/gke-acelerator": "nvidia-l4"}, {"SF501"}),
        ({"cloud.google.com/gke-accelerator": "nvidia-l5"}, {"SF502"}),
        ({"my.org/anything": "x"}, set()),
    ],
)
def test_node_labels_of_flavors(labels, codes):
    flavor = queue_objects()[0]
    flavor["spec"] = {"nodeLabels": labels}
    assert lint_objects(flavor) == codes


def claim(mode, storage_class=None):
    spec = {"accessModes": [mode], "resources": {"requests": {"storage": "1Ti"}}}
    if storage_class:
        spec["storageClassName"] = storage_class
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "c", "namespace": "ml"},
        "spec": spec,
    }


def claiming_job():
    job = cut(good_job(), "spec", "template", "metadata", "annotations")
    return put(job, (*POD, "volumes", 0), {"name": "ckpt", "persistentVolumeClaim": {"claimName": "c"}})


def storage_class(mode, **parameters):
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": "fast"},
        "provisioner": "pd.csi.storage.gke.io",
        "volumeBindingMode": mode,
        "parameters": parameters,
    }


@pytest.mark.parametrize(
    ("objects", "codes"),
    [
        ([claiming_job()], {"SF404"}),
        ([claim("ReadWriteMany"), claiming_job()], set()),
        ([claim("ReadWriteOnce"), claiming_job()], {"SF403"}),
        ([put(claim("x"), ("spec", "accessModes"), ["ReadWriteOnce", "ReadWriteMany"]), claiming_job()], set()),
        ([claim("ReadWriteOnce"), put(claiming_job(), ("spec", "parallelism"), 1)], set()),
        ([put(claim("ReadWriteMany"), ("metadata", "namespace"), "x"), claiming_job()], {"SF404"}),
        ([claim("ReadWriteMany", "fast"), storage_class("Immediate"), claiming_job()], {"SF406"}),
        ([claim("ReadWriteMany", "fast"), storage_class("WaitForFirstConsumer"), claiming_job()], set()),
        (
            [
                claim("ReadWriteMany", "fast"),
                storage_class("Immediate", **{"replication-type": "regional-pd"}),
                claiming_job(),
            ],
            set(),
        ),
    ],
)
def test_claims(objects, codes):
    assert lint_objects(*objects) == codes


def test_objects_of_several_files_are_one_bundle():
    job = put(good_job(), (*POD, "priorityClassName"), "batch")
    priority = {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": "batch"},
        "value": -5,
    }
    assert fired(dump(job)) == {"SF803"}
    assert fired(dump(job), dump(priority)) == set()


def test_a_compute_class_in_the_bundle_decides_the_capacity():
    klass = {
        "apiVersion": "cloud.google.com/v1",
        "kind": "ComputeClass",
        "metadata": {"name": "cheap"},
        "spec": {"priorities": [{"machineFamily": "n4", "spot": True}, {"machineFamily": "n4"}]},
    }
    job = put(good_job(), (*POD, "nodeSelector"), {"cloud.google.com/compute-class": "cheap"})
    job = put(cut(job, *POD, "tolerations"), (*POD, "terminationGracePeriodSeconds"), 100)
    assert lint_objects(job) == set()
    assert lint_objects(job, klass) == {"SF101"}
    both = put(klass, ("spec", "priorities", 0, "flexStart"), {"enabled": True})
    assert "SF505" in lint_objects(both)
    wrong = put(
        klass, ("spec", "priorities", 0), {"machineType": "g2-standard-8", "gpu": {"type": "nvidia-l4", "count": 2}}
    )
    assert lint_objects(wrong) == {"SF602"}


GCLOUD = """
gcloud container node-pools create spot-l4 \\
  --cluster=c --machine-type=g2-standard-8 --accelerator type=nvidia-l4,count={count} \\
  --spot --node-taints={taint} --num-nodes=3
"""
TERRAFORM = """
resource "google_container_node_pool" "spot" {
  name = "spot-l4"
  node_config {
    machine_type = "g2-standard-8"
    spot         = true
    guest_accelerator {
      type  = "nvidia-l4"
      count = COUNT
    }
    taint {
      key    = "TAINT"
      value  = "true"
      effect = "NO_SCHEDULE"
    }
    kubelet_config {
      shutdown_grace_period_seconds               = 120
      shutdown_grace_period_critical_pods_seconds = 15
    }
  }
}
"""


@pytest.mark.parametrize(
    ("count", "taint", "codes"),
    [
        ("1", "cloud.google.com/gke-spot", set()),
        ("2", "cloud.google.com/gke-spot", {"SF602"}),
        ("1", "team-a", {"SF508"}),
    ],
)
def test_pools_from_scripts_and_terraform(count, taint, codes):
    script = GCLOUD.replace("{count}", count).replace("{taint}", f"{taint}=true:NoSchedule")
    terraform = TERRAFORM.replace("COUNT", count).replace("TAINT", taint)
    assert fired(dump(good_job()), pools__sh=script) == codes
    assert fired(dump(good_job()), pools__tf=terraform) == codes


def test_a_pool_fault_is_reported_at_its_line():
    finding = lint(pools__tf=TERRAFORM.replace("COUNT", "2")).findings[0]
    assert (finding.file, finding.line, finding.object) == ("pools.tf", 2, "NodePool/spot-l4")


def test_a_pool_with_120_seconds_gives_105():
    terraform = TERRAFORM.replace("COUNT", "1").replace("TAINT", "cloud.google.com/gke-spot")
    for grace, codes in ((105, set()), (106, {"SF101"})):
        job = put(good_job(), (*POD, "terminationGracePeriodSeconds"), grace)
        assert fired(dump(job), pools__tf=terraform) == codes


def test_a_snapshot_makes_missing_things_certain():
    job = put(claiming_job(), (*POD, "priorityClassName"), "batch")
    unsure = {f.rule: f.severity.value for f in lint(dump(job)).findings}
    certain = {
        f.rule: f.severity.value for f in lint(dump(job), settings=LintSettings(is_cluster_snapshot=True)).findings
    }
    assert unsure == {"SF404": "advice", "SF803": "warning"}
    assert certain == {"SF404": "error", "SF803": "error"}


def many(count):
    objects = []
    for number in range(count):
        job = put(claiming_job(), ("metadata", "name"), f"j{number}")
        job = put(job, ("spec", "template", "metadata", "labels"), {"app": f"j{number}"})
        job = put(job, (*POD, "volumes", 0, "persistentVolumeClaim", "claimName"), f"c{number}")
        budget = put(pdb(minAvailable=1), ("spec", "selector", "matchLabels", "app"), f"j{number}")
        objects += [job, put(claim("ReadWriteMany"), ("metadata", "name"), f"c{number}"), budget]
    return dump(*objects)


def test_four_times_the_objects_take_about_four_times_as_long():
    def seconds(text):
        started = time.process_time()
        lint(text)
        return time.process_time() - started

    small, large = many(60), many(240)
    lint(small)
    gc.collect()
    gc.disable()  # what other tests left behind is not ours to pay for
    try:
        ratio = min(seconds(large) for _ in range(5)) / min(seconds(small) for _ in range(5))
    finally:
        gc.enable()
    assert ratio < 10  # 16 if anything looked at every pair


def test_the_nearest_pool_is_explained():
    job = put(good_job(), (*MAIN, "resources", "requests", "nvidia.com/gpu"), 4)
    job = put(job, (*MAIN, "resources", "limits", "nvidia.com/gpu"), 4)
    terraform = TERRAFORM.replace("COUNT", "1").replace("TAINT", "cloud.google.com/gke-spot")
    (finding,) = lint(dump(job), pools__tf=terraform).findings
    assert finding.rule == "SF508"
    assert "spot-l4: 4 GPUs are requested, its nodes have 1" in finding.message
