"""What ``stayfast watch`` costs while nothing special happens: CPU at a steady rate of cluster events."""

from __future__ import annotations

import argparse
import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
import time
from typing import Any

from reporting import HERE, SOURCE, parse, publish
from status_speed import pod

sys.path[:0] = [str(SOURCE), str(HERE.parent / "tests")]


def serve(pods: int, rate: float, ready: Any) -> None:
    """The server's process: pods change one after the other."""
    from servers.api_server import ApiServer
    from stayfast.cluster.kubernetes.resources import JOBS, PODS

    with ApiServer() as server:
        server.bookmark_seconds = 60.0  # as the real one
        for number in range(max(1, pods // 50)):
            run = f"run-{number:03d}"
            metadata = {"name": run, "uid": run, "labels": {"stayfast.dev/run": run}}
            server.add(JOBS, {"metadata": metadata, "spec": {"parallelism": 40}})
        for number in range(pods):
            server.add(PODS, pod(number))
        ready.put(server.url)
        names = list(server.objects.table(PODS))
        due, turn = time.monotonic(), 0
        while True:
            namespace, name = names[turn % len(names)]
            server.objects.merge(PODS, namespace, name, {"metadata": {"annotations": {"turn": str(turn)}}}, {})
            if len(server.objects.history) > 2000:
                with server.objects.changed:
                    del server.objects.history[:1000]
            turn += 1
            due += 1 / rate
            time.sleep(max(0.0, due - time.monotonic()))


def cpu_seconds(pid: int) -> float:
    """User and system time of a process, from /proc."""
    with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rate", type=float, default=50.0)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--pods", type=int, nargs="+", default=[100, 1000])
    args = parse(parser)
    rows = []
    for pods in args.pods:
        context = multiprocessing.get_context("spawn")
        ready = context.Queue()
        server = context.Process(target=serve, args=(pods, args.rate, ready), daemon=True)
        server.start()
        url = ready.get(timeout=120)
        with tempfile.NamedTemporaryFile("w", suffix=".yaml") as config:
            config.write(
                "current-context: b\ncontexts: [{name: b, context: {cluster: c}}]\n"
                f"clusters: [{{name: c, cluster: {{server: '{url}'}}}}]\n"
            )
            config.flush()
            environment = {**os.environ, "KUBECONFIG": config.name, "PYTHONPATH": str(SOURCE)}
            command = [sys.executable, "-m", "stayfast", "watch", "-A"]
            watch = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            time.sleep(8)  # start-up and the first list are not what is measured
            before, started = cpu_seconds(watch.pid), time.monotonic()
            time.sleep(args.seconds)
            used, took = cpu_seconds(watch.pid) - before, time.monotonic() - started
            watch.send_signal(signal.SIGINT)
            _, _, usage = os.wait4(watch.pid, 0)
        server.terminate()
        server.join(10)
        rows.append({"pods": pods, "events_per_second": args.rate, "seconds": took, "cpu_percent": 100 * used / took,
                     "megabytes": usage.ru_maxrss / 1024})  # fmt: skip
    publish("watch_cpu", rows, record=args.record)


if __name__ == "__main__":
    main()
