"""What ``stayfast exec --sync`` costs beside a program, and how soon a finished file is in the store.

Goals: under 2 % of one core for watching, a finished file noticed within 2 s. The processor time is the supervisor's
own; ``exec`` without ``--sync`` stands beside it. Seconds to the store count from the newest file that was
finished before a commit to that commit.

    python benchmarks/sync_overhead.py [--seconds 15]
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from reporting import SOURCE, parse, publish

STAYFAST = [sys.executable, "-m", "stayfast"]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(SOURCE), "STAYFAST_METADATA": "off"}
TICKS = os.sysconf("SC_CLK_TCK")
SETTLE_SECONDS = 4.0

WRITER = """
import os, sys, time
size, pause = int(sys.argv[1]), float(sys.argv[2])
data, number = os.urandom(size), 0
while True:
    time.sleep(pause)
    number += 1
    with open("d/model.tmp", "wb") as file:
        file.write(number.to_bytes(8, "big") + data[8:])
    os.replace("d/model.tmp", "d/model")
    print(number, time.time(), flush=True)
"""


def cpu_seconds(pid: int) -> float:
    """Of the process itself, without its children."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def megabytes(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM")) / 1024


def run(name: str, program: list[str], seconds: float, *, sync: bool, files: int = 0) -> dict[str, object]:
    """One program under the supervisor; its processor time over a stretch in which it has settled."""
    work = Path(tempfile.mkdtemp(prefix="stayfast-sync-"))
    try:
        (work / "d").mkdir()
        for number in range(files):
            (work / "d" / f"f{number:05d}").write_bytes(b"x" * 100)
        options = ["--sync", f"d=file://{work}/store"] if sync else []
        words = [*STAYFAST, "exec", *options, "--", *program]
        process = subprocess.Popen(words, cwd=work, env=ENVIRONMENT, stdout=subprocess.PIPE, text=True)
        time.sleep(SETTLE_SECONDS)
        before, started = cpu_seconds(process.pid), time.monotonic()
        latencies = watch(work / "store" / "HEAD.json", seconds) if sync else (time.sleep(seconds), [])[1]
        share = (cpu_seconds(process.pid) - before) / (time.monotonic() - started)
        memory = megabytes(process.pid)
        process.terminate()
        written = [float(line.split()[1]) for line in process.communicate(timeout=30)[0].splitlines()]
        delays = [min((head - at for at in written if at <= head), default=None) for head in latencies]
        known = [delay for delay in delays if delay is not None]
        return {
            "case": name,
            "cpu_percent": round(100 * share, 2),
            "peak_mb": round(memory, 1),
            "copies": len(latencies),
            "median_s_to_store": round(statistics.median(known), 2) if known else "-",
            "worst_s_to_store": round(max(known), 2) if known else "-",
        }
    finally:
        shutil.rmtree(work, ignore_errors=True)


def watch(head: Path, seconds: float) -> list[float]:
    """When HEAD.json was replaced, by its own time of modification."""
    seen: list[float] = []
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if head.exists():
            at = head.stat().st_mtime
            if not seen or seen[-1] != at:
                seen.append(at)
        time.sleep(0.02)
    return seen[1:]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=15.0)
    given = parse(parser)
    seconds = given.seconds
    sleeps = ["sleep", "1000"]
    writes = [sys.executable, "-c", WRITER]
    rows = [
        run("exec alone, program asleep", sleeps, seconds, sync=False),
        run("sync, 10 files, program asleep", sleeps, seconds, sync=True, files=10),
        run("sync, 2000 files, program asleep", sleeps, seconds, sync=True, files=2000),
        run("sync, 1 MB replaced every 5 s", [*writes, "1000000", "5"], seconds, sync=True, files=10),
        run("sync, 100 kB replaced every 0.5 s", [*writes, "100000", "0.5"], seconds, sync=True, files=10),
        run("sync, 50 MB replaced every 5 s", [*writes, "50000000", "5"], seconds, sync=True, files=10),
    ]
    publish("sync_overhead", rows, record=given.record, seconds=seconds, goal_cpu_percent=2, goal_seconds=2)


if __name__ == "__main__":
    main()
