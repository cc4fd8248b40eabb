"""What must stay small: start to first item, memory of a worker, enqueue time, claims from deep queues, the audit.

    python benchmarks/queue_limits.py [--deep 10000000]

Goals: start to first item 0.5 s; idle worker 45 MB; enqueue 100,000 items/s; claiming from 10 million within 1.5 times
of claiming from 10 thousand; an audit of 10 million keys in bounded memory.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from reporting import SOURCE, parse, publish

sys.path.insert(0, str(SOURCE))

ENVIRONMENT = {**os.environ, "PYTHONPATH": str(SOURCE), "STAYFAST_METADATA": "off", "STAYFAST_OUTCOME_FILE": os.devnull}
STAYFAST = [sys.executable, "-c", "from stayfast.cli.main import entry; entry()"]
TASK = """
import stayfast, time
@stayfast.task(each=True)
def work(item):
    open("first", "a").write(f"{time.time()}\\n")
    if item["id"] == "k00000001": time.sleep(3)
    return 1
"""


def row(what: str, value: float, unit: str, goal: float, *, least: bool = False) -> dict[str, Any]:
    met = value >= goal if least else value <= goal
    return {"what": what, "value": round(value, 3), "unit": unit, "goal": goal, "met": met}


def enqueue(folder: Path, count: int) -> dict[str, Any]:
    source = folder / "items.jsonl"
    with source.open("w") as file:
        file.writelines(f'{{"id": "k{n:08d}", "v": {n}}}\n' for n in range(count))
    took = []
    for number in range(3):
        done = subprocess.run(
            [*STAYFAST, "enqueue", "--queue", f"sqlite://{folder}/e{number}.db", "--json", str(source)],
            env=ENVIRONMENT, capture_output=True, text=True, check=True,
        )  # fmt: skip
        took.append(json.loads(done.stdout)["seconds"])
    return row(
        f"enqueue {count} JSON lines into SQLite", count / statistics.median(took), "items/s", 100_000, least=True
    )


def start(folder: Path) -> list[dict[str, Any]]:
    """From typing the command to the first item in the task's hands, and the worker's memory while it waits."""
    (folder / "job.py").write_text(TASK)
    seconds, memory = [], []
    for number in range(5):
        url = f"sqlite://{folder}/s{number}.db"
        lines = '{"id": "k00000001"}\n'
        subprocess.run(
            [*STAYFAST, "enqueue", "--queue", url],
            input=lines,
            text=True,
            env=ENVIRONMENT,
            check=True,
            stdout=subprocess.DEVNULL,
        )
        first = folder / "first"
        first.unlink(missing_ok=True)
        started = time.time()
        command = [*STAYFAST, "work", "job:work", "--queue", url, "--sink", url]
        pool = subprocess.Popen(
            command, cwd=folder, env=ENVIRONMENT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        while not first.exists() or not first.read_text().strip():
            time.sleep(0.005)
        seconds.append(float(first.read_text().split()[0]) - started)
        time.sleep(0.5)
        child = int(Path(f"/proc/{pool.pid}/task/{pool.pid}/children").read_text().split()[0])
        status = Path(f"/proc/{child}/status").read_text()
        memory.append(next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS")) / 1024)
        pool.terminate()
        pool.wait()
    return [
        row("start of `stayfast work` to first item", statistics.median(seconds), "s", 0.5),
        row("resident memory of a worker", statistics.median(memory), "MB", 45),
    ]


def depth(folder: Path, deep: int) -> list[dict[str, Any]]:
    from stayfast.batch.queue.sqlite import SqliteQueue

    queues = {}
    for count in (10_000, deep):
        queues[count] = SqliteQueue(f"{folder}/depth{count}.db")
        queues[count].enqueue((f"k{n:09d}", "{}") for n in range(count))
    took: dict[int, list[float]] = {count: [] for count in queues}
    for _ in range(60):
        for count, queue in queues.items():
            started = time.perf_counter()
            leases = queue.claim(100)
            took[count].append(time.perf_counter() - started)
            queue.complete(leases)
    ratio = statistics.median(took[deep]) / statistics.median(took[10_000])
    result = [row(f"claim of 100 from {deep} items over claim from 10000", ratio, "times", 1.5)]
    for queue in queues.values():
        queue.close()
    return result


def audit(folder: Path, deep: int) -> dict[str, Any]:
    """Everything enqueued, nothing recorded: the list of missing keys is cut, so memory must not grow with it."""
    url = f"sqlite://{folder}/depth{deep}.db"
    from stayfast.batch.sink.sqlite import SqliteSink

    SqliteSink(f"{folder}/depth{deep}.db").close()
    script = (
        "import resource, sys; from stayfast.cli.main import main; code = main(sys.argv[1:]); "
        "print(code, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, "audit", "--queue", url, "--sink", url, "--json"],
        env=ENVIRONMENT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    code, peak = done.stderr.split()[-2:]
    assert code == "1"
    assert json.loads(done.stdout)["missing_count"] == deep
    return row(f"peak memory of an audit of {deep} keys", int(peak) / 1024, "MB", 64)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--deep", type=int, default=10_000_000)
    options = parse(parser)
    with tempfile.TemporaryDirectory(prefix="bench-limits-") as name:
        folder = Path(name)
        rows = [enqueue(folder, 300_000), *start(folder), *depth(folder, options.deep)]
        publish("queue_limits", rows, record=options.record, load_average=os.getloadavg())
        rows.append(audit(folder, options.deep))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    publish("queue_limits", rows, record=options.record, load_average=os.getloadavg(), own_peak_megabytes=round(peak))


if __name__ == "__main__":
    main()
