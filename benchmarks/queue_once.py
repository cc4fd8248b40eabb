"""One measured run in a process of its own: ``queue_once.py WHO PLACE COUNT CHUNK`` prints seconds and CPU seconds."""

from __future__ import annotations

import json
import os
import sys
import time

from reporting import SOURCE

sys.path.insert(0, str(SOURCE))

import queue_floor

os.environ["HOLDFAST_OUTCOME_FILE"] = os.devnull


def ours(queue_url: str, sink_url: str, chunk: int) -> None:
    """What a worker process of ``holdfast work`` does."""
    from holdfast.queue.open import open_queue
    from holdfast.runtime.guard import Guard
    from holdfast.runtime.task import Task
    from holdfast.runtime.worker import Worker, WorkerOptions
    from holdfast.sink.open import open_sink

    queue, sink = open_queue(queue_url, sink=sink_url), open_sink(sink_url)
    task = Task(lambda batch: [1] * len(batch), key=None, each=False)
    with Guard() as guard:
        Worker(task, queue, sink, guard, WorkerOptions(chunk=chunk)).run()
    queue.close()


def main() -> None:
    who, place, count, chunk = sys.argv[1], json.loads(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
    if who == "floor-pubsub":
        import google.cloud.pubsub_v1  # noqa: F401 - importing it is not what is measured
    started, cpu = time.perf_counter(), time.process_time()
    if who == "floor-sqlite":
        queue_floor.work_sqlite(place["path"], chunk)
    elif who == "floor-postgres":
        queue_floor.work_postgres(place["url"], chunk)
    elif who == "floor-pubsub":
        queue_floor.work_pubsub(place["project"], place["subscription"], count, place["path"])
    else:
        ours(place["queue"], place["sink"], chunk)
    print(json.dumps({"seconds": time.perf_counter() - started, "cpu_seconds": time.process_time() - cpu}))


if __name__ == "__main__":
    main()
