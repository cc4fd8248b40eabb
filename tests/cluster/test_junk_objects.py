"""Objects with anything anywhere: whatever a cluster says, the pure functions answer and never crash."""

from __future__ import annotations

import copy
import os
import random
from typing import Any

import pytest

from cluster.scenarios import (
    NOW,
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
from stayfast.cluster.diagnosis.diagnose import diagnose
from stayfast.cluster.kubernetes.resources import (
    EVENTS,
    JOB_SETS,
    JOBS,
    LOCAL_QUEUES,
    NODES,
    PODS,
    PROVISIONING_REQUESTS,
    WORKLOADS,
)
from stayfast.cluster.observed.capabilities import ClusterDescription, check_capabilities
from stayfast.cluster.observed.runs import summarize
from stayfast.cluster.observed.snapshot import Snapshot
from stayfast.cluster.watch.actions.action import ACTIONS, plan_actions
from stayfast.cluster.watch.alerts import find_alerts
from stayfast.cluster.watch.metrics import exposition

ROUNDS = 400
JUNK: list[Any] = [
    None,
    0,
    -1,
    True,
    "",
    "x",
    "2026-99-99T00:00:00Z",
    [],
    [None],
    ["a"],
    {},
    {"a": None},
    1e308,
    "\x00",
    [[]],
]


def world() -> list[tuple[Any, dict[str, Any]]]:
    """One of everything."""
    gang = {**job("gang", uid="js"), "kind": "JobSet", "status": {"restarts": 1, "conditions": []}}
    child = job("gang-0", uid="c")
    child["metadata"]["ownerReferences"] = [{"kind": "JobSet", "uid": "js"}]
    lease = {"annotations": {"node.gke.io/machine-termination-datetime": at(-60)}}
    stuck = pod("w", containerStatuses=waiting("ImagePullBackOff"), node="n1", metadata={"deletionTimestamp": at(600)})
    return [
        (JOBS, job()),
        (JOBS, queued_job(uid="q")),
        (JOBS, child),
        (JOB_SETS, gang),
        (PODS, pod(conditions=unschedulable("0/1 nodes are available: 1 Insufficient cpu."))),
        (PODS, interrupted("i")),
        (PODS, pod("f", phase="Failed", containerStatuses=ended(1, message='{"outcome":"failed"}'))),
        (PODS, stuck),
        (PODS, pod("g", owner="c", phase="Running", node="n1")),
        (EVENTS, event(job(), "FailedCreate", "Error creating: exceeded quota: x")),
        (WORKLOADS, workload(condition("QuotaReserved"), owner="q", admissionChecks=[{"name": "a", "state": "Retry"}])),
        (PROVISIONING_REQUESTS, request(condition("Accepted", ago=90_000))),
        (LOCAL_QUEUES, local_queue()),
        (NODES, node(metadata=lease)),
    ]


def spoil(value: Any, dice: random.Random) -> None:
    """Replace something inside by junk."""
    while isinstance(value, dict | list) and value:
        key = dice.choice(list(value)) if isinstance(value, dict) else dice.randrange(len(value))
        if dice.random() < 0.4 or not isinstance(value[key], dict | list) or not value[key]:
            value[key] = copy.deepcopy(dice.choice(JUNK))
            return
        value = value[key]


@pytest.mark.parametrize("part", range(4))
def test_anything_anywhere(part: int) -> None:
    seed = int(os.environ.get("STAYFAST_SEED", "20261115")) + part
    dice = random.Random(seed)
    for turn in range(ROUNDS // 4):
        observed = Snapshot(NOW)
        for resource, value in world():
            for _ in range(dice.randrange(3)):
                spoil(value, dice)
            observed.add(resource, value)
        try:
            rows = summarize(observed)
            alerts = find_alerts(observed)
            plan_actions(observed, set(ACTIONS.names()))
            exposition(observed, rows, alerts, {})
            for resource in (JOBS, JOB_SETS, PODS):
                for root in observed.of(resource):
                    diagnose(observed, root)
            check_capabilities(
                ClusterDescription("v1.36.0-gke.1", {}, observed.of(NODES), {"nodePools": dice.choice(JUNK)})
            )
        except Exception as error:
            raise AssertionError(f"seed {seed}, turn {turn}: {error!r}") from error
