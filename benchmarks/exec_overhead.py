"""What the command line costs: start-up of ``--help`` and ``exec`` against a bare interpreter, and exec's memory.

Goals: --help under 150 ms, exec under 100 ms and under 30 MB.

    python benchmarks/exec_overhead.py [--repeats 25]
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

from reporting import SOURCE, parse, publish

STAYFAST = [sys.executable, "-m", "stayfast"]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(SOURCE), "STAYFAST_METADATA": "off"}


def milliseconds(command: list[str]) -> tuple[float, float]:
    """Wall and processor time of one run; on a busy machine only the second means anything."""
    started = time.perf_counter()
    process = subprocess.Popen(command, env=ENVIRONMENT, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    wall = (time.perf_counter() - started) * 1000
    assert status == 0, command
    process.returncode = 0
    return wall, (usage.ru_utime + usage.ru_stime) * 1000


def resident_megabytes(command: list[str]) -> float:
    """Of the process itself while its child runs."""
    process = subprocess.Popen(command, env=ENVIRONMENT, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    process.stdout.readline()
    status = Path(f"/proc/{process.pid}/status").read_text()
    process.terminate()
    process.wait()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM")) / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=25)
    options = parse(parser)
    commands = {
        "bare: python -c pass": ([sys.executable, "-c", "pass"], 0.0),
        "python -c 'import stayfast'": ([sys.executable, "-c", "import stayfast"], 50.0),
        "stayfast --version": ([*STAYFAST, "--version"], 150.0),
        "stayfast --help": ([*STAYFAST, "--help"], 150.0),
        "stayfast exec -- true": ([*STAYFAST, "exec", "--", "true"], 100.0),
    }
    for command, _ in commands.values():
        milliseconds(command)  # bytecode and page cache
    took: dict[str, list[tuple[float, float]]] = {name: [] for name in commands}
    for _ in range(options.repeats):
        for name, (command, _) in commands.items():
            took[name].append(milliseconds(command))
    middle = {name: [statistics.median(column) for column in zip(*took[name], strict=True)] for name in commands}
    bare_wall, bare_cpu = next(iter(middle.values()))
    rows = []
    for name, (_, goal) in commands.items():
        wall, cpu = middle[name]
        best = min(value for value, _ in took[name])
        cost = cpu - bare_cpu if "import" in name else cpu
        rows.append(
            {
                "command": name,
                "best_ms": round(best, 1),
                "median_ms": round(wall, 1),
                "cpu_ms": round(cpu, 1),
                "ratio_to_bare": round(wall / bare_wall, 2),
                "cpu_ratio_to_bare": round(cpu / bare_cpu, 2),
                "goal_ms": goal or "-",
                "cpu_within_goal": cost < goal if goal else "no goal",
            }
        )
    memory = resident_megabytes([*STAYFAST, "exec", "--", "sh", "-c", "echo up; sleep 5"])
    bare = resident_megabytes([sys.executable, "-c", "import time; print('up', flush=True); time.sleep(5)"])
    peaks = {"exec_peak_mb": round(memory, 1), "bare_peak_mb": round(bare, 1)}
    publish("exec_overhead", rows, record=options.record, **peaks, repeats=options.repeats)
    print(f"exec at its peak: {memory:.1f} MB (bare interpreter {bare:.1f} MB, goal 30 MB)")


if __name__ == "__main__":
    main()
