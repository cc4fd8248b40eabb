"""Suite B for the SQLite queue and sink: what was acknowledged before the power went is there afterwards."""

from __future__ import annotations

import json
import os
import random
import sqlite3

from faults import powercut
from stayfast.batch.queue.sqlite import SqliteQueue
from stayfast.batch.sink.sqlite import SqliteSink

CUTS_PER_DISK = 20


def writer(seed: int, split: bool) -> powercut.Writer:
    """Enqueue, claim, record and complete, as a worker does; tells each promise the moment it was made."""

    def write(path: str, ack: powercut.Ack) -> None:
        chance = random.Random(seed)
        queue = SqliteQueue(f"{path}/queue.db")
        sink = SqliteSink(f"{path}/{'sink' if split else 'queue'}.db")
        leases: list = []
        for number in range(10_000):
            keys = [f"{seed:04d}-{number:05d}-{n}" for n in range(chance.randrange(1, 8))]
            queue.enqueue([(key, json.dumps(key)) for key in keys])
            ack(json.dumps(["enqueued", *keys]).encode())
            rows = [(lease.key, json.dumps("of " + lease.key), lease.generation) for lease in leases]
            if split:
                sink.record_all(rows)
            with queue.batch() as transaction:
                queue.complete(leases)
                if not split:
                    sink.record_all(rows, transaction=transaction)
                done, leases = leases, queue.claim(chance.randrange(1, 10))
            ack(json.dumps(["done", *(lease.key for lease in done)]).encode())

    return write


def check(path: str, split: bool, enqueued: set[str], done: set[str]) -> int:
    """How many promises were broken."""
    broken = 0
    for name in ("queue.db", *(["sink.db"] if split else [])):
        if not os.path.exists(f"{path}/{name}"):
            return len(enqueued) + len(done)
        with sqlite3.connect(f"{path}/{name}") as connection:
            broken += connection.execute("PRAGMA integrity_check").fetchone()[0] != "ok"
        connection.close()
    queue = SqliteQueue(f"{path}/queue.db")
    sink = SqliteSink(f"{path}/{'sink' if split else 'queue'}.db")
    states = dict(queue.entries())
    stored = {key: sink.get(key) for key in sink.keys()}
    broken += len(enqueued - states.keys())
    broken += sum(states.get(key) != "done" or stored.get(key) != json.dumps("of " + key) for key in done)
    broken += sum(state == "done" and key not in stored for key, state in states.items())
    queue.close()
    sink.close()
    return broken


def run(seed: int, count: int, split: bool) -> dict[str, int]:
    """Cut the power ``count`` times; call inside private mounts."""
    chance = random.Random(seed)
    cuts = acknowledged = broken = 0
    while cuts < count:
        with powercut.Disk(size_bytes=24 << 20) as disk:
            enqueued: set[str] = set()
            done: set[str] = set()
            for _ in range(min(CUTS_PER_DISK, count - cuts)):
                outcome = disk.run_and_cut(
                    writer(cuts, split),
                    after_lines=chance.choice((0, 1, 4, 16, 64)),  # none: while the files are being made
                    after_seconds=chance.uniform(0, 0.04),
                )
                cuts += 1
                for line in outcome.acknowledged:
                    kind, *keys = json.loads(line)
                    (enqueued if kind == "enqueued" else done).update(keys)
                    acknowledged += len(keys)
                broken += check(disk.path, split, enqueued, done)
    return {"cuts": cuts, "acknowledged": acknowledged, "broken": broken}
