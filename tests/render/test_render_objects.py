"""What each object must be, and why: the facts of Jobs, JobSets, Kueue and Spot that a golden file only shows."""

from __future__ import annotations

import dataclasses
import re

import pytest
from render_cases import (
    BATCH,
    CASES,
    GANG,
    LONG,
    SERVE,
    SWEEP,
    TRAIN,
    case,
    container,
    environment,
    job_spec,
    objects,
    on,
    planned,
    rendered,
    template,
    the,
)

from stayfast.errors import UsageError
from stayfast.model.capacity import CapacityClass
from stayfast.model.exit_codes import INTERRUPTED
from stayfast.render.bundle import render
from stayfast.render.context import Controller
from stayfast.render.naming import has_secret, pool_name, scoped
from stayfast.render.objects.environment import container_command, is_torchrun
from stayfast.render.objects.pod import cpu_request, memory_request_gib

ALL = sorted(CASES)
JOBS = [name for name in ALL if not name.startswith("serve")]
TAKEN_AWAY = [name for name in ALL if case(name).outline.is_interruptible]


# --- who restarts what ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", JOBS)
def test_pods_are_never_restarted_in_place_and_never_overlap(name):
    assert template(case(name))["spec"]["restartPolicy"] == "Never"  # podFailurePolicy is refused with anything else
    assert job_spec(case(name))["podReplacementPolicy"] == "Failed"


@pytest.mark.parametrize("name", [name for name in JOBS if case(name).workload["kind"] == "Job"])
def test_a_job_forgives_interruptions_first_and_only_those(name):
    first, second = job_spec(case(name))["podFailurePolicy"]["rules"]
    assert first == {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}
    assert second["action"] == "Ignore"
    assert second["onExitCodes"]["operator"] == "In"
    assert second["onExitCodes"]["values"] == [INTERRUPTED, 143]
    assert second["onExitCodes"]["containerName"] == container(case(name))["name"]


@pytest.mark.parametrize("name", [name for name in JOBS if case(name).workload["kind"] == "JobSet"])
def test_a_set_starts_again_as_a_whole_and_for_free(name):
    spec = job_spec(case(name))
    assert spec["backoffLimit"] == 0
    assert [rule["action"] for rule in spec["podFailurePolicy"]["rules"]] == ["FailJob", "FailJob"]
    assert spec["podFailurePolicy"]["rules"][0]["onPodConditions"][0]["type"] == "DisruptionTarget"
    assert spec["podFailurePolicy"]["rules"][1]["onExitCodes"]["values"] == [75, 137, 143]
    policy = case(name).workload["spec"]["failurePolicy"]
    (rule,) = policy["rules"]
    assert rule["action"] == "RestartJobSetAndIgnoreMaxRestarts"
    assert rule["onJobFailureReasons"] == ["PodFailurePolicy"]
    assert policy["maxRestarts"] >= 1  # every other code


@pytest.mark.parametrize("name", JOBS)
def test_an_ordinary_failure_never_ends_the_job_at_once(name):
    """Launchers turn much into 1."""
    for rule in job_spec(case(name))["podFailurePolicy"]["rules"]:
        codes = rule.get("onExitCodes", {})
        assert codes.get("operator", "In") == "In"
        assert not {0, 1} & set(codes.get("values", []))


def test_a_gang_is_a_jobset_by_default_and_one_pod_a_job():
    assert case("train-spot-gang").workload["kind"] == "JobSet"
    assert case("train-spot").workload["kind"] == "Job"
    assert case("train-spot-jobset").workload["kind"] == "JobSet"
    assert case("train-spot-gang-job").workload["kind"] == "Job"


def test_both_forms_run_the_same_pods():
    job, job_set = template(case("train-spot")), template(case("train-spot-jobset"))
    name = job["spec"]["priorityClassName"]
    assert job_set["spec"]["priorityClassName"] == f"{name}-jobset"  # the value of a class cannot be changed
    assert job_set == {**job, "spec": {**job["spec"], "priorityClassName": f"{name}-jobset"}}


# --- counting ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [name for name in ALL if name.startswith("batch") or "queue-" in name])
def test_workers_have_fixed_completions_and_no_index(name):
    """With completions unset, the first worker to finish ends the replacement of all others."""
    spec = case(name).workload["spec"]
    assert spec["completions"] == spec["parallelism"] == case(name).outline.spec.nodes
    assert "completionMode" not in spec
    assert template(case(name))["metadata"]["labels"]["stayfast.dev/coupled"] == "false"
    assert spec["backoffLimit"] >= spec["parallelism"]


def test_a_sweep_without_a_queue_is_one_index_per_trial():
    spec = case("sweep-spot").workload["spec"]
    assert (spec["completionMode"], spec["completions"], spec["parallelism"]) == ("Indexed", 24, 3)
    assert spec["backoffLimitPerIndex"] == 6  # one bad trial does not end the others
    assert "backoffLimit" not in spec


def test_ranks_are_stable():
    for name in ("train-spot-gang", "train-queued-gang", "train-spot-gang-job"):
        spec = job_spec(case(name))
        assert (spec["completionMode"], spec["completions"], spec["parallelism"]) == ("Indexed", 2, 2)


@pytest.mark.parametrize(("name", "pod"), [("train-spot-gang", "llm-7-node-0-0"), ("train-spot-gang-job", "llm-7-0")])
def test_rank_zero_has_a_name_that_resolves(name, pod):
    bundle = case(name)
    service = the(bundle, "Service")
    assert service["spec"]["clusterIP"] == "None"
    assert service["spec"]["publishNotReadyAddresses"] is True
    assert service["spec"]["selector"].items() <= template(bundle)["metadata"]["labels"].items()
    assert environment(bundle)["MASTER_ADDR"] == f"{pod}.{service['metadata']['name']}"
    if bundle.workload["kind"] == "JobSet":
        assert bundle.workload["spec"]["network"]["subdomain"] == service["metadata"]["name"]
    else:
        assert template(bundle)["spec"]["subdomain"] == service["metadata"]["name"]


# --- time ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ALL)
def test_the_runtime_reads_the_window_that_the_pod_has(name):
    from stayfast.settings import read_settings

    bundle = case(name)
    settings = read_settings({**environment(bundle), "STAYFAST_MACHINE": "node"})
    assert settings.window_seconds == template(bundle)["spec"]["terminationGracePeriodSeconds"]


@pytest.mark.parametrize(
    ("name", "seconds"),
    [("train-spot", 15), ("train-spot-long-grace", 105), ("train-spot-autopilot-long", 105), ("train-flex", 32)],
)
def test_grace_is_the_real_window(name, seconds):
    assert template(case(name))["spec"]["terminationGracePeriodSeconds"] == seconds


def test_120_seconds_are_asked_of_the_pool_only_when_needed_and_possible():
    long = case("train-spot-long-grace")
    assert "shutdown_grace_period_seconds               = 120" in long.files["pools.tf"]
    assert "--system-config-from-file" in long.files["pools.sh"]
    assert "shutdownGracePeriodSeconds: 120" in long.files["node-config/spot-grace.yaml"]
    assert "shutdown_grace" not in case("train-spot").files["pools.tf"]
    old = rendered(on(TRAIN.replace("14GB", "60GB"), "spot", "cluster: {version: 1.34.9-gke.1}\n"))
    assert template(old)["spec"]["terminationGracePeriodSeconds"] == 15
    assert any("work since the last checkpoint is lost" in sentence for sentence in old.advice)
    vast = rendered(on(TRAIN.replace("14GB", "500GB"), "spot", LONG))
    assert template(vast)["spec"]["terminationGracePeriodSeconds"] == 15, "a promise that cannot be kept is not made"


def test_the_class_sets_its_spot_nodes_and_no_others():
    rows = the(case("train-hybrid-gang-long"), "ComputeClass")["spec"]["priorities"]
    assert [("nodeSystemConfig" in row, row["spot"]) for row in rows] == [(True, True), (False, False)]
    assert rows[0]["nodeSystemConfig"]["kubeletConfig"] == {
        "shutdownGracePeriodSeconds": 120,
        "shutdownGracePeriodCriticalPodsSeconds": 15,
    }


@pytest.mark.parametrize("name", ALL)
def test_the_end_of_a_lease_is_shown_where_there_may_be_one(name):
    bundle = case(name)
    has_lease = bundle.outline.capacity == CapacityClass.FLEX_START or name in (
        "train-hybrid",
        "batch-hybrid-autopilot",
    )
    volumes = {volume["name"]: volume for volume in template(bundle)["spec"]["volumes"]}
    assert ("lease" in volumes) == has_lease == ("STAYFAST_LEASE_FILE" in environment(bundle))
    if has_lease:
        (item,) = volumes["lease"]["downwardAPI"]["items"]
        assert item["fieldRef"]["fieldPath"] == "metadata.annotations['stayfast.dev/lease-ends-at']"
        (mount,) = [entry for entry in container(bundle)["volumeMounts"] if entry["name"] == "lease"]
        assert environment(bundle)["STAYFAST_LEASE_FILE"] == f"{mount['mountPath']}/{item['path']}"
        assert "subPath" not in mount  # a subPath is never updated


@pytest.mark.parametrize(("hours", "seconds"), [(0.5, 3600), (10, 46_800), (48, 216_000), (500, 604_800)], ids=str)
def test_a_lease_is_booked_for_the_work_and_at_most_seven_days(hours, seconds):
    text = TRAIN.replace("{steps: 100000, seconds_per_step: 1.7}", f"{{hours: {hours}}}")
    bundle = rendered(on(text, "flex-start"))
    booked = int(re.search(r"--max-run-duration=(\d+)s", bundle.files["pools.sh"])[1])
    assert booked == seconds
    assert 600 <= booked <= 604_800


def test_no_deadline_runs_while_the_pod_waits():
    for name in ALL:
        assert "activeDeadlineSeconds" not in job_spec(case(name)), "its clock runs while Pending"


# --- machines ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ALL)
def test_spot_is_selected_and_tolerated_together_or_not_at_all(name):
    spec = template(case(name))["spec"]
    selected = "cloud.google.com/gke-spot" in spec["nodeSelector"]
    tolerated = any(entry["key"] == "cloud.google.com/gke-spot" for entry in spec["tolerations"])
    assert selected == tolerated
    assert not (selected and "cloud.google.com/gke-flex-start" in spec["nodeSelector"])


@pytest.mark.parametrize("name", [name for name in ALL if case(name).outline.capacity == CapacityClass.ON_DEMAND])
def test_on_demand_work_stays_off_machines_that_go_away(name):
    terms = template(case(name))["spec"]["affinity"]["nodeAffinity"]
    (term,) = terms["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert {"key": "cloud.google.com/gke-spot", "operator": "DoesNotExist"} in term["matchExpressions"]


@pytest.mark.parametrize("name", ALL)
def test_requests_fit_the_machine_with_room_for_the_system(name):
    bundle = case(name)
    asked, machine = container(bundle)["resources"]["requests"], bundle.outline.machine
    assert 1 <= int(asked["cpu"]) < machine.vcpus
    assert 1 <= int(asked["memory"].removesuffix("Gi")) < machine.memory_gib
    assert asked[bundle.outline.resource] == str(machine.count)
    assert container(bundle)["resources"]["limits"] == {bundle.outline.resource: str(machine.count)}


def test_requests_of_every_machine_in_the_catalogue():
    from stayfast.capacity.machines.prices import bundled_catalogue

    for machine in bundled_catalogue().machines.values():
        assert 0.4 * machine.vcpus <= cpu_request(machine) <= 0.97 * machine.vcpus, machine
        assert 0.6 * machine.memory_gib <= memory_request_gib(machine) <= 0.94 * machine.memory_gib, machine


def test_one_tpu_host_is_a_slice_and_several_are_refused():
    text = TRAIN.replace("{type: h100, count: 8}", "{type: tpu-v6e, count: 8}")
    bundle = rendered(on(text, "spot"))
    selector = template(bundle)["spec"]["nodeSelector"]
    assert selector["cloud.google.com/gke-tpu-accelerator"] == "tpu-v6e-slice"
    assert selector["cloud.google.com/gke-tpu-topology"] == "2x4"
    assert container(bundle)["resources"]["limits"] == {"google.com/tpu": "8"}
    assert "--machine-type=ct6e-standard-8t" in bundle.files["pools.sh"]
    assert "--accelerator" not in bundle.files["pools.sh"]  # the machine type says it all
    assert "guest_accelerator" not in bundle.files["pools.tf"]
    with pytest.raises(UsageError, match="one slice with a topology of its own"):
        rendered(on(text, "spot", "nodes: 2\n"))


def test_a_snapshot_that_leaves_no_room_is_said():
    small = TRAIN.replace("{type: h100, count: 8}", "{type: l4, count: 1}")
    assert any("snapshot of 13.0 GiB" in sentence for sentence in rendered(on(small, "spot")).advice)
    assert not any("snapshot" in sentence for sentence in case("train-spot").advice)


def test_interruptible_work_gives_way_and_an_endpoint_does_not():
    for name in ALL:
        classes = objects(case(name), "PriorityClass")
        named = template(case(name))["spec"].get("priorityClassName")
        if name in TAKEN_AWAY:
            is_job_set = case(name).workload["kind"] == "JobSet"
            assert [item["value"] for item in classes] == [0 if is_job_set else -5]
            assert classes[0].get("preemptionPolicy") == ("Never" if is_job_set else None)
            assert classes[0]["metadata"]["name"] == named
            assert classes[0]["globalDefault"] is False
        else:
            assert classes == []
            assert named is None
    careful = rendered(on(TRAIN, "flex-start", "tolerance: {interruptible: false}\n"))
    assert objects(careful, "PriorityClass") == []


@pytest.mark.parametrize("name", [name for name in ALL if case(name).workload["kind"] == "JobSet"])
def test_the_priority_of_a_job_set_is_a_valid_label(name):
    """JobSet's pod webhook (0.11 and later) copies the priority into a label, and the API server checks that."""
    bundle = case(name)
    for item in objects(bundle, "PriorityClass"):
        assert re.fullmatch(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]", str(item["value"]))


@pytest.mark.parametrize("name", ALL)
def test_budgets_only_where_a_drain_should_go_one_by_one(name):
    budgets = objects(case(name), "PodDisruptionBudget")
    assert bool(budgets) == (name in ("batch-on-demand", "serve-three-autopilot"))
    for budget in budgets:
        least = budget["spec"]["minAvailable"]
        assert isinstance(least, int)
        assert 1 <= least < case(name).outline.spec.nodes


def test_queued_capacity_is_a_chain_that_resolves():
    bundle = case("train-queued-gang")
    flavor, queue, local = (the(bundle, kind) for kind in ("ResourceFlavor", "ClusterQueue", "LocalQueue"))
    check, config = the(bundle, "AdmissionCheck"), the(bundle, "ProvisioningRequestConfig")
    assert bundle.workload["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == local["metadata"]["name"]
    assert "kueue.x-k8s.io/queue-name" not in template(bundle)["metadata"]["labels"]
    assert local["spec"]["clusterQueue"] == queue["metadata"]["name"]
    (group,) = queue["spec"]["resourceGroups"]
    assert group["flavors"][0]["name"] == flavor["metadata"]["name"]
    assert queue["spec"]["admissionChecksStrategy"]["admissionChecks"] == [{"name": check["metadata"]["name"]}]
    assert check["spec"]["parameters"]["name"] == config["metadata"]["name"]
    assert config["spec"]["provisioningClassName"] == "queued-provisioning.gke.io"
    assert set(group["coveredResources"]) == set(container(bundle)["resources"]["requests"])
    assert bundle.workload["spec"]["suspend"] is True
    duration = bundle.workload["metadata"]["annotations"]["provreq.kueue.x-k8s.io/maxRunDurationSeconds"]
    assert isinstance(duration, str)
    assert {item["apiVersion"] for item in (flavor, queue, local, check, config)} == {"kueue.x-k8s.io/v1beta2"}


def test_the_quota_is_exactly_the_gang():
    bundle = rendered(on(GANG.replace("nodes: 2", "nodes: 7"), "flex-start"))
    asked = container(bundle)["resources"]["requests"]
    (flavor,) = the(bundle, "ClusterQueue")["spec"]["resourceGroups"][0]["flavors"]
    for row in flavor["resources"]:
        unit = "Gi" if row["nominalQuota"].endswith("Gi") else ""
        quota, each = row["nominalQuota"].removesuffix(unit), asked[row["name"]].removesuffix(unit)
        assert int(quota) == 7 * int(each), row


def test_hybrid_tries_spot_then_flex_start_then_on_demand_and_comes_back():
    spec = the(case("train-hybrid"), "ComputeClass")["spec"]
    spot, flex, on_demand = spec["priorities"]
    assert spot["spot"] is True
    assert flex["flexStart"]["enabled"] is True
    assert "spot" not in flex
    assert on_demand["spot"] is False
    assert spec["activeMigration"] == {"optimizeRulePriority": True}
    selector = template(case("train-hybrid"))["spec"]["nodeSelector"]
    assert selector == {"cloud.google.com/compute-class": the(case("train-hybrid"), "ComputeClass")["metadata"]["name"]}


def test_a_hybrid_gang_never_waits_node_by_node():
    rows = the(case("train-hybrid-gang-long"), "ComputeClass")["spec"]["priorities"]
    assert not any("flexStart" in row for row in rows)


# --- identity, storage, secrets ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ALL)
def test_pods_meet_the_restricted_profile(name):
    spec, main = template(case(name))["spec"], container(case(name))
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["runAsUser"] > 0
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert main["securityContext"]["allowPrivilegeEscalation"] is False
    assert main["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert main["securityContext"]["readOnlyRootFilesystem"] is True
    assert spec["automountServiceAccountToken"] is False
    allowed = {"emptyDir", "downwardAPI", "persistentVolumeClaim"}
    assert {key for volume in spec["volumes"] for key in volume if key != "name"} <= allowed
    assert not any(spec.get(key) for key in ("hostNetwork", "hostPID", "hostIPC"))
    assert main["terminationMessagePolicy"] == "FallbackToLogsOnError"


@pytest.mark.parametrize("name", ALL)
def test_what_the_pod_refers_to_is_in_the_bundle(name):
    bundle = case(name)
    spec = template(bundle)["spec"]
    assert the(bundle, "ServiceAccount")["metadata"]["name"] == spec["serviceAccountName"]
    for source in container(bundle).get("envFrom", []):
        if "configMapRef" in source:
            assert the(bundle, "ConfigMap")["metadata"]["name"] == source["configMapRef"]["name"]
    claims = [volume["persistentVolumeClaim"] for volume in spec["volumes"] if "persistentVolumeClaim" in volume]
    assert [claim["claimName"] for claim in claims] == [
        item["metadata"]["name"] for item in objects(bundle, "PersistentVolumeClaim")
    ]
    namespaces = {item["metadata"].get("namespace") for item in bundle.objects}
    assert namespaces <= {None, bundle.outline.namespace}


def test_the_namespace_of_everybody_is_left_alone():
    assert objects(case("sweep-spot"), "Namespace") == []
    labels = the(case("train-spot"), "Namespace")["metadata"]["labels"]
    assert labels["pod-security.kubernetes.io/enforce"] == "restricted"


def test_a_google_service_account_is_named_only_where_the_spec_does():
    account = the(case("train-on-demand-disk"), "ServiceAccount")
    assert (
        account["metadata"]["annotations"]["iam.gke.io/gcp-service-account"]
        == "trainer@project.iam.gserviceaccount.com"
    )
    assert "iam.gke.io/gcp-service-account" not in the(case("train-spot"), "ServiceAccount")["metadata"]["annotations"]
    readme = case("train-on-demand-disk").files["README.md"]
    assert "roles/iam.workloadIdentityUser" in readme
    assert "serviceAccount:$PROJECT.svc.id.goog[ml/llm-7]" in readme


def test_storage_of_each_kind():
    filestore = the(case("train-spot-gang-filestore"), "PersistentVolumeClaim")["spec"]
    assert filestore["accessModes"] == ["ReadWriteMany"]
    assert filestore["resources"]["requests"]["storage"] == "2048Gi"
    disk = the(case("train-on-demand-disk"), "StorageClass")
    assert disk["parameters"]["replication-type"] == "regional-pd"
    assert disk["volumeBindingMode"] == "WaitForFirstConsumer"
    assert disk["reclaimPolicy"] == "Retain"
    fuse = case("train-spot-gcsfuse")
    assert template(fuse)["metadata"]["annotations"]["gke-gcsfuse/volumes"] == "true"
    volume, claim = the(fuse, "PersistentVolume"), the(fuse, "PersistentVolumeClaim")
    assert volume["spec"]["csi"] == {"driver": "gcsfuse.csi.storage.gke.io", "volumeHandle": "my-bucket"}
    assert claim["spec"]["volumeName"] == volume["metadata"]["name"]
    assert volume["spec"]["claimRef"] == {"namespace": "ml", "name": claim["metadata"]["name"]}


def test_the_names_of_the_documents():
    values = environment(case("train-spot"))
    assert values["CHECKPOINT_DIR"] == "gs://bucket/runs/llm-7"
    assert values["STORAGE_BACKEND"] == "gcs"
    assert int(values["CHECKPOINT_INTERVAL"]) >= 1
    assert values["RUN_URL"] == "gs://bucket/runs/llm-7"
    mounted = environment(case("train-spot-gang-filestore"))
    assert (mounted["CHECKPOINT_DIR"], mounted["STORAGE_BACKEND"]) == ("/mnt/shared", "file")
    assert environment(case("train-spot-s3"))["STORAGE_BACKEND"] == "s3"
    disk = environment(case("train-on-demand-disk"))
    assert disk["CHECKPOINT_DIR"] == "/checkpoints"
    assert disk["RUN_URL"] == "file:///checkpoints/llm-7"


def test_the_interval_is_in_steps_or_not_there():
    bundle = rendered(on(TRAIN.replace("{steps: 100000, seconds_per_step: 1.7}", "{hours: 48}"), "spot"))
    assert "CHECKPOINT_INTERVAL" not in environment(bundle)
    assert any("CHECKPOINT_INTERVAL is not set" in sentence for sentence in bundle.advice)


def test_a_password_is_nowhere_in_the_bundle():
    bundle = case("batch-flex-secret")
    assert not any("hunter2" in text for text in bundle.files.values())
    (queue,) = [entry for entry in container(bundle)["env"] if entry["name"] == "STAYFAST_QUEUE"]
    assert queue["valueFrom"]["secretKeyRef"] == {"name": "labels-urls", "key": "STAYFAST_QUEUE"}
    assert "kubectl create secret generic labels-urls -n ml" in bundle.files["README.md"]


@pytest.mark.parametrize(
    ("url", "secret"),
    [
        ("postgresql://user:pw@host/db", True),
        ("postgresql://user@host/db?password=pw", True),
        ("postgresql://user@host/db?sslmode=require", False),
        ("postgresql://user:@host/db", True),
        ("pubsub://project/subscription?topic=t", False),
        (None, False),
    ],
)
def test_urls_with_secrets_are_told_from_others(url, secret):
    assert has_secret(url) is secret


def test_s3_brings_its_keys_from_a_secret():
    sources = container(case("train-spot-s3"))["envFrom"]
    assert {"secretRef": {"name": "llm-7-credentials"}} in sources
    assert "--from-literal=AWS_ACCESS_KEY_ID=" in case("train-spot-s3").files["README.md"]


# --- commands ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "run"),
    [
        (("python", "train.py"), ["python", "train.py"]),
        (("torchrun", "a.py"), ["stayfast", "exec", "--", "torchrun", "a.py"]),
        (("/opt/bin/torchrun", "a.py"), ["stayfast", "exec", "--", "/opt/bin/torchrun", "a.py"]),
        (("python3", "-u", "-m", "torch.distributed.run", "a.py"), None),
        (("python", "-m", "server"), ["python", "-m", "server"]),
        (("accelerate", "launch", "a.py"), None),
        (("bash", "-c", "python a.py; echo done"), None),
        (("stayfast", "work", "jobs:infer"), ["stayfast", "work", "jobs:infer"]),
        (("jobs:infer",), ["stayfast", "work", "jobs:infer"]),
        (("a:b", "c"), ["a:b", "c"]),
    ],
)
def test_commands_that_lie_about_their_end_are_watched(given, run):
    assert container_command(given) == (run or ["stayfast", "exec", "--", *given])


def test_torchrun_is_known_under_all_its_names():
    assert is_torchrun(("torchrun", "a.py"))
    assert is_torchrun(("stayfast", "exec", "--", "torchrun", "a.py"))
    assert is_torchrun(("python", "-m", "torch.distributed.run", "a.py"))
    assert not is_torchrun(("python", "a.py"))


def test_torchrun_takes_its_defaults_from_these_variables():
    """The real parser of the installed torch, with the rendered environment."""
    torch_run = pytest.importorskip("torch.distributed.run")
    import os
    from unittest import mock

    values = {**environment(case("train-queued-gang")), "PET_NODE_RANK": "1"}
    with mock.patch.dict(os.environ, values):
        found = torch_run.get_args_parser().parse_args(["train.py"])
    assert (found.nnodes, found.nproc_per_node, found.node_rank) == ("2", "8", 1)
    assert (found.master_addr, found.master_port) == ("llm-7-node-0-0.llm-7", 29500)


# --- refusals ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (on(TRAIN.replace(", checkpoints: gs://bucket/runs/llm-7", ""), "spot"), "state.checkpoints is missing"),
        (on(TRAIN.replace("gs://bucket/runs/llm-7", "memory://x"), "spot"), "die with the pod"),
        (on(TRAIN.replace("gs://bucket/runs/llm-7", "file:///ckpt/x"), "spot"), "in the pod's own file system"),
        (
            on(TRAIN.replace("gs://bucket", "file:///checkpoints"), "spot", "volume: {kind: filestore}\n"),
            "cannot promise atomic commits",
        ),
        (on(GANG, "spot", "volume: {kind: regional-disk}\n"), "attaches to one node"),
        (on(TRAIN, "spot", "volume: {kind: gcsfuse}\n"), "volume.bucket is missing"),
        (on(TRAIN, "spot", "volume: {kind: filestore, size: 500GB}\n"), "at least 1TiB"),
        (on(TRAIN, "spot", "volume: {kind: filestore, path: /tmp}\n"), "cannot be mounted"),
        (
            on(TRAIN.replace("type: h100", "type: h200"), "spot", "volume: {kind: regional-disk}\n"),
            "takes no Persistent Disk",
        ),
        (on(re.sub("queue:.*\n", "", BATCH), "spot"), "queue is missing"),
        (on(re.sub("sink:.*\n", "", BATCH), "spot"), "sink is missing"),
        (on(re.sub("queue:.*\n", "queue: sqlite:////data/q.db\n", BATCH), "spot"), "in the pod's own file system"),
        (on(re.sub("sink:.*\n", "sink: memory://x\n", BATCH), "spot"), "dies with the pod"),
        (on(SWEEP.replace("items: 24", "items: 200000"), "spot"), "more than a Job can index"),
        (on(GANG.replace("name: llm-7", "name: " + "n" * 50), "spot"), "too long for a JobSet"),
    ],
)
def test_what_would_lose_work_is_refused_in_one_sentence(text, said):
    with pytest.raises(UsageError, match=re.escape(said)) as caught:
        rendered(text)
    assert caught.value.help
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "form"),
    [(on(BATCH, "spot"), Controller.JOBSET), (SERVE, Controller.JOBSET), (on(GANG, "flex-start"), Controller.JOB)],
)
def test_forms_that_do_not_exist(text, form):
    with pytest.raises(UsageError, match="leave out --form"):
        rendered(text, form)


@pytest.mark.parametrize("name", ["a\nkind: Pod", 'a"; rm -rf /', "A", "", "a" * 60, "../../etc", "a$(id)", "é"])
def test_hostile_names_are_refused_even_without_the_reader(name):
    spec, plan = planned(CASES["train-spot"].text)
    for change in ({"name": name}, {"namespace": name}):
        with pytest.raises(UsageError, match="not a Kubernetes name"):
            render(dataclasses.replace(spec, **change), plan)


def test_a_hostile_file_name_cannot_leave_its_comment():
    spec, plan = planned(CASES["train-spot"].text)
    bundle = render(dataclasses.replace(spec, where="x\nkind: Pod\n--> <script>.yaml"), plan)
    for name, text in bundle.files.items():
        assert "\nkind: Pod\n" not in text, name
    assert bundle.files["README.md"].startswith("<!-- Generated by stayfast render")
    assert bundle.files["README.md"].split("\n")[0].count("-->") == 1


def test_nothing_is_rendered_from_a_plan_that_fits_nothing():
    spec, plan = planned(CASES["train-spot"].text)
    with pytest.raises(UsageError, match="nothing fits"):
        render(spec, dataclasses.replace(plan, choice=None))


# --- names ---------------------------------------------------------------------------------------------------------


def test_two_runs_never_share_a_name_in_the_cluster():
    assert scoped("a", "b-c") != scoped("a-b", "c")
    assert scoped("n" * 52, "m" * 52) != scoped("n" * 52, "m" * 51 + "k")
    assert len(scoped("n" * 52, "m" * 52)) <= 63


def test_pool_names_fit_gke():
    assert pool_name("llm-7", "spot") == "llm-7-spot"
    long = pool_name("n" * 52, "on-demand")
    assert len(long) <= 40
    assert long.endswith("-on-demand")
    assert pool_name("n" * 52, "spot") != pool_name("n" * 51 + "m", "spot")


def test_the_digest_follows_the_spec_and_nothing_else():
    spec, plan = planned(CASES["train-spot"].text)
    one = render(spec, plan).outline.digest
    assert one == render(dataclasses.replace(spec, where="/elsewhere/x.yaml"), plan).outline.digest
    assert one != render(dataclasses.replace(spec, image="other:v2"), plan).outline.digest
    assert one != render(spec, plan, form=Controller.JOBSET).outline.digest
