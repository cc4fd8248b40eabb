"""``stayfast plan`` with 10,000 replays, the whole command: seconds, CPU seconds and memory, medians of 5.

    python benchmarks/plan_speed.py

Goals: under 3 s and under 500 MB. Wall time depends on what else the machine does; CPU time (user and system) is what
the command itself needs.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from reporting import SOURCE, parse, publish

REPEATS = 5
WALL_GOAL_SECONDS, MEMORY_GOAL_MB = 3.0, 500.0
COMMON = """\
name: bench
kind: {kind}
image: us-docker.pkg.dev/p/r/i:v1
command: [python, main.py]
accelerator: {{type: {type}, count: {count}}}
nodes: {nodes}
work: {{hours: {hours}}}
{deadline}state: {{size: {size}, checkpoints: gs://b/r}}
location: {{region: us-central1}}
"""
SPECS = {
    "sweep on one L4": {"kind": "sweep", "type": "l4", "count": 1, "nodes": 1, "hours": 25, "deadline": ""},
    "training on 2 x 8 H100": {"kind": "train", "type": "h100", "count": 8, "nodes": 2, "hours": 72},
    "training on 16 x 8 H100": {"kind": "train", "type": "h100", "count": 8, "nodes": 16, "hours": 300},
}


def one(path: Path, *more: str) -> tuple[float, float, float]:
    """Wall seconds, CPU seconds and megabytes of one command."""
    environment = {**os.environ, "PYTHONPATH": str(SOURCE), "STAYFAST_CATALOGUE": str(path.with_name("none.json"))}
    command = [sys.executable, "-m", "stayfast", "plan", "-f", str(path), "--replays", "10000", "--json", *more]
    begun = time.perf_counter()
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode in (0, 4), process.returncode
    return time.perf_counter() - begun, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1000


def main() -> int:
    record = parse(argparse.ArgumentParser(description=__doc__)).record
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        for name, values in SPECS.items():
            path = Path(folder) / "stayfast.yaml"
            hours = int(str(values["hours"]))
            path.write_text(COMMON.format(**{"size": "40GB", "deadline": f"deadline: {hours * 2}h\n", **values}))
            for more in ((), ("--html", str(Path(folder) / "report.html"))):
                wall, cpu, memory = zip(*(one(path, *more) for _ in range(REPEATS)), strict=True)
                rows.append(
                    {
                        "workload": name + (", with the page" if more else ""),
                        "wall_seconds": statistics.median(wall),
                        "cpu_seconds": statistics.median(cpu),
                        "memory_mb": max(memory),
                        "goal_reached": statistics.median(wall) < WALL_GOAL_SECONDS and max(memory) < MEMORY_GOAL_MB,
                    }
                )
    publish("plan_speed", rows, record=record, replays=10_000, repeats=REPEATS)
    return int(not all(row["goal_reached"] for row in rows))


if __name__ == "__main__":
    sys.exit(main())
