"""``stayfast status`` on a crowded namespace: time and memory of the whole command, beside reading and parsing alone.

The server is the pretended one of the tests, in a process of its own, with pods of 6-7 kB (managed fields included);
its lists are kept as bytes, so that its own speed does not count.
Beside it: the same list in the same pages with ``http.client`` and ``json.loads``.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import statistics
import subprocess
import sys
import tempfile
from typing import Any

from reporting import HERE, SOURCE, parse, publish

sys.path[:0] = [str(SOURCE), str(HERE.parent / "tests")]

PLAIN = """
import http.client, json, sys, urllib.parse
path = "/api/v1/pods?limit=500&labelSelector=stayfast.dev%2Frun"
c = http.client.HTTPConnection("127.0.0.1", int(sys.argv[1]))
n, token = 0, ""
while True:
    c.request("GET", path + "&continue=" + urllib.parse.quote(token))
    body = json.loads(c.getresponse().read())
    n += len(body["items"]); token = body["metadata"].get("continue", "")
    if not token: break
print(n)
"""


def pod(number: int) -> dict[str, Any]:
    """One pod, as large as real ones are."""
    managed = [
        {"manager": f"m{index}", "operation": "Update", "fieldsV1": {f"f:k{key}": {} for key in range(60)}}
        for index in range(3)
    ]
    env = [{"name": f"VARIABLE_{index}", "value": "x" * 40} for index in range(25)]
    failed = number % 5 == 0
    status: dict[str, Any] = {"phase": "Failed" if failed else "Running", "startTime": "2026-11-15T10:00:00Z"}
    kinds = ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled")
    since = "2026-11-15T10:00:00Z"
    status["conditions"] = [{"type": kind, "status": "True", "lastTransitionTime": since} for kind in kinds]
    if failed:
        status["conditions"].append({"type": "DisruptionTarget", "status": "True", "reason": "TerminationByKubelet"})
    state = {"terminated": {"exitCode": 75}} if failed else {"running": {"startedAt": "2026-11-15T10:00:00Z"}}
    status["containerStatuses"] = [{"name": "main", "image": "x" * 90, "imageID": "y" * 120, "state": state}]
    run = f"run-{number // 50:03d}"
    return {
        "metadata": {
            "name": f"{run}-{number:05d}", "labels": {"stayfast.dev/run": run, "app.kubernetes.io/name": run},
            "ownerReferences": [{"kind": "Job", "uid": run}], "managedFields": managed,
        },
        "spec": {
            "nodeName": f"node-{number}", "nodeSelector": {"cloud.google.com/gke-spot": "true"},
            "containers": [{"name": "main", "image": "x" * 90, "env": env}],
            "volumes": [{"name": f"v{index}", "projected": {"sources": [{"x": "y" * 60}]}} for index in range(8)],
        },
        "status": status,
    }  # fmt: skip


def serve(pods: int, ready: Any) -> None:
    """The server's process."""
    from servers.api_server import ApiServer
    from stayfast.cluster.kubernetes.resources import JOBS, PODS

    with ApiServer() as server:
        for number in range(pods // 50):
            run = f"run-{number:03d}"
            metadata = {"name": run, "uid": run, "labels": {"stayfast.dev/run": run}}
            server.add(JOBS, {"metadata": metadata, "spec": {"parallelism": 40}})
        for number in range(pods):
            server.add(PODS, pod(number))
        server.objects.history.clear()
        server.kept_lists = {}
        ready.put(server.url)
        multiprocessing.Event().wait()


def measure(command: list[str], environment: dict[str, str]) -> tuple[float, float, float, str]:
    """Wall seconds, CPU seconds, megabytes and output of a process."""
    import time

    started = time.monotonic()
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE)
    assert process.stdout is not None
    out = process.stdout.read().decode()
    _, status, usage = os.wait4(process.pid, 0)
    assert status == 0, out
    return time.monotonic() - started, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024, out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pods", type=int, default=5000)
    parser.add_argument("--repeats", type=int, default=5)
    args = parse(parser)
    context = multiprocessing.get_context("spawn")
    ready = context.Queue()
    process = context.Process(target=serve, args=(args.pods, ready), daemon=True)
    process.start()
    url = ready.get(timeout=120)
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as config:
        config.write(
            "current-context: b\ncontexts: [{name: b, context: {cluster: c}}]\n"
            f"clusters: [{{name: c, cluster: {{server: '{url}'}}}}]\n"
        )
        config.flush()
        environment = {**os.environ, "KUBECONFIG": config.name, "PYTHONPATH": str(SOURCE)}
        ours = [sys.executable, "-m", "stayfast", "status", "-A", "--json"]
        plain = [sys.executable, "-c", PLAIN, url.rpartition(":")[2]]
        runs: dict[str, list[tuple[float, float, float]]] = {"list and parse alone": [], "stayfast status -A": []}
        for _ in range(args.repeats + 1):  # interleaved: both see the same machine; the first turn fills the server
            *numbers, out = measure(plain, environment)
            assert int(out) == args.pods
            runs["list and parse alone"].append(tuple(numbers))
            *numbers, out = measure(ours, environment)
            assert len(json.loads(out)["runs"]) == args.pods // 50
            runs["stayfast status -A"].append(tuple(numbers))
    process.terminate()
    process.join(10)
    rows = []
    base = statistics.median(cpu for _, cpu, _ in runs["list and parse alone"][1:])
    for name, found in runs.items():
        wall, cpu = (statistics.median(column) for column in list(zip(*found[1:], strict=True))[:2])
        megabytes = max(size for _, _, size in found)
        rows.append({"what": name, "pods": args.pods, "wall_seconds": wall, "cpu_seconds": cpu, "cpu_ratio": cpu / base,
                     "megabytes": megabytes})  # fmt: skip
    publish("status_speed", rows, record=args.record, repeats=args.repeats, pod_bytes=len(json.dumps(pod(0))))


if __name__ == "__main__":
    main()
