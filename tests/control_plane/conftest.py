"""Scenarios for a control plane: a real one where ``STAYFAST_TEST_KUBECONFIG`` names it, else the pretended server.

No kubelet is needed: nodes are made through the API and kept alive by a thread, and what a kubelet would write into a
pod's status is written here. Everything lives in a namespace and under names of its own, and is removed at the end.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from servers.api_controllers import Controllers
from servers.api_server import ApiServer
from stayfast.clock import SystemClock, to_rfc3339
from stayfast.cluster.kubernetes.client import Client
from stayfast.cluster.kubernetes.endpoint import Endpoint
from stayfast.cluster.kubernetes.kubeconfig import find_endpoint
from stayfast.cluster.kubernetes.resources import (
    ACCOUNTS,
    JOB_SETS,
    JOBS,
    NAMESPACES,
    NODES,
    PODS,
    PRIORITY_CLASSES,
    Resource,
)
from stayfast.errors import ClusterError

VARIABLE = "STAYFAST_TEST_KUBECONFIG"
HEARTBEAT_SECONDS = 8.0
CLOCK = SystemClock()
Object = dict[str, Any]


class Plane:
    """A namespace on a control plane, and what a kubelet would do."""

    def __init__(self, client: Client, *, is_real: bool, server: ApiServer | None = None) -> None:
        self.client, self.is_real, self.server = client, is_real, server
        self.tag = "sf" + secrets.token_hex(3)
        self.namespace = f"stayfast-test-{self.tag}"
        self._nodes: list[str] = []
        self._room: dict[str, int] = {}
        self._classes: list[str] = []
        self._stop = threading.Event()
        self._beating = threading.Thread(target=self._beat, daemon=True)

    def open(self, labels: dict[str, str] | None = None) -> None:
        value = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self.namespace, "labels": labels or {}}}
        self.client.apply(NAMESPACES, None, value)
        if self.is_real:
            self.until(lambda: self.client.find(ACCOUNTS, self.namespace, "default"), "the default account")
            self._beating.start()

    def close(self) -> None:
        self._stop.set()
        for resource in (JOB_SETS, JOBS):  # first: they would replace the pods
            for name in self._listed(resource):
                with contextlib.suppress(ClusterError):
                    self.client.delete(resource, self.namespace, name)
        for _ in range(50 if self.is_real else 1):  # a controller may have been about to make one more
            pods = self._listed(PODS)
            for pod in pods:
                self.forget(pod)
            if not pods:
                break
            CLOCK.sleep(0.1)
        for resource, names in ((NODES, self._nodes), (PRIORITY_CLASSES, self._classes)):
            for name in names:
                with contextlib.suppress(ClusterError):
                    self.client.delete(resource, None, name)
        with contextlib.suppress(ClusterError):
            self.client.delete(NAMESPACES, None, self.namespace)

    def _listed(self, resource: Resource) -> list[str]:
        with contextlib.suppress(ClusterError):
            return [str(item["metadata"]["name"]) for item in self.client.list(resource, self.namespace)]
        return []

    # -- nodes

    def node(self, name: str, *, taints: list[Object] | None = None, labels: Object | None = None) -> str:
        """A node that is ready, has room, and that only our pods select."""
        full = f"{self.tag}-{name}"
        metadata = {"name": full, "labels": {"stayfast-test": self.tag, **(labels or {})}}
        spec = {"taints": taints or []}
        self.client.create(NODES, None, {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "spec": spec})
        self._nodes.append(full)
        self._report(full)
        # The control plane taints a node that has never been heard of; only its own controller takes that away.
        gone = {"node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"}
        if self.is_real:
            self.until(
                lambda: (
                    not gone & {taint["key"] for taint in self.client.get(NODES, None, full)["spec"].get("taints", [])}
                ),
                "the node to be ready",
            )
        return full

    def shrink(self, name: str, pods: int) -> None:
        """Room for only so many pods."""
        self._room[name] = pods
        self._report(name)

    def _report(self, name: str) -> None:
        now = to_rfc3339(CLOCK.wall())[:19] + "Z"
        room = {"cpu": "64", "memory": "256Gi", "pods": str(self._room.get(name, 110)), "nvidia.com/gpu": "8"}
        ready = {
            "type": "Ready",
            "status": "True",
            "reason": "KubeletReady",
            "lastHeartbeatTime": now,
            "lastTransitionTime": now,
        }
        status = {"capacity": room, "allocatable": room, "conditions": [ready]}
        self.client.merge(NODES, None, name, {"status": status}, subresource="status")

    def _beat(self) -> None:
        while not self._stop.wait(HEARTBEAT_SECONDS):
            for name in list(self._nodes):
                with contextlib.suppress(ClusterError):
                    self._report(name)

    # -- what a kubelet writes

    def run(self, pod: str) -> None:
        """It has started."""
        now = to_rfc3339(CLOCK.wall())[:19] + "Z"
        state = {"name": "main", "image": "x", "imageID": "x", "ready": True, "restartCount": 0, "started": True,
                 "state": {"running": {"startedAt": now}}}  # fmt: skip
        self._status(pod, {"phase": "Running", "startTime": now, "containerStatuses": [state]})

    def end(self, pod: str, code: int, *, target: str | None = None, message: str = "") -> None:
        """Its container has exited."""
        now = to_rfc3339(CLOCK.wall())[:19] + "Z"
        ended = {"exitCode": code, "reason": "Completed" if code == 0 else "Error", "finishedAt": now, "startedAt": now}
        if message:
            ended["message"] = message
        state = {
            "name": "main",
            "image": "x",
            "imageID": "x",
            "ready": False,
            "restartCount": 0,
            "state": {"terminated": ended},
        }
        status: Object = {"phase": "Succeeded" if code == 0 else "Failed", "containerStatuses": [state]}
        if target:
            row = {
                "type": "DisruptionTarget",
                "status": "True",
                "reason": target,
                "message": "test",
                "lastTransitionTime": now,
            }
            found = self.client.get(PODS, self.namespace, pod)
            status["conditions"] = [*(found.get("status") or {}).get("conditions", []), row]
        self._status(pod, status)

    def _status(self, pod: str, status: Object) -> None:
        self.client.merge(PODS, self.namespace, pod, {"status": status}, subresource="status")

    def forget(self, pod: str) -> None:
        """Delete it at once, as a kubelet confirms a deletion; nobody else would."""
        path = PODS.path(self.namespace, pod)
        options = {"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0}
        asked = self.client._asked("delete", PODS, self.namespace, pod)
        from stayfast.cluster.kubernetes.client import Payload

        with contextlib.suppress(ClusterError):
            self.client._object("DELETE", path, asked, {}, Payload(options))

    # -- looking

    def pods(self, job: str) -> list[Object]:
        return self.client.list(PODS, self.namespace, labels=f"batch.kubernetes.io/job-name={job}")

    def alive(self, job: str) -> list[Object]:
        return [pod for pod in self.pods(job) if pod["status"].get("phase") in ("Pending", "Running")]

    def job(self, name: str) -> Object:
        return self.client.get(JOBS, self.namespace, name)

    def conditions(self, job: str) -> dict[str, str]:
        rows = (self.job(job).get("status") or {}).get("conditions") or []
        return {row["type"]: row.get("reason", "") for row in rows if row.get("status") == "True"}

    def until(self, holds: Callable[[], Any], what: str, seconds: float = 60.0) -> Any:
        """Wait for something to become true."""
        deadline = CLOCK.monotonic() + seconds
        while True:
            found = holds()
            if found:
                return found
            assert CLOCK.monotonic() < deadline, f"{what} did not happen within {seconds:.0f} s"
            CLOCK.sleep(0.1)


def _real_client() -> Client | None:
    path = os.environ.get(VARIABLE)
    return Client(find_endpoint(kubeconfig=path)) if path else None


@pytest.fixture
def plane() -> Iterator[Plane]:
    """The real control plane, or the pretended server for what it can do."""
    client = _real_client()
    with contextlib.ExitStack() as stack:
        server = None
        if client is None:
            server = stack.enter_context(ApiServer())
            client = Client(Endpoint(server.url))
        stack.callback(client.close)
        opened = Plane(client, is_real=server is None, server=server)
        stack.callback(opened.close)
        opened.open()
        yield opened


@pytest.fixture
def controlled() -> Iterator[Plane]:
    """With controllers behind it: real ones, or those that repeat what was seen."""
    client = _real_client()
    with contextlib.ExitStack() as stack:
        pretended = client is None
        if client is None:
            server = stack.enter_context(ApiServer())
            stack.enter_context(Controllers(server))
            client = Client(Endpoint(server.url))
            # A real cluster has nodes of others: nothing here may depend on being alone.
            taint = {"key": "node-role.kubernetes.io/control-plane", "effect": "NoSchedule"}
            server.add(NODES, {"metadata": {"name": "of-others"}, "spec": {"taints": [taint]}})
        stack.callback(client.close)
        opened = Plane(client, is_real=not pretended)
        stack.callback(opened.close)
        opened.open()
        yield opened
