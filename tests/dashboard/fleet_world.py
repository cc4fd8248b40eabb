"""A cluster with one run of every sort, as of now, for the pretended API server; and a kubeconfig for it."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from cluster import scenarios
from cluster.scenarios import (
    at,
    condition,
    ended,
    event,
    interrupted,
    job,
    local_queue,
    node,
    pod,
    unschedulable,
    waiting,
    workload,
)
from servers.api_server import ApiServer
from stayfast.cluster.kubernetes.resources import (
    CONFIG_MAPS,
    EVENTS,
    JOBS,
    LOCAL_QUEUES,
    NODES,
    PODS,
    PROVISIONING_REQUESTS,
    WORKLOADS,
    Resource,
)
from stayfast.cluster.observed.snapshot import Snapshot

_KINDS = (JOBS, PODS, NODES, WORKLOADS, PROVISIONING_REQUESTS, CONFIG_MAPS, EVENTS, LOCAL_QUEUES)
KINDS = {kind.kind: kind for kind in _KINDS}
Object = dict[str, Any]


def settings(run: str, capacity: str, **more: str) -> Object:
    metadata = {"name": f"{run}-settings", "namespace": "ml", "labels": {"stayfast.dev/run": run}}
    return {"kind": "ConfigMap", "metadata": metadata, "data": {"STAYFAST_CAPACITY": capacity, **more}}


def objects(run_url: str = "gs://bucket/runs/llm-7") -> list[Object]:
    """Running and interrupted before, waiting in three ways, on a lease, failed, finished."""
    with scenarios.seen_at(time.time()):
        return _objects(run_url)


def _objects(run_url: str) -> list[Object]:
    price = {"STAYFAST_USD_PER_HOUR": "32.4"}
    llm = [job("llm-7", uid="j1", ago=32_000), settings("llm-7", "spot", RUN_URL=run_url, **price)]
    llm += [interrupted(f"llm-7-{n}", owner="j1", run="llm-7", ago=9000.0 * n, metadata={}) for n in (1, 2)]
    llm += [pod("llm-7-3", owner="j1", run="llm-7", phase="Running", node="n1", ago=8800)]
    stuck = pod(
        "labels-a", owner="j2", run="labels", ago=1900, selector=scenarios.SPOT,
        conditions=unschedulable("0/12 nodes are available: 12 Insufficient nvidia.com/gpu, 3 node(s) had a taint"),
    )  # fmt: skip
    labels = [job("labels", uid="j2", ago=2000), settings("labels", "spot"), stuck]
    labels += [event(stuck, "FailedScaleUp", "Node scale up in zones us-central1-a failed: GCE out of resources.")]
    flex = [job("vision-flex", uid="j3", ago=5400, labels={"kueue.x-k8s.io/queue-name": "gpus"}, suspend=True)]
    flex += [workload(owner="j3", name="job-vision-flex"), local_queue(), settings("vision-flex", "flex-start")]
    lease = {"node.gke.io/machine-termination-datetime": at(-2400)}
    sweep = [job("sweep", uid="j4", ago=600_000), settings("sweep", "flex-start", STAYFAST_USD_PER_HOUR="5.1")]
    sweep += [pod("sweep-0", owner="j4", run="sweep", phase="Running", node="n2", ago=590_000)]
    evaluation = [job("eval", uid="j5", ago=700), settings("eval", "on-demand")]
    evaluation += [
        pod(
            "eval-0", owner="j5", run="eval", ago=650, node="n1",
            containerStatuses=waiting("ImagePullBackOff", 'Back-off pulling image "us-docker.pkg.dev/p/r/eval:v9"'),
        )
    ]  # fmt: skip
    failed = [job("ablation", uid="j6", ago=90_000, status={"conditions": [condition("Failed", reason="BackoffLimitExceeded", message="Job has reached the specified backoff limit")]})]  # fmt: skip # noqa: E501
    failed += [pod("ablation-0", owner="j6", run="ablation", phase="Failed", containerStatuses=ended(1, ago=80_000))]
    done = [job("warm-up", uid="j7", ago=200_000, status={"conditions": [condition("Complete")]})]
    nodes = [node("n1"), node("n2", metadata={"annotations": lease})]
    return [*llm, *labels, *flex, *sweep, *evaluation, *failed, *done, *nodes]


def observed(*values: Object) -> Snapshot:
    found = Snapshot(time.time())
    for value in values or objects():
        found.add(KINDS[value["kind"]], value)
    return found


def fill(server: ApiServer, values: list[Object] | None = None) -> None:
    for value in values or objects():
        resource: Resource = KINDS[value["kind"]]
        server.add(resource, value, "ml" if resource.namespaced else "")


def write_kubeconfig(folder: Path, url: str, context: str = "gke-research") -> Path:
    path = folder / "kubeconfig"
    path.write_text(
        f"""\
apiVersion: v1
kind: Config
current-context: {context}
contexts:
- name: {context}
  context: {{cluster: c, user: u, namespace: ml}}
clusters:
- name: c
  cluster: {{server: "{url}"}}
users:
- name: u
  user: {{}}
"""
    )
    return path
