"""Just enough controllers behind the pretended API server to run the control-plane scenarios without a control plane.

They do what a real v1.36 was seen to do: the Job controller counts, ignores and backs off (10 s, 20 s, 40 s …, scaled
down), a pod's replacement waits for its end, the scheduler binds or says why not in its own words, a budget over Job
pods with ``maxUnavailable`` fails to sync. What they do proves nothing about Kubernetes; ``make test-cluster`` does.
"""

from __future__ import annotations

import copy
import threading
import time
from typing import Any

from servers.api_admission import JOBSET_NAME
from servers.api_objects import Object, Refusal, now
from servers.api_server import ApiServer
from stayfast.cluster.kubernetes.resources import ACCOUNTS, BUDGETS, EVENTS, JOB_SETS, JOBS, NAMESPACES, NODES, PODS

TICK_SECONDS = 0.02
JOBSET_GROUP, JOBSET_INDEX = "jobset.sigs.k8s.io/replicatedjob-name", "jobset.sigs.k8s.io/job-index"
TRACKED = "batch.kubernetes.io/job-tracking"


class Controllers:
    """One thread that goes round; ``scale`` shortens the Job controller's back-off."""

    def __init__(self, server: ApiServer, *, scale: float = 0.02) -> None:
        self._server, self._objects, self._scale = server, server.objects, scale
        server.objects.keeps_bound_pods = True
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._ended: dict[str, float] = {}
        self._number = 0

    def __enter__(self) -> Controllers:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(10)

    def _run(self) -> None:
        while not self._stop.wait(TICK_SECONDS):
            with self._objects.changed:
                for name in [name for _, name in self._objects.table(NAMESPACES)]:
                    if (name, "default") not in self._objects.table(ACCOUNTS):
                        self._objects.create(ACCOUNTS, name, {"metadata": {"name": "default"}})
                for job_set in list(self._objects.table(JOB_SETS).values()):
                    self._job_set(job_set)
                for job in list(self._objects.table(JOBS).values()):
                    self._job(job)
                self._release_pods()
                for pod in list(self._objects.table(PODS).values()):
                    self._schedule(pod)
                for budget in list(self._objects.table(BUDGETS).values()):
                    self._budget(budget)

    def _change(self, resource: Any, item: Object, **status: Any) -> None:
        merged = copy.deepcopy(item)
        merged.setdefault("status", {}).update(status)
        if merged.get("status") != item.get("status"):
            self._objects.put(resource, merged, "MODIFIED")

    # -- JobSets

    def _job_set(self, job_set: Object) -> None:
        """Its Jobs, each once: nothing is restarted here."""
        metadata = job_set["metadata"]
        for group in job_set["spec"].get("replicatedJobs") or []:
            for index in range(group.get("replicas", 1)):
                name, template = f"{metadata['name']}-{group['name']}-{index}", copy.deepcopy(group["template"])
                if (metadata["namespace"], name) in self._objects.table(JOBS):
                    continue
                marks = {JOBSET_NAME: metadata["name"], JOBSET_GROUP: group["name"], JOBSET_INDEX: str(index)}
                for each in (template, template["spec"]["template"]):
                    given = each.setdefault("metadata", {})
                    for kind in ("labels", "annotations"):
                        given[kind] = {**(given.get(kind) or {}), **marks}
                owner = {"kind": "JobSet", "name": metadata["name"], "uid": metadata["uid"], "controller": True}
                own = {**template["metadata"], "name": name, "ownerReferences": [owner]}
                job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": own, "spec": template["spec"]}
                self._objects.create(JOBS, metadata["namespace"], job)

    # -- Jobs

    def _job(self, job: Object) -> None:
        metadata, spec, status = job["metadata"], job["spec"], job.get("status") or {}
        if spec.get("suspend") or status.get("conditions"):
            return
        uid = job["metadata"]["uid"]
        pods = [pod for pod in self._objects.table(PODS).values() if _owner(pod) == uid]
        done = [pod for pod in pods if _phase(pod) == "Succeeded"]
        failed = [pod for pod in pods if _phase(pod) == "Failed"]
        for pod in done + failed:
            self._ended.setdefault(pod["metadata"]["uid"], time.monotonic())
        counted = [pod for pod in failed if not _is_ignored(pod, spec)]
        active = [pod for pod in pods if _phase(pod) in ("Pending", "Running")]
        wanted = spec.get("completions")
        if len(counted) > spec.get("backoffLimit", 6):
            self._change(JOBS, job, failed=len(counted), conditions=[_true("Failed", "BackoffLimitExceeded")])
            return
        if len(done) >= wanted if wanted is not None else bool(done) and not active:
            self._change(JOBS, job, succeeded=len(done), conditions=[_true("Complete")])
            return
        self._change(JOBS, job, active=len(active), succeeded=len(done), failed=len(counted))
        ends = sorted(self._ended[pod["metadata"]["uid"]] for pod in failed)
        pause = self._scale * min(600, 10 * 2 ** (len(ends) - 1)) if ends else 0.0
        if ends and time.monotonic() < ends[-1] + pause:
            return
        lacking = min(spec.get("parallelism", 1), (wanted or 1) - len(done)) - len(active)
        for _ in range(lacking):
            self._make_pod(job)
        # Too many: those without a node go first, then those that do not run.
        active.sort(key=lambda pod: (bool(pod["spec"].get("nodeName")), _phase(pod) == "Running"))
        for pod in active[: max(0, -lacking)]:
            self._objects.release(PODS, pod, TRACKED)
            self._objects.delete(PODS, metadata["namespace"], pod["metadata"]["name"], None)

    def _release_pods(self) -> None:
        """A pod stays until its Job has counted it; one whose Job is gone is not counted by anybody."""
        jobs = {item["metadata"]["uid"] for item in self._objects.table(JOBS).values()}
        for pod in list(self._objects.table(PODS).values()):
            counted = pod["metadata"]["uid"] in self._ended or _owner(pod) not in jobs
            if TRACKED in (pod["metadata"].get("finalizers") or []) and counted:
                self._objects.release(PODS, pod, TRACKED)

    def _make_pod(self, job: Object) -> None:
        metadata, template = job["metadata"], job["spec"]["template"]
        given = template.get("metadata") or {}
        self._number += 1
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": f"{metadata['name']}-{self._number:05d}",
                "namespace": metadata["namespace"],
                "labels": {**given.get("labels", {}), "batch.kubernetes.io/job-name": metadata["name"]},
                "annotations": given.get("annotations", {}),
                "finalizers": [TRACKED],
                "ownerReferences": [{"kind": "Job", "name": metadata["name"], "uid": metadata["uid"]}],
            },
            "spec": copy.deepcopy(template["spec"]),
            "status": {"phase": "Pending"},
        }
        try:
            self._objects.create(PODS, metadata["namespace"], self._objects.admit_pod(metadata["namespace"], pod))
        except Refusal as refusal:
            self._event(job, "FailedCreate", f"Error creating: {refusal}")

    def _event(self, about: Object, reason: str, message: str) -> None:
        metadata = about["metadata"]
        name = f"{metadata['name']}.{reason.lower()}"
        if (metadata["namespace"], name) in self._objects.table(EVENTS):
            return
        involved = {"kind": about["kind"], "name": metadata["name"], "uid": metadata["uid"]}
        event = {"metadata": {"name": name}, "involvedObject": involved, "reason": reason, "message": message}
        try:
            self._objects.create(EVENTS, metadata["namespace"], {**event, "lastTimestamp": now()})
        except Refusal:
            pass  # the namespace went away meanwhile

    # -- scheduling

    def _schedule(self, pod: Object) -> None:
        if _phase(pod) != "Pending" or pod["spec"].get("nodeName"):
            return
        nodes = list(self._objects.table(NODES).values())
        wanted, tolerated = pod["spec"].get("nodeSelector") or {}, pod["spec"].get("tolerations") or []
        elsewhere = tainted = full = 0
        for node in nodes:
            name = node["metadata"]["name"]
            if not wanted.items() <= (node["metadata"].get("labels") or {}).items():
                elsewhere += 1
                continue
            taints = node["spec"].get("taints") or []
            if any(taint["key"] not in {row.get("key") for row in tolerated} for taint in taints):
                tainted += 1
                continue
            here = [other for other in self._objects.table(PODS).values() if other["spec"].get("nodeName") == name]
            if len([other for other in here if _phase(other) in ("Pending", "Running")]) >= _room(node):
                full += 1
                continue
            bound = copy.deepcopy(pod)
            bound["spec"]["nodeName"] = node["metadata"]["name"]
            bound["status"]["conditions"] = [_true("PodScheduled")]
            self._objects.put(PODS, bound, "MODIFIED")
            return
        reasons = [f"{full} Too many pods"] if full else []
        reasons += [f"{tainted} node(s) had untolerated taint(s)"] if tainted else []
        reasons += [f"{elsewhere} node(s) didn't match Pod's node affinity/selector"] if elsewhere else []
        text = (
            f"0/{len(nodes)} nodes are available: {', '.join(reasons)}. no new claims to deallocate, preemption: "
            f"0/{len(nodes)} nodes are available: {len(nodes)} Preemption is not helpful for scheduling."
            if nodes
            else "no nodes available to schedule pods"
        )
        row = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": text}
        self._change(PODS, pod, conditions=[row])

    def _budget(self, budget: Object) -> None:
        wanted = ((budget["spec"].get("selector") or {}).get("matchLabels") or {}).items()
        pods = [
            pod
            for (namespace, _), pod in self._objects.table(PODS).items()
            if namespace == budget["metadata"]["namespace"] and wanted <= (pod["metadata"].get("labels") or {}).items()
        ]
        if "maxUnavailable" in budget["spec"]:
            text = "jobs.batch does not implement the scale subresource"
            row = {"type": "DisruptionAllowed", "status": "False", "reason": "SyncFailed", "message": text}
            self._change(BUDGETS, budget, disruptionsAllowed=0, conditions=[row])
            return
        least = budget["spec"].get("minAvailable", 0)
        self._change(
            BUDGETS, budget, disruptionsAllowed=0, desiredHealthy=least, currentHealthy=0, expectedPods=len(pods),
            observedGeneration=1,
        )  # fmt: skip


def _room(node: Object) -> int:
    return int(((node.get("status") or {}).get("allocatable") or {}).get("pods", 110))


def _owner(pod: Object) -> str:
    return next((ref["uid"] for ref in pod["metadata"].get("ownerReferences") or []), "")


def _phase(pod: Object) -> str:
    return str((pod.get("status") or {}).get("phase", "Pending"))


def _true(kind: str, reason: str = "") -> Object:
    return {"type": kind, "status": "True", "reason": reason, "lastTransitionTime": now()}


def _is_ignored(pod: Object, spec: Object) -> bool:
    """The first rule that matches decides."""
    codes = {
        row["name"]: row["state"]["terminated"]["exitCode"]
        for row in pod["status"].get("containerStatuses") or []
        if "terminated" in row.get("state", {})
    }
    targets = {row["type"] for row in pod["status"].get("conditions") or [] if row.get("status") == "True"}
    for rule in (spec.get("podFailurePolicy") or {}).get("rules") or []:
        on_codes, on_conditions = rule.get("onExitCodes"), rule.get("onPodConditions") or []
        if on_codes:
            chosen = [code for name, code in codes.items() if on_codes.get("containerName") in (None, name)]
            matched = any((code in on_codes["values"]) == (on_codes["operator"] == "In") for code in chosen)
        else:
            matched = any(row["type"] in targets for row in on_conditions)
        if matched:
            return bool(rule["action"] == "Ignore")
    return False
