"""Schemas of custom resources that no published set carries, written by hand after their public APIs.

Kueue v0.13/v0.14 (``apis/kueue/v1beta1``, ``v1beta2``), JobSet v0.10 (``api/jobset/v1alpha2``), ProvisioningRequest
(``autoscaling.x-k8s.io/v1``), GKE ComputeClass (``cloud.google.com/v1``); written 2026-11, not yet compared field by
field with the definitions themselves. The grammar is that of ``tools/make_schemas.py``; ``object`` marks parts we leave
to the API server. These APIs still grow, so an unknown field is an error only when it looks like a misspelling of a
known one.
"""

from __future__ import annotations

from typing import Any

_TOP = {"apiVersion": "string", "kind": "string", "metadata": "#meta.v1.ObjectMeta", "status": "any"}


def _kind(spec: str) -> dict[str, Any]:
    return {"fields": {**_TOP, "spec": spec}, "required": []}


def _type(required: str = "", **fields: str) -> dict[str, Any]:
    return {"fields": fields, "required": required.split()}


_CLUSTER_QUEUE = {
    "resourceGroups": "[]#kueue.ResourceGroup", "queueingStrategy": "string",
    "namespaceSelector": "#meta.v1.LabelSelector",
    "flavorFungibility": "object", "preemption": "#kueue.Preemption", "stopPolicy": "string", "fairSharing": "object",
    "admissionChecksStrategy": "#kueue.ChecksStrategy", "admissionScope": "object",
}  # fmt: skip

TYPES: dict[str, dict[str, Any]] = {
    "kueue.ClusterQueue1": _kind("#kueue.ClusterQueueSpec1"),
    "kueue.ClusterQueueSpec1": _type(**_CLUSTER_QUEUE, cohort="string", admissionChecks="[]string"),
    "kueue.ClusterQueue2": _kind("#kueue.ClusterQueueSpec2"),
    "kueue.ClusterQueueSpec2": _type(**_CLUSTER_QUEUE, cohortName="string", concurrentAdmissionPolicy="object"),
    "kueue.ResourceGroup": _type(
        "coveredResources flavors", coveredResources="[]string", flavors="[]#kueue.FlavorQuotas"
    ),
    "kueue.FlavorQuotas": _type("name resources", name="string", resources="[]#kueue.ResourceQuota"),
    "kueue.ResourceQuota": _type(
        "name nominalQuota", name="string", nominalQuota="quantity", borrowingLimit="quantity", lendingLimit="quantity"
    ),
    "kueue.Preemption": _type(reclaimWithinCohort="string", borrowWithinCohort="object", withinClusterQueue="string"),
    "kueue.ChecksStrategy": _type(admissionChecks="[]#kueue.CheckRule"),
    "kueue.CheckRule": _type("name", name="string", onFlavors="[]string"),
    "kueue.LocalQueue": _kind("#kueue.LocalQueueSpec"),
    "kueue.LocalQueueSpec": _type(clusterQueue="string", stopPolicy="string", fairSharing="object"),
    "kueue.ResourceFlavor": _kind("#kueue.ResourceFlavorSpec"),
    "kueue.ResourceFlavorSpec": _type(
        nodeLabels="{}string", nodeTaints="[]#core.v1.Taint", tolerations="[]#core.v1.Toleration", topologyName="string"
    ),
    "kueue.AdmissionCheck": _kind("#kueue.AdmissionCheckSpec"),
    "kueue.AdmissionCheckSpec": _type(
        "controllerName", controllerName="string", parameters="#kueue.CheckParameters", retryDelayMinutes="integer"
    ),
    "kueue.CheckParameters": _type("apiGroup kind name", apiGroup="string", kind="string", name="string"),
    "kueue.ProvisioningRequestConfig": _kind("#kueue.ProvisioningRequestConfigSpec"),
    "kueue.ProvisioningRequestConfigSpec": _type(
        "provisioningClassName",
        provisioningClassName="string", parameters="{}string", managedResources="[]string", retryStrategy="object",
        podSetUpdates="object", podSetMergePolicy="string",
    ),
    "kueue.WorkloadPriorityClass": {
        "fields": {**_TOP, "value": "integer", "description": "string"}, "required": ["value"],
    },
    "autoscaling.ProvisioningRequest": _kind("#autoscaling.ProvisioningRequestSpec"),
    "autoscaling.ProvisioningRequestSpec": _type(
        "podSets provisioningClassName",
        podSets="[]#autoscaling.PodSet", provisioningClassName="string", parameters="{}string",
    ),
    "autoscaling.PodSet": _type("count podTemplateRef", count="integer", podTemplateRef="#autoscaling.Reference"),
    "autoscaling.Reference": _type(name="string"),
    "jobset.JobSet": _kind("#jobset.JobSetSpec"),
    "jobset.JobSetSpec": _type(
        replicatedJobs="[]#jobset.ReplicatedJob", network="#jobset.Network", successPolicy="#jobset.SuccessPolicy",
        failurePolicy="#jobset.FailurePolicy", startupPolicy="#jobset.StartupPolicy", suspend="boolean",
        coordinator="#jobset.Coordinator", managedBy="string", ttlSecondsAfterFinished="integer",
        volumeClaimPolicies="[]object",
    ),
    "jobset.ReplicatedJob": _type(
        "name template",
        name="string", groupName="string", template="#batch.v1.JobTemplateSpec", replicas="integer",
        dependsOn="[]#jobset.DependsOn",
    ),
    "jobset.DependsOn": _type("name", name="string", status="string"),
    "jobset.Network": _type(enableDNSHostnames="boolean", subdomain="string", publishNotReadyAddresses="boolean"),
    "jobset.SuccessPolicy": _type(operator="string", targetReplicatedJobs="[]string"),
    "jobset.FailurePolicy": _type(
        maxRestarts="integer", restartStrategy="string", rules="[]#jobset.FailureRule", restartStrategyOptions="object"
    ),
    "jobset.FailureRule": _type(
        name="string", action="string", onJobFailureReasons="[]string", onJobFailureMessagePatterns="[]string",
        targetReplicatedJobs="[]string",
    ),
    "jobset.StartupPolicy": _type(startupPolicyOrder="string"),
    "jobset.Coordinator": _type(replicatedJob="string", jobIndex="integer", podIndex="integer"),
    "gke.ComputeClass": _kind("#gke.ComputeClassSpec"),
    "gke.ComputeClassSpec": _type(
        priorities="[]#gke.Priority", priorityDefaults="object", nodePoolAutoCreation="object", nodePoolConfig="object",
        activeMigration="#gke.ActiveMigration", autoscalingPolicy="object", whenUnsatisfiable="string",
        description="string", autopilot="object", nodePoolGroup="object",
    ),
    "gke.ActiveMigration": _type(optimizeRulePriority="boolean", ensureAllDaemonSetPodsRunning="boolean"),
    "gke.Priority": _type(
        machineFamily="string", machineType="string", minCores="integer", minMemoryGb="integer", spot="boolean",
        flexStart="#gke.FlexStart", gpu="#gke.Gpu", tpu="#gke.Tpu", nodepools="[]string", reservations="object",
        location="object", storage="object", placement="object", nodeSystemConfig="object",
        maxRunDurationSeconds="integer", maxPodsPerNode="integer", priorityScore="integer", minCpuPlatform="string",
        podFamily="string", acceleratorNetworkProfile="string", capacityCheckWaitTimeSeconds="integer",
        architecture="string", gvnic="object", secondaryBootDisks="any", bootDiskProfile="any",
        ephemeralLocalSsdProfile="any", dedicatedLocalSsdProfile="any", nodeLabels="{}string", taints="any",
        imageType="string", confidentialNodeType="string", serviceAccount="string", flex="any",
    ),
    "gke.FlexStart": _type(enabled="boolean", nodeRecycling="#gke.NodeRecycling"),
    "gke.NodeRecycling": _type(leadTimeSeconds="integer"),
    "gke.Gpu": _type(
        type="string", count="integer", driverVersion="string", sharing="object", partitionSize="string",
        gpuPartitionSize="string", gpuDriverVersion="string", gpuSharing="object",
    ),
    "gke.Tpu": _type(type="string", count="integer", topology="string"),
}  # fmt: skip

KINDS: dict[str, str] = {
    "kueue.x-k8s.io/v1beta1/ClusterQueue": "kueue.ClusterQueue1",
    "kueue.x-k8s.io/v1beta2/ClusterQueue": "kueue.ClusterQueue2",
    "jobset.x-k8s.io/v1alpha2/JobSet": "jobset.JobSet",
    "cloud.google.com/v1/ComputeClass": "gke.ComputeClass",
    "autoscaling.x-k8s.io/v1/ProvisioningRequest": "autoscaling.ProvisioningRequest",
    "autoscaling.x-k8s.io/v1beta1/ProvisioningRequest": "autoscaling.ProvisioningRequest",
}
for _version in ("v1beta1", "v1beta2"):
    for _name in (
        "LocalQueue",
        "ResourceFlavor",
        "AdmissionCheck",
        "ProvisioningRequestConfig",
        "WorkloadPriorityClass",
    ):
        KINDS[f"kueue.x-k8s.io/{_version}/{_name}"] = f"kueue.{_name}"
