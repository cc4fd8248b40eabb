"""Chaos acceptance and suite M: real commands, signals, and servers that go away; in the end the audit is clean."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from postgres_server import PostgresServer
from work_command import QUIET, command, stayfast, write_task

from faults.counts import record
from faults.tiers import account, goal, seed_for, tier
from stayfast.batch.queue.open_queue import open_queue
from stayfast.batch.sink.open_sink import open_sink

ITEMS = 2000
TASK = """def work(batch):
    time.sleep(0.004 * len(batch))
    return [{"sq": item["v"] ** 2} for item in batch]"""
SITE = """
import os
import stayfast.clock as clock
skew = float(os.environ.get("SKEW", "0"))
original = clock.SystemClock.wall
clock.SystemClock.wall = lambda self: original(self) + skew
if os.environ.get("LEASE"):
    import stayfast.batch.queue.postgres as postgres
    postgres.PostgresQueue.__init__.__kwdefaults__["lease_seconds"] = float(os.environ["LEASE"])
"""


class Storm:
    """Three workers, replaced as they fall."""

    def __init__(self, folder: Path, queue: str, sink: str, seed: int) -> None:
        self.folder, self.queue, self.sink = folder, queue, sink
        self.chance = random.Random(seed)
        self.task = write_task(folder, TASK, "@stayfast.task(key=lambda item: item['id'])")
        (folder / "sitecustomize.py").write_text(SITE)
        self.processes: list[subprocess.Popen[bytes]] = []
        self.started: dict[int, float] = {}
        self.kills = self.notices = self.restarts = 0
        self.finished: list[int] = []

    def start(self) -> None:
        environment = {
            **os.environ,
            **QUIET,
            "PYTHONPATH": os.pathsep.join([str(self.folder), *sys.path]),
            "SKEW": str(self.chance.choice((-600, -61, 0, 45, 600))),
            "LEASE": "3",
        }
        with open(self.folder / "stderr", "ab") as log:
            self.processes.append(
                subprocess.Popen(
                    command("work", self.task, "--queue", self.queue, "--sink", self.sink, "--chunk", "20"),
                    cwd=self.folder,
                    start_new_session=True,
                    stdout=log,
                    stderr=log,
                    env=environment,
                )
            )
        self.started[self.processes[-1].pid] = time.monotonic()

    def strike(self) -> None:
        """Take one worker away, with or without a warning."""
        process = self.chance.choice(self.processes)
        self.processes.remove(process)
        if self.chance.random() < 0.5:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait(20)
            self.kills += 1
        else:
            process.terminate()
            code = process.wait(20)
            young = time.monotonic() - self.started[process.pid] < 2.0  # the interpreter itself was still starting
            assert code in (75, 0) or (young and code == -signal.SIGTERM), (
                f"after SIGTERM it left with {code}: {self.log()}"
            )
            self.notices += 1
        self.start()

    def run(self, strikes: int, disturb=None, every: int = 4) -> None:
        try:
            for _ in range(3):
                self.start()
            for number in range(strikes):
                time.sleep(self.chance.uniform(0.25, 0.6))
                self.strike()
                if disturb is not None and number % every == every - 1:
                    disturb()
                    self.restarts += 1
            for process in self.processes:
                code = process.wait(100)
                assert code == 0, f"the last workers leave with 0, this one with {code}: {self.log()}"
        finally:
            for process in self.processes:
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL)
                    process.wait()

    def log(self) -> str:
        return (self.folder / "stderr").read_text()[-1500:]


def enqueue(queue_url: str, sink_url: str, count: int = ITEMS) -> None:
    rows = [(f"k{n:05d}", json.dumps({"id": f"k{n:05d}", "v": n})) for n in range(count)]
    queue = open_queue(queue_url, sink=sink_url)
    assert queue.enqueue(rows).added == count
    queue.enqueue(rows[::5])  # a publisher that retries
    if hasattr(queue, "_publish"):
        queue._publish(rows[::5])  # and for Pub/Sub, messages that really come twice
    queue.close()


def assert_all_right(queue_url: str, sink_url: str, count: int = ITEMS) -> None:
    audit = stayfast("audit", "--queue", queue_url, "--sink", sink_url, "--json")
    told = json.loads(audit.stdout)
    assert (audit.returncode, told["enqueued"], told["recorded"], told["dead"]) == (0, count, count, 0), told
    sink = open_sink(sink_url)
    found = {key: json.loads(sink.get(key)) for key in sink.keys()}
    sink.close()
    assert found == {f"k{n:05d}": {"sq": n**2} for n in range(count)}


@pytest.mark.faults
@pytest.mark.slow
@pytest.mark.parametrize("shared", [True, False], ids=["one-file", "two-files"])
def test_sqlite_through_the_storm(make_place, tmp_path, shared):
    place = make_place("sqlite")
    sink = place.sink if shared else place.other_sink
    enqueue(place.queue, sink)
    storm = Storm(tmp_path, place.queue, sink, seed=1 + shared)
    storm.run(10)
    assert_all_right(place.queue, sink)
    record("chaos", sqlite_kills=storm.kills, sqlite_notices=storm.notices)


@pytest.mark.faults
@pytest.mark.slow
def test_postgres_through_the_storm_with_crashing_servers(tmp_path, postgres_server):
    """A server of its own, because it is stopped the hard way, with recovery at the next start."""
    server = PostgresServer()
    try:

        def crash() -> None:
            server.stop("immediate")
            time.sleep(0.3)
            server.start()

        wanted, restarts, kills, notices = goal("M"), 0, 0, 0
        seed = 3 if tier() == "pr" else seed_for("M")
        while restarts < wanted:
            queue, sink = f"{server.url}?queue=chaos{restarts}", f"{server.url}?table=chaos{restarts}"
            enqueue(queue, sink)
            storm = Storm(tmp_path, queue, sink, seed=seed + restarts)
            storm.run(10, crash, every=2)
            assert storm.restarts == 5
            assert_all_right(queue, sink)
            restarts += storm.restarts
            kills += storm.kills
            notices += storm.notices
        account("M", restarts)
        record("chaos", postgres_kills=kills, postgres_notices=notices)
    finally:
        server.close()


@pytest.mark.faults
@pytest.mark.slow
def test_pubsub_through_the_storm_with_a_network_that_hangs(make_place, tmp_path, pubsub_server):
    place = make_place("pubsub")
    enqueue(place.queue, place.sink)

    def cut() -> None:
        pubsub_server.pause()
        threading.Timer(0.8, pubsub_server.resume).start()
        time.sleep(1.0)

    storm = Storm(tmp_path, place.queue, place.sink, seed=4)
    storm.run(8, cut)
    assert_all_right(place.queue, place.sink)
    record("M pubsub", injected=storm.restarts)
    record("chaos", pubsub_kills=storm.kills, pubsub_notices=storm.notices)


@pytest.mark.faults
def test_a_locked_database_only_delays_the_work(make_place, tmp_path):
    """Somebody holds the write lock for longer than a transaction: a backup, an administrator."""
    import sqlite3

    place, count = make_place("sqlite"), 900  # enough for one worker to outlast the locks
    enqueue(place.queue, place.sink, count)
    storm = Storm(tmp_path, place.queue, place.sink, seed=5)
    storm.start()
    time.sleep(0.5)
    other = sqlite3.connect(place.queue[len("sqlite://") :].split("?")[0], isolation_level=None, timeout=10)
    for _ in range(3):
        other.execute("BEGIN IMMEDIATE")
        time.sleep(0.7)
        other.execute("ROLLBACK")
        time.sleep(0.2)
    other.close()
    assert storm.processes[0].wait(60) == 0, storm.log()
    assert_all_right(place.queue, place.sink, count)
