"""The plain loop: the shortest lease queue one could write on the same database, with the same durability.

Ask the sink, record, acknowledge and claim the next chunk in one transaction; no retries, no heartbeat, no notices.
It makes one durable commit per chunk: two, for claim and completion apart, would halve its rate where the disk
decides, and flatter us. Over Pub/Sub there is nothing to claim durably; the record is the one commit.
"""

from __future__ import annotations

import json
import sqlite3
from typing import Any


def fill_sqlite(path: str, count: int) -> None:
    db = sqlite3.connect(path, isolation_level=None)
    db.execute("PRAGMA journal_mode=WAL")
    db.execute(
        "CREATE TABLE item (id INTEGER PRIMARY KEY, key TEXT UNIQUE, payload TEXT, state INT, owner TEXT, expires REAL)"
    )
    db.execute("CREATE INDEX ready ON item (state, id) WHERE state < 2")
    db.execute("CREATE TABLE result (key TEXT PRIMARY KEY, payload TEXT)")
    db.execute("BEGIN")
    rows = ((f"k{n}", json.dumps({"id": f"k{n}", "v": n})) for n in range(count))
    db.executemany("INSERT INTO item (key, payload, state) VALUES (?, ?, 0)", rows)
    db.execute("COMMIT")
    db.close()


def work_sqlite(path: str, chunk: int) -> int:
    """Returns the number of durable commits: one for the first claim, then one per chunk."""
    db = sqlite3.connect(path, isolation_level=None)
    db.execute("PRAGMA synchronous=FULL")
    claim = (
        "UPDATE item SET state=1, owner='me', expires=unixepoch()+15 WHERE id IN "
        "(SELECT id FROM item WHERE state=0 ORDER BY id LIMIT ?) RETURNING id, key, payload"
    )
    db.execute("BEGIN IMMEDIATE")
    rows = db.execute(claim, (chunk,)).fetchall()
    db.execute("COMMIT")
    commits = 1
    while rows:
        marks = ",".join("?" * len(rows))
        db.execute(f"SELECT key FROM result WHERE key IN ({marks})", [row[1] for row in rows]).fetchall()
        items = [json.loads(row[2]) for row in rows]
        results = [1] * len(items)
        db.execute("BEGIN IMMEDIATE")
        db.executemany(
            "INSERT INTO result VALUES (?, ?) ON CONFLICT (key) DO NOTHING",
            [(row[1], json.dumps(value)) for row, value in zip(rows, results, strict=True)],
        )
        db.executemany("UPDATE item SET state=2 WHERE id=? AND state=1 AND owner='me'", [(row[0],) for row in rows])
        rows = db.execute(claim, (chunk,)).fetchall()
        db.execute("COMMIT")
        commits += 1
    return commits


def fill_postgres(url: str, count: int) -> None:
    import psycopg

    with psycopg.connect(url) as db:
        db.execute("DROP TABLE IF EXISTS item, result")
        db.execute(
            "CREATE TABLE item (id bigserial PRIMARY KEY, key text UNIQUE, payload text, state int, until timestamptz)"
        )
        db.execute("CREATE INDEX ready ON item (id) WHERE state=0")
        db.execute("CREATE TABLE result (key text PRIMARY KEY, payload text)")
        with db.cursor().copy("COPY item (key, payload, state) FROM STDIN") as copy:
            for n in range(count):
                copy.write_row((f"k{n}", json.dumps({"id": f"k{n}", "v": n}), 0))
    with psycopg.connect(url, autocommit=True) as db:
        db.execute("VACUUM ANALYZE item")


def work_postgres(url: str, chunk: int) -> int:
    """Returns the number of durable commits: one for the first claim, then one per chunk."""
    import psycopg

    claim = (
        "UPDATE item SET state=1, until=now()+interval '15 s' WHERE id IN (SELECT id FROM item WHERE state=0 "
        "ORDER BY id LIMIT %s FOR UPDATE SKIP LOCKED) RETURNING id, key, payload"
    )
    with psycopg.connect(url, prepare_threshold=1) as db:
        rows: list[Any] = db.execute(claim, (chunk,)).fetchall()
        db.commit()
        commits = 1
        while rows:
            keys = [row[1] for row in rows]
            db.execute("SELECT key FROM result WHERE key=ANY(%s)", (keys,)).fetchall()
            results = [json.dumps(1) for _ in (json.loads(row[2]) for row in rows)]
            db.execute(
                "INSERT INTO result SELECT * FROM unnest(%s::text[], %s::text[]) ON CONFLICT DO NOTHING",
                (keys, results),
            )
            db.execute("UPDATE item SET state=2 WHERE id=ANY(%s) AND state=1", ([row[0] for row in rows],))
            rows = db.execute(claim, (chunk,)).fetchall()
            db.commit()
            commits += 1
    return commits


def work_pubsub(project: str, subscription: str, count: int, path: str) -> int:
    """Pull 100, ask the sink, record, acknowledge; returns the number of durable commits, one per pull."""
    from google.cloud import pubsub_v1

    subscriber = pubsub_v1.SubscriberClient()
    name = subscriber.subscription_path(project, subscription)
    db = sqlite3.connect(path, isolation_level=None)
    db.execute("PRAGMA journal_mode=WAL")
    db.execute("PRAGMA synchronous=FULL")
    db.execute("CREATE TABLE IF NOT EXISTS result (key TEXT PRIMARY KEY, payload TEXT)")
    done = commits = 0
    while done < count:
        got = subscriber.pull(request={"subscription": name, "max_messages": 100}, timeout=10).received_messages
        rows = [(each.message.attributes["key"], json.dumps(json.loads(each.message.data)["v"])) for each in got]
        if not got:
            continue
        marks = ",".join("?" * len(rows))
        db.execute(f"SELECT key FROM result WHERE key IN ({marks})", [row[0] for row in rows]).fetchall()
        db.execute("BEGIN")
        db.executemany("INSERT INTO result VALUES (?, ?) ON CONFLICT DO NOTHING", rows)
        db.execute("COMMIT")
        commits += 1
        subscriber.acknowledge(request={"subscription": name, "ack_ids": [each.ack_id for each in got]})
        done += len(got)
    subscriber.close()
    return commits


def work_pubsub_streaming(project: str, subscription: str, count: int, path: str) -> int:
    """The official streaming client, kindly used: its callback only hands over, and a hundred share one commit."""
    import queue

    from google.cloud import pubsub_v1

    subscriber = pubsub_v1.SubscriberClient()
    db = sqlite3.connect(path, isolation_level=None)
    db.execute("PRAGMA journal_mode=WAL")
    db.execute("PRAGMA synchronous=FULL")
    db.execute("CREATE TABLE IF NOT EXISTS result (key TEXT PRIMARY KEY, payload TEXT)")
    arrived: queue.SimpleQueue[Any] = queue.SimpleQueue()
    stream = subscriber.subscribe(subscriber.subscription_path(project, subscription), callback=arrived.put)
    done = commits = 0
    while done < count:
        got = [arrived.get(timeout=60)]
        while len(got) < 100 and not arrived.empty():
            got.append(arrived.get())
        rows = [(message.attributes["key"], json.dumps(json.loads(message.data)["v"])) for message in got]
        db.execute("BEGIN")
        db.executemany("INSERT INTO result VALUES (?, ?) ON CONFLICT DO NOTHING", rows)
        db.execute("COMMIT")
        commits += 1
        for message in got:
            message.ack()
        done = db.execute("SELECT count(*) FROM result").fetchone()[0]
    stream.cancel()
    stream.result()
    subscriber.close()
    return commits
