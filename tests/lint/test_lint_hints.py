"""What manifests, pools and classes may say so that the linter need not guess."""

from __future__ import annotations

import copy

import yaml
from lint_cases import good_job

from stayfast.lint.engine import lint_bundle
from stayfast.lint.objects.bundle import LintSettings
from stayfast.lint.readers.gcloud import pools_in_text
from stayfast.lint.sources import Source

POOL = """gcloud container node-pools create spot-l4 --machine-type=g2-standard-8 --spot \\
  --accelerator=type=nvidia-l4,count=1 --node-taints=cloud.google.com/gke-spot=true:NoSchedule{more}
"""
FLEX_POOL = """gcloud container node-pools create flex --machine-type=g2-standard-8 --flex-start \\
  --accelerator=type=nvidia-l4,count=1{more}
"""
TERRAFORM = """resource "google_container_node_pool" "spot" {{
  name = "spot-l4"
  node_config {{
    machine_type = "g2-standard-8"
    spot         = true
    guest_accelerator {{
      type  = "nvidia-l4"
      count = 1
    }}
    taint {{
      key    = "cloud.google.com/gke-spot"
      value  = "true"
      effect = "NO_SCHEDULE"
    }}
    {more}
  }}
}}
"""
KUBELET = "kubelet_config {\n shutdown_grace_period_seconds = 120\n shutdown_grace_period_critical_pods_seconds = 15\n}"


def fired(*objects, pools=()):
    text = "---\n".join(yaml.safe_dump(item) for item in objects)
    sources = [Source("a.yaml", text), *(Source(name, body) for name, body in pools)]
    return {finding.rule for finding in lint_bundle(sources, LintSettings(cluster_mode="standard")).findings}


def with_grace(seconds):
    job = good_job()
    job["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] = seconds
    return job


def flex_job():
    job = good_job()
    spec = job["spec"]["template"]["spec"]
    spec["nodeSelector"] = {"cloud.google.com/gke-flex-start": "true", "cloud.google.com/gke-accelerator": "nvidia-l4"}
    spec["tolerations"] = []
    job["spec"].update(completions=1, parallelism=1)
    return job


def test_a_pool_in_two_files_is_one_pool():
    pools = [("p.sh", POOL.format(more="")), ("p.tf", TERRAFORM.format(more=KUBELET))]
    assert "SF101" not in fired(with_grace(105), pools=pools)
    assert "SF101" in fired(with_grace(106), pools=pools)
    assert "SF101" in fired(
        with_grace(105), pools=[("p.sh", POOL.format(more="")), ("p.tf", TERRAFORM.format(more=""))]
    )


def test_settings_in_a_file_may_be_the_longest_there_are():
    pools = [("p.sh", POOL.format(more=" --system-config-from-file=x.yaml"))]
    assert "SF101" not in fired(with_grace(105), pools=pools)
    assert "SF101" in fired(with_grace(120), pools=pools)


def test_another_spot_pool_that_says_nothing_still_counts():
    other = POOL.format(more="").replace("spot-l4", "other")
    pools = [("p.sh", other), ("p.tf", TERRAFORM.format(more=KUBELET))]
    assert "SF101" in fired(with_grace(105), pools=pools)


def in_class(job):
    job = copy.deepcopy(job)
    job["spec"]["template"]["spec"]["nodeSelector"] = {"cloud.google.com/compute-class": "mine"}
    return job


def compute_class(kubelet):
    row = {"machineType": "g2-standard-8", "spot": True, "gpu": {"type": "nvidia-l4", "count": 1}}
    if kubelet:
        row["nodeSystemConfig"] = {"kubeletConfig": kubelet}
    metadata = {"name": "mine"}
    return {
        "apiVersion": "cloud.google.com/v1",
        "kind": "ComputeClass",
        "metadata": metadata,
        "spec": {"priorities": [row]},
    }


def test_a_class_says_what_its_spot_nodes_give():
    long = {"shutdownGracePeriodSeconds": 120, "shutdownGracePeriodCriticalPodsSeconds": 30}
    assert "SF101" not in fired(in_class(with_grace(90)), compute_class(long))
    assert "SF101" in fired(in_class(with_grace(91)), compute_class(long))
    assert "SF101" in fired(in_class(with_grace(90)), compute_class(None))


def test_a_run_limit_of_the_pool_is_a_run_limit():
    assert "SF302" in fired(flex_job())
    assert "SF302" in fired(flex_job(), pools=[("p.sh", FLEX_POOL.format(more=""))])
    assert "SF302" not in fired(flex_job(), pools=[("p.sh", FLEX_POOL.format(more=" --max-run-duration=7200s"))])
    named = flex_job()
    named["spec"]["template"]["spec"]["nodeSelector"]["cloud.google.com/gke-nodepool"] = "theirs"
    assert "SF302" not in fired(named), "that pool says it"


def test_terraform_has_the_run_limit_too():
    (pool,) = pools_in_text(TERRAFORM.format(more='max_run_duration = "3600s"'), "p.tf")
    assert pool.max_run_seconds == 3600


def test_zones_are_not_held_against_a_pool():
    job = good_job()
    job["spec"]["template"]["spec"]["nodeSelector"]["topology.kubernetes.io/zone"] = "us-central1-a"
    assert "SF508" not in fired(job, pools=[("p.sh", POOL.format(more=""))])


def test_pods_may_say_that_they_do_not_wait_for_each_other():
    job = flex_job()
    job["spec"].update(completions=4, parallelism=4, completionMode="Indexed")
    assert "SF303" in fired(job)
    job["spec"]["template"]["metadata"]["labels"]["stayfast.dev/coupled"] = "false"
    assert "SF303" not in fired(job)
    del job["spec"]["completionMode"]
    job["spec"]["template"]["spec"]["containers"][0]["command"] = ["torchrun", "train.py"]
    assert "SF805" not in fired(job)
    job["spec"]["template"]["metadata"]["labels"]["stayfast.dev/coupled"] = "true"
    assert {"SF303", "SF805"} <= fired(job)


def test_the_checks_of_v1beta2_decide_the_capacity():
    """A queue whose admission check provisions nodes makes its workloads queued, in either version's spelling."""
    chain = [
        {"kind": "ResourceFlavor", "metadata": {"name": "f"}, "spec": {"nodeLabels": {"a": "b"}}},
        {"kind": "LocalQueue", "metadata": {"name": "q", "namespace": "ml"}, "spec": {"clusterQueue": "c"}},
        {"kind": "AdmissionCheck", "metadata": {"name": "p"},
         "spec": {"controllerName": "kueue.x-k8s.io/provisioning-request"}},
        {"kind": "ClusterQueue", "metadata": {"name": "c"},
         "spec": {"admissionChecksStrategy": {"admissionChecks": [{"name": "p"}]},
                  "resourceGroups": [{"coveredResources": ["cpu"], "flavors": [{"name": "f", "resources": []}]}]}},
    ]  # fmt: skip
    job = flex_job()
    job["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] = "q"
    job["spec"]["template"]["spec"]["nodeSelector"] = {}
    del job["spec"]["podFailurePolicy"]
    objects = [{"apiVersion": "kueue.x-k8s.io/v1beta2", **item} for item in chain]
    assert "SF104" in fired(*objects, job)
    assert "SF104" not in fired(job), "without the chain nobody can know"
