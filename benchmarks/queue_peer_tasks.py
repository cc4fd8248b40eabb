"""The same no-op task with one UPSERT per item, for the peers; runs in an environment where they are installed.

``python queue_peer_tasks.py PEER FOLDER COUNT`` enqueues, works in this process (or starts the peer's own worker), and
prints items per second between the first and the last recorded result, and CPU seconds per item of the worker.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import sqlite3
import subprocess
import sys
import threading
import time

FOLDER = os.environ.get("BENCH_FOLDER") or sys.argv[2]
REDIS = os.environ.get("BENCH_REDIS", "redis://127.0.0.1:6379/0")
_local = threading.local()


def record(key: str) -> None:
    db = getattr(_local, "db", None)
    if db is None:
        db = _local.db = sqlite3.connect(f"{FOLDER}/results.db", isolation_level=None, timeout=30)
        db.execute("PRAGMA journal_mode=WAL")
        db.execute("PRAGMA synchronous=FULL")
        db.execute("CREATE TABLE IF NOT EXISTS result (key TEXT PRIMARY KEY, at REAL)")
    db.execute("INSERT INTO result VALUES (?, ?) ON CONFLICT DO NOTHING", (key, time.time()))


PEER = os.environ.get("BENCH_PEER") or (sys.argv[1] if len(sys.argv) > 1 else "")

if PEER == "huey":
    from huey import SqliteHuey

    huey = SqliteHuey(filename=f"{FOLDER}/huey.db", fsync=True)

    @huey.task()
    def huey_task(key: str) -> None:
        record(key)

elif PEER == "celery":
    from celery import Celery

    app = Celery("queue_peer_tasks", broker=REDIS)
    app.conf.update(
        task_acks_late=True, task_reject_on_worker_lost=True, worker_prefetch_multiplier=1, task_ignore_result=True
    )

    @app.task(name="celery_task")
    def celery_task(key: str) -> None:
        record(key)

elif PEER == "dramatiq":
    import dramatiq
    from dramatiq.brokers.redis import RedisBroker

    os.environ.setdefault("dramatiq_queue_prefetch", "1")
    dramatiq.set_broker(RedisBroker(url=REDIS))

    @dramatiq.actor
    def dramatiq_task(key: str) -> None:
        record(key)


def start(count: int) -> subprocess.Popen[bytes]:
    keys = [f"k{n}" for n in range(count)]
    environment = {**os.environ, "BENCH_PEER": PEER, "BENCH_FOLDER": FOLDER, "PYTHONPATH": os.path.dirname(__file__)}
    bin_folder = os.path.dirname(sys.executable)
    if PEER == "huey":
        for key in keys:
            huey_task(key)
        command = [f"{bin_folder}/huey_consumer", "queue_peer_tasks.huey", "-w", "1", "-k", "thread", "-q"]
    elif PEER == "celery":
        for key in keys:
            celery_task.delay(key)
        command = [f"{bin_folder}/celery", "-A", "queue_peer_tasks:app", "worker", "-P", "solo", "-l", "error"]
    else:
        for key in keys:
            dramatiq_task.send(key)
        command = [f"{bin_folder}/dramatiq", "queue_peer_tasks", "-p", "1", "-t", "1"]
    quiet = subprocess.DEVNULL
    return subprocess.Popen(command, env=environment, stdout=quiet, stderr=quiet, start_new_session=True)


def main() -> None:
    count = int(sys.argv[3])
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    worker = start(count)
    deadline = time.time() + 120
    found = 0
    while found < count and time.time() < deadline:
        time.sleep(0.2)
        try:
            with sqlite3.connect(f"{FOLDER}/results.db", timeout=30) as db:
                found, first, last = db.execute("SELECT count(*), min(at), max(at) FROM result").fetchone()
        except sqlite3.OperationalError:
            continue
    os.killpg(worker.pid, signal.SIGKILL)
    worker.wait()
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = used.ru_utime + used.ru_stime - before.ru_utime - before.ru_stime
    print(json.dumps({"found": found, "items_per_second": (found - 1) / (last - first), "cpu_seconds": cpu}))


if __name__ == "__main__":
    main()
