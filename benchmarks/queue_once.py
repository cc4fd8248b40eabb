"""One measured run in a process of its own: ``queue_once.py WHO PLACE COUNT CHUNK [PREFETCH]``.

It prints seconds, CPU seconds, and how many transactions were committed, so that nobody is compared with a loop that
goes to the disk more often, or less.
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any

from reporting import SOURCE

sys.path.insert(0, str(SOURCE))

import queue_plain_loop

os.environ["STAYFAST_OUTCOME_FILE"] = os.devnull


class Counter:
    """Counts the transactions of a queue, or of a sink of its own; joining one that is open is not another."""

    def __init__(self) -> None:
        self.commits = 0

    def watch(self, place: Any, name: str) -> None:
        """Count the outermost calls of this method from now on."""
        original = getattr(place, name)
        owner = getattr(place, "_database", place)

        def counted(*args: Any, **options: Any) -> Any:
            if not getattr(owner, "_depth", 0) and options.get("transaction") is None:
                self.commits += 1
            return original(*args, **options)

        setattr(place, name, counted)


def ours(queue_url: str, sink_url: str, chunk: int, prefetch: int) -> int:
    """What a worker process of ``stayfast work`` does; returns the number of commits."""
    from stayfast.batch.queue.open_queue import open_queue
    from stayfast.batch.sink.open_sink import open_sink
    from stayfast.batch.worker.task import Task
    from stayfast.batch.worker.worker import Worker, WorkerOptions
    from stayfast.runtime.interruption.guard import Guard

    queue, sink = open_queue(queue_url, sink=sink_url), open_sink(sink_url)
    task = Task(lambda batch: [1] * len(batch), key=None, each=False)
    counter = Counter()
    if queue.database is not None:
        counter.watch(queue, "batch")
    counter.watch(sink, "record_all")
    with Guard() as guard:
        Worker(task, queue, sink, guard, WorkerOptions(chunk=chunk, prefetch=prefetch)).run()
    commits = counter.commits
    queue.close()
    return commits


def warm_up(who: str) -> None:
    """Importing is not what is measured."""
    if who in ("plain-pubsub", "streaming-pubsub"):
        import google.cloud.pubsub_v1
    elif who == "plain-postgres":
        import psycopg  # noqa: F401
    elif who == "ours":
        if "PUBSUB_EMULATOR_HOST" in os.environ:
            import google.cloud.pubsub_v1  # noqa: F401
        import stayfast.batch.queue.open_queue
        import stayfast.batch.sink.open_sink
        import stayfast.batch.worker.worker  # noqa: F401


def main() -> None:
    who, place, count, chunk = sys.argv[1], json.loads(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
    warm_up(who)
    started, cpu = time.perf_counter(), time.process_time()
    if who == "plain-sqlite":
        commits = queue_plain_loop.work_sqlite(place["path"], chunk)
    elif who == "plain-postgres":
        commits = queue_plain_loop.work_postgres(place["url"], chunk)
    elif who == "plain-pubsub":
        commits = queue_plain_loop.work_pubsub(place["project"], place["subscription"], count, place["path"])
    elif who == "streaming-pubsub":
        commits = queue_plain_loop.work_pubsub_streaming(place["project"], place["subscription"], count, place["path"])
    else:
        prefetch = int(sys.argv[5]) if len(sys.argv) > 5 else 1
        commits = ours(place["queue"], place["sink"], chunk, prefetch)
    seconds, cpu_seconds = time.perf_counter() - started, time.process_time() - cpu
    print(json.dumps({"seconds": seconds, "cpu_seconds": cpu_seconds, "commits": commits}))


if __name__ == "__main__":
    main()
