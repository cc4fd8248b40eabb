"""Schemas of custom resources that no published set carries, written field by field after their own definitions.

Read on 2026-11-15:

- Kueue: ``apis/kueue/v1beta1`` and ``v1beta2`` of kubernetes-sigs/kueue (Go types and their kubebuilder marks);
- JobSet: ``api/jobset/v1alpha2/jobset_types.go`` of kubernetes-sigs/jobset;
- LeaderWorkerSet: ``api/leaderworkerset/v1/leaderworkerset_types.go`` of kubernetes-sigs/lws (read 2026-11-16);
- ProvisioningRequest: ``cluster-autoscaler/apis/config/crd`` of kubernetes/autoscaler, v1 and v1beta1 being the same;
- ComputeClass ``cloud.google.com/v1``: the definition in GoogleCloudPlatform/compute-class-api (read 2026-11-18),
  plus the fields that only GKE's reference page has (typed ``any``);
- PodMonitoring, ClusterPodMonitoring and Rules ``monitoring.googleapis.com/v1``, PrometheusRule
  ``monitoring.coreos.com/v1``: the definitions as exported into datreeio/CRDs-catalog.

The grammar is that of ``tools/make_schemas.py``, and ``=A|B`` for a text that is one of these. Fields that a default or
a webhook fills in are not required here. These APIs still grow, so an unknown field is an error only when it is one
letter away from a known one, and no fix removes it.
"""

from __future__ import annotations

from typing import Any

_TOP = {"apiVersion": "string", "kind": "string", "metadata": "#meta.v1.ObjectMeta", "status": "any"}


def _kind(spec: str, required: str = "") -> dict[str, Any]:
    return {"fields": {**_TOP, "spec": spec}, "required": required.split()}


def _type(required: str = "", **fields: str) -> dict[str, Any]:
    return {"fields": fields, "required": required.split()}


_STOP = "=None|Hold|HoldAndDrain"
_CLUSTER_QUEUE = {
    "resourceGroups": "[]#kueue.ResourceGroup", "queueingStrategy": "=StrictFIFO|BestEffortFIFO",
    "namespaceSelector": "#meta.v1.LabelSelector", "preemption": "#kueue.Preemption", "stopPolicy": _STOP,
    "fairSharing": "#kueue.FairSharing", "admissionChecksStrategy": "#kueue.ChecksStrategy",
    "admissionScope": "#kueue.AdmissionScope", "excludeResourcePrefixes": "[]string",
}  # fmt: skip

_KUEUE: dict[str, dict[str, Any]] = {
    "kueue.ClusterQueue1": _kind("#kueue.ClusterQueueSpec1"),
    "kueue.ClusterQueueSpec1": _type(
        **_CLUSTER_QUEUE, cohort="string", admissionChecks="[]string", flavorFungibility="#kueue.Fungibility1"
    ),
    "kueue.ClusterQueue2": _kind("#kueue.ClusterQueueSpec2"),
    "kueue.ClusterQueueSpec2": _type(
        **_CLUSTER_QUEUE, cohortName="string", flavorFungibility="#kueue.Fungibility2",
        concurrentAdmissionPolicy="object",
    ),
    "kueue.Fungibility1": _type(
        whenCanBorrow="=Borrow|TryNextFlavor|MayStopSearch", whenCanPreempt="=Preempt|TryNextFlavor|MayStopSearch",
        preference="=BorrowingOverPreemption|PreemptionOverBorrowing",
    ),
    "kueue.Fungibility2": _type(
        whenCanBorrow="=MayStopSearch|TryNextFlavor", whenCanPreempt="=MayStopSearch|TryNextFlavor",
        preference="=BorrowingOverPreemption|PreemptionOverBorrowing",
    ),
    "kueue.ResourceGroup": _type(
        "coveredResources flavors", coveredResources="[]string", flavors="[]#kueue.FlavorQuotas"
    ),
    "kueue.FlavorQuotas": _type("name resources", name="string", resources="[]#kueue.ResourceQuota"),
    "kueue.ResourceQuota": _type(
        "name nominalQuota", name="string", nominalQuota="quantity", borrowingLimit="quantity", lendingLimit="quantity"
    ),
    "kueue.Preemption": _type(
        reclaimWithinCohort="=Never|LowerPriority|Any", borrowWithinCohort="#kueue.BorrowWithinCohort",
        withinClusterQueue="=Never|LowerPriority|LowerOrNewerEqualPriority",
    ),
    "kueue.BorrowWithinCohort": _type(policy="=Never|LowerPriority", maxPriorityThreshold="integer"),
    "kueue.FairSharing": _type(weight="quantity"),
    "kueue.AdmissionScope": _type(
        "admissionMode", admissionMode="=UsageBasedAdmissionFairSharing|NoAdmissionFairSharing"
    ),
    "kueue.ChecksStrategy": _type(admissionChecks="[]#kueue.CheckRule"),
    "kueue.CheckRule": _type("name", name="string", onFlavors="[]string"),
    "kueue.Cohort": _kind("#kueue.CohortSpec"),
    "kueue.CohortSpec": _type(
        parentName="string", resourceGroups="[]#kueue.ResourceGroup", fairSharing="#kueue.FairSharing"
    ),
    "kueue.LocalQueue": _kind("#kueue.LocalQueueSpec"),
    "kueue.LocalQueueSpec": _type(clusterQueue="string", stopPolicy=_STOP, fairSharing="#kueue.FairSharing"),
    "kueue.ResourceFlavor": _kind("#kueue.ResourceFlavorSpec"),
    "kueue.ResourceFlavorSpec": _type(
        nodeLabels="{}string", nodeTaints="[]#core.v1.Taint", tolerations="[]#core.v1.Toleration",
        topologyName="string", resourceWeights="{}quantity",
    ),
    "kueue.Topology": _kind("#kueue.TopologySpec"),
    "kueue.TopologySpec": _type("levels", levels="[]#kueue.TopologyLevel"),
    "kueue.TopologyLevel": _type("nodeLabel", nodeLabel="string"),
    "kueue.AdmissionCheck": _kind("#kueue.AdmissionCheckSpec"),
    "kueue.AdmissionCheckSpec": _type(
        "controllerName", controllerName="string", parameters="#kueue.CheckParameters", retryDelayMinutes="integer"
    ),
    "kueue.CheckParameters": _type("apiGroup kind name", apiGroup="string", kind="string", name="string"),
    "kueue.MultiKueueConfig": _kind("#kueue.MultiKueueConfigSpec"),
    "kueue.MultiKueueConfigSpec": _type("clusters", clusters="[]string"),
    "kueue.ProvisioningRequestConfig": _kind("#kueue.ProvisioningRequestConfigSpec"),
    "kueue.ProvisioningRequestConfigSpec": _type(
        "provisioningClassName",
        provisioningClassName="string", parameters="{}string", managedResources="[]string",
        retryStrategy="#kueue.RetryStrategy", podSetUpdates="#kueue.PodSetUpdates",
        podSetMergePolicy="=IdenticalPodTemplates|IdenticalWorkloadSchedulingRequirements",
    ),
    "kueue.RetryStrategy": _type(
        backoffLimitCount="integer", backoffBaseSeconds="integer", backoffMaxSeconds="integer"
    ),
    "kueue.PodSetUpdates": _type(nodeSelector="[]#kueue.NodeSelectorUpdate"),
    "kueue.NodeSelectorUpdate": _type(
        "key valueFromProvisioningClassDetail", key="string", valueFromProvisioningClassDetail="string"
    ),
    "kueue.WorkloadPriorityClass": {
        "fields": {**_TOP, "value": "integer", "description": "string"}, "required": ["value"],
    },
}  # fmt: skip

_JOBSET: dict[str, dict[str, Any]] = {
    "jobset.JobSet": _kind("#jobset.JobSetSpec"),
    "jobset.JobSetSpec": _type(
        replicatedJobs="[]#jobset.ReplicatedJob", network="#jobset.Network", successPolicy="#jobset.SuccessPolicy",
        failurePolicy="#jobset.FailurePolicy", startupPolicy="#jobset.StartupPolicy", suspend="boolean",
        coordinator="#jobset.Coordinator", managedBy="string", ttlSecondsAfterFinished="integer",
        volumeClaimPolicies="[]#jobset.VolumeClaimPolicy",
    ),
    "jobset.ReplicatedJob": _type(
        "name template",
        name="string", groupName="string", template="#batch.v1.JobTemplateSpec", replicas="integer",
        dependsOn="[]#jobset.DependsOn",
    ),
    "jobset.DependsOn": _type("name status", name="string", status="=Ready|Complete"),
    "jobset.Network": _type(enableDNSHostnames="boolean", subdomain="string", publishNotReadyAddresses="boolean"),
    "jobset.SuccessPolicy": _type("operator", operator="=All|Any", targetReplicatedJobs="[]string"),
    "jobset.FailurePolicy": _type(
        maxRestarts="integer", restartStrategy="=Recreate|BlockingRecreate|InPlaceRestart",
        rules="[]#jobset.FailureRule",
    ),
    "jobset.FailureRule": _type(
        "action",
        name="string",
        action="=FailJobSet|RestartJobSet|RestartJobSetAndIgnoreMaxRestarts|RestartJob|RestartJobAndIgnoreMaxRestarts",
        onJobFailureReasons="[]string", onJobFailureMessagePatterns="[]string", targetReplicatedJobs="[]string",
    ),
    "jobset.StartupPolicy": _type("startupPolicyOrder", startupPolicyOrder="=AnyOrder|InOrder"),
    "jobset.Coordinator": _type("replicatedJob", replicatedJob="string", jobIndex="integer", podIndex="integer"),
    "jobset.VolumeClaimPolicy": _type(
        templates="[]#core.v1.PersistentVolumeClaim", retentionPolicy="#jobset.VolumeRetention"
    ),
    "jobset.VolumeRetention": _type(whenDeleted="=Delete|Retain"),
}  # fmt: skip

_GKE: dict[str, dict[str, Any]] = {
    "gke.ComputeClass": _kind("#gke.ComputeClassSpec"),
    "gke.ComputeClassSpec": _type(
        priorities="[]#gke.Priority", priorityDefaults="#gke.PriorityDefaults",
        nodePoolAutoCreation="#gke.AutoCreation", nodePoolConfig="#gke.NodePoolConfig",
        activeMigration="#gke.ActiveMigration", autoscalingPolicy="#gke.AutoscalingPolicy",
        whenUnsatisfiable="=ScaleUpAnyway|DoNotScaleUp", description="string", autopilot="#gke.Enabled",
        nodePoolGroup="#gke.Named", minimumCapacity="any", allocationStrategyDefaults="object",
    ),
    "gke.Enabled": _type(enabled="boolean"),
    "gke.Named": _type("name", name="string"),
    "gke.AutoCreation": _type(
        enabled="boolean", shieldedInstanceConfig="any", dynamicBootDiskSize="boolean", dynamicMaxPodsPerNode="boolean"
    ),
    "gke.ActiveMigration": _type(optimizeRulePriority="boolean", ensureAllDaemonSetPodsRunning="boolean"),
    "gke.AutoscalingPolicy": _type(
        consolidationDelayMinutes="integer", consolidationThreshold="integer", gpuConsolidationThreshold="integer"
    ),
    "gke.PriorityDefaults": _type(
        location="#gke.Location", nodeSystemConfig="#gke.NodeSystemConfig", enableNestedVirtualization="boolean"
    ),
    "gke.NodePoolConfig": _type(
        autoRepair="boolean", autoUpgrade="boolean",
        confidentialNodeType="=CONFIDENTIAL_INSTANCE_TYPE_UNSPECIFIED|SEV|SEV_SNP|TDX", gvnic="#gke.Enabled",
        imageStreaming="#gke.Enabled", imageType="=cos_containerd|ubuntu_containerd|custom_containerd",
        ipType="=public|private", loggingConfig="object", nodeLabels="{}string", resourceManagerTags="[]object",
        serviceAccount="string",
        taints="[]#gke.Taint", workloadType="=HIGH_AVAILABILITY|HIGH_THROUGHPUT", dra="any", taintConfig="any",
        sandbox="any", customImageConfig="object", instanceMetadata="{}string", maintenanceExclusion="string",
        nodeDrainConfig="object", nodeVersion="string", tpu="object", workloadMetadata="=GCE_METADATA|GKE_METADATA",
    ),
    "gke.Taint": _type(effect="=NoSchedule|PreferNoSchedule|NoExecute", key="string", value="string"),
    "gke.Priority": _type(
        machineFamily="string", machineType="string", minCores="integer", minMemoryGb="integer", spot="boolean",
        flexStart="#gke.FlexStart", gpu="#gke.Gpu", tpu="#gke.Tpu", nodepools="[]string",
        reservations="#gke.Reservations", location="#gke.Location", storage="#gke.Storage",
        placement="#gke.Placement", nodeSystemConfig="#gke.NodeSystemConfig", maxRunDurationSeconds="integer",
        maxPodsPerNode="integer", minCpuPlatform="string", podFamily="=general-purpose|general-purpose-arm",
        nodeLabels="{}string",
        taints="[]#gke.Taint", capacityCheckWaitTimeSeconds="integer", priorityScore="any", architecture="any",
        acceleratorNetworkProfile="any", secondaryBootDisks="any", bootDiskProfile="any", gvnic="any",
        ephemeralLocalSsdProfile="any", dedicatedLocalSsdProfile="any", gpuDirect="string",
        allocationStrategy="=lowest-cost|fleet-efficiency", enableNestedVirtualization="boolean",
        instanceMetadata="{}string", minimumCapacity="object",
    ),
    "gke.FlexStart": _type(enabled="boolean", nodeRecycling="#gke.NodeRecycling"),
    "gke.NodeRecycling": _type("leadTimeSeconds", leadTimeSeconds="integer"),
    "gke.Gpu": _type(
        type="string", count="integer", driverVersion="=default|latest|autoinstall-disabled", sharing="any",
        gpuSharing="object", topology="string",
    ),
    "gke.Tpu": _type(type="string", count="integer", topology="string"),
    "gke.Location": _type(locationPolicy="=ANY|BALANCED", zones="[]string", zoneTypes="any"),
    "gke.Placement": _type("policyName", policyName="string"),
    "gke.Reservations": _type(
        "affinity", affinity="=Specific|AnyBestEffort|None|AnyThenFail", specific="[]#gke.SpecificReservation"
    ),
    "gke.SpecificReservation": _type(
        "name", name="string", project="string", zones="[]string", reservationBlock="object"
    ),
    "gke.Storage": _type(
        bootDiskKMSKey="string", bootDiskSize="integer", localSSDCount="integer", bootDiskType="string",
        secondaryBootDisks="[]#gke.SecondaryBootDisk", bootDiskProvisionedIops="integer",
        bootDiskProvisionedThroughput="integer", bootDiskStoragePools="[]string",
    ),
    "gke.SecondaryBootDisk": _type(
        "diskImageName", diskImageName="string", project="string", mode="=MODE_UNSPECIFIED|CONTAINER_IMAGE_CACHE"
    ),
    "gke.NodeSystemConfig": _type(kubeletConfig="#gke.KubeletConfig", linuxNodeConfig="object"),
    "gke.KubeletConfig": _type(
        allowedUnsafeSysctls="[]string", containerLogMaxFiles="integer", containerLogMaxSize="string",
        cpuCfsQuota="boolean", cpuCfsQuotaPeriod="string", cpuManagerPolicy="=none|static",
        evictionMaxPodGracePeriodSeconds="integer", evictionMinimumReclaim="object", evictionSoft="object",
        evictionSoftGracePeriod="object", imageGcHighThresholdPercent="integer", imageGcLowThresholdPercent="integer",
        imageMaximumGcAge="string", imageMinimumGcAge="string", maxParallelImagePulls="integer",
        podPidsLimit="integer", singleProcessOOMKill="boolean", memoryManager="any", topologyManager="any",
        shutdownGracePeriodSeconds="integer", shutdownGracePeriodCriticalPodsSeconds="integer",
        containerLogMaxWorkers="integer", containerLogMonitorInterval="string", crashLoopBackOff="object",
        reservedResourcesConfig="object",
    ),
}  # fmt: skip

_OTHERS: dict[str, dict[str, Any]] = {
    "autoscaling.ProvisioningRequest": _kind("#autoscaling.ProvisioningRequestSpec", "spec"),
    "autoscaling.ProvisioningRequestSpec": _type(
        "podSets provisioningClassName",
        podSets="[]#autoscaling.PodSet", provisioningClassName="string", parameters="{}string",
    ),
    "autoscaling.PodSet": _type("count podTemplateRef", count="integer", podTemplateRef="#gke.Named"),
    "gmp.PodMonitoring": _kind("#gmp.PodMonitoringSpec", "spec"),
    "gmp.PodMonitoringSpec": _type(
        "endpoints selector",
        endpoints="[]#gmp.Endpoint", selector="#meta.v1.LabelSelector", targetLabels="#gmp.TargetLabels",
        limits="#gmp.Limits", filterRunning="boolean",
    ),
    "gmp.Endpoint": _type(
        "port",
        port="intstr", scheme="string", path="string", params="{}[]string", proxyUrl="string", interval="string",
        timeout="string", metricRelabeling="[]object", authorization="object", basicAuth="object", oauth2="object",
        tls="object",
    ),
    "gmp.TargetLabels": _type(fromPod="[]object", metadata="[]string"),
    "gmp.Limits": _type(labelNameLength="integer", labelValueLength="integer", labels="integer", samples="integer"),
    "gmp.Rules": _kind("#gmp.RulesSpec", "spec"),
    "gmp.RulesSpec": _type("groups", groups="[]#gmp.RuleGroup"),
    "gmp.RuleGroup": _type("interval name rules", interval="string", name="string", rules="[]#prometheus.Rule"),
    "prometheus.PrometheusRule": _kind("#prometheus.RuleSpec", "spec"),
    "prometheus.RuleSpec": _type(groups="[]#prometheus.RuleGroup"),
    "prometheus.RuleGroup": _type(
        "name",
        name="string", interval="string", labels="{}string", limit="integer", partial_response_strategy="string",
        query_offset="string", rules="[]#prometheus.Rule",
    ),
    "prometheus.Rule": _type(
        "expr", **{"for": "string"},
        alert="string", record="string", expr="intstr", labels="{}string", annotations="{}string",
        keep_firing_for="string",
    ),
}  # fmt: skip

_LWS: dict[str, dict[str, Any]] = {
    "lws.LeaderWorkerSet": _kind("#lws.Spec"),
    "lws.Spec": _type(
        "leaderWorkerTemplate",
        replicas="integer", leaderWorkerTemplate="#lws.Template", rolloutStrategy="#lws.Rollout",
        startupPolicy="=LeaderCreated|LeaderReady", networkConfig="#lws.Network",
    ),
    "lws.Template": _type(
        "workerTemplate",
        leaderTemplate="#core.v1.PodTemplateSpec", workerTemplate="#core.v1.PodTemplateSpec", size="integer",
        restartPolicy="=Default|RecreateGroupOnPodRestart|RecreateGroupAfterStart|None",
        subGroupPolicy="#lws.SubGroups", volumeClaimTemplates="[]#core.v1.PersistentVolumeClaim",
        persistentVolumeClaimRetentionPolicy="object",
    ),
    "lws.Rollout": _type(type="=RollingUpdate", rollingUpdateConfiguration="#lws.RollingUpdate"),
    "lws.RollingUpdate": _type(partition="integer", maxUnavailable="intstr", maxSurge="intstr"),
    "lws.SubGroups": _type(subGroupPolicyType="=LeaderWorker|LeaderExcluded", subGroupSize="integer"),
    "lws.Network": _type(subdomainPolicy="=Shared|UniquePerReplica"),
}  # fmt: skip

TYPES: dict[str, dict[str, Any]] = {**_KUEUE, **_JOBSET, **_LWS, **_GKE, **_OTHERS}

KINDS: dict[str, str] = {
    "kueue.x-k8s.io/v1beta1/ClusterQueue": "kueue.ClusterQueue1",
    "kueue.x-k8s.io/v1beta2/ClusterQueue": "kueue.ClusterQueue2",
    "kueue.x-k8s.io/v1alpha1/Topology": "kueue.Topology",
    "jobset.x-k8s.io/v1alpha2/JobSet": "jobset.JobSet",
    "leaderworkerset.x-k8s.io/v1/LeaderWorkerSet": "lws.LeaderWorkerSet",
    "cloud.google.com/v1/ComputeClass": "gke.ComputeClass",
    "autoscaling.x-k8s.io/v1/ProvisioningRequest": "autoscaling.ProvisioningRequest",
    "autoscaling.x-k8s.io/v1beta1/ProvisioningRequest": "autoscaling.ProvisioningRequest",
    "monitoring.coreos.com/v1/PrometheusRule": "prometheus.PrometheusRule",
}
for _version in ("v1beta1", "v1beta2"):
    for _name in ("LocalQueue", "ResourceFlavor", "AdmissionCheck", "ProvisioningRequestConfig",
                  "WorkloadPriorityClass", "Cohort", "Topology", "MultiKueueConfig"):  # fmt: skip
        KINDS[f"kueue.x-k8s.io/{_version}/{_name}"] = f"kueue.{_name}"
for _name in ("PodMonitoring", "ClusterPodMonitoring"):
    KINDS[f"monitoring.googleapis.com/v1/{_name}"] = "gmp.PodMonitoring"
for _name in ("Rules", "ClusterRules", "GlobalRules"):
    KINDS[f"monitoring.googleapis.com/v1/{_name}"] = "gmp.Rules"
