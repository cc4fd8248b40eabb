"""Items per second and CPU per item: a plain loop, stayfast, and its peers, side by side on this machine.

    python benchmarks/queue_speed.py [--items 20000] [--repeats 3] [--peers PYTHON] [--only sqlite,postgres,pubsub]

A worker is one process. Runs are interleaved, and the table shows medians. The plain loop makes one durable commit per
chunk: completion, results and the next claim together. So does stayfast at chunk 100; at chunk 1 its short calls share
commits, and a second row with nothing fetched ahead shows what one commit for each costs. ``commits_per_chunk`` counts
the commits that were made. The goals stand in ``goals.py``.

``--peers`` names a Python with huey, celery[redis], dramatiq[redis] and pgqueuer; redis-server is on the PATH. A peer
that cannot run is told and left out.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from reporting import HERE, SOURCE, parse, publish

sys.path.insert(0, str(SOURCE))
sys.path.insert(0, str(HERE.parent / "tests" / "queue"))

import queue_plain_loop


def once(who: str, place: dict[str, str], count: int, chunk: int, prefetch: int = 1) -> dict[str, float]:
    done = subprocess.run(
        [sys.executable, str(HERE / "queue_once.py"), who, json.dumps(place), str(count), str(chunk), str(prefetch)],
        capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    if done.returncode:
        raise SystemExit(f"{who} failed: {done.stderr[-800:]}")
    told: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return {
        "items_per_second": count / told["seconds"],
        "cpu_us_per_item": told["cpu_seconds"] / count * 1e6,
        "commits_per_chunk": told["commits"] / max(1, count / chunk),
    }


def pairs(count: int) -> Any:
    return ((f"k{n}", json.dumps({"id": f"k{n}", "v": n})) for n in range(count))


def sqlite_runs(folder: Path, count: int, chunk: int, tag: str) -> dict[str, dict[str, float]]:
    plain = {"path": str(folder / f"plain{tag}.db")}
    queue_plain_loop.fill_sqlite(plain["path"], count)
    runs = {"plain loop": once("plain-sqlite", plain, count, chunk)}
    runs["stayfast"] = once("ours", sqlite_place(folder, count, tag), count, chunk)
    if chunk == 1:
        runs["stayfast, nothing ahead"] = once("ours", sqlite_place(folder, count, tag + "-0"), count, chunk, 0)
    return runs


def sqlite_place(folder: Path, count: int, tag: str) -> dict[str, str]:
    from stayfast.batch.queue.open_queue import open_queue

    place = {"queue": f"sqlite://{folder}/ours{tag}.db", "sink": f"sqlite://{folder}/ours{tag}.db?table=r"}
    queue = open_queue(place["queue"])
    queue.enqueue(pairs(count))
    queue.close()
    return place


def postgres_runs(url: str, count: int, chunk: int, tag: str) -> dict[str, dict[str, float]]:
    import psycopg

    from stayfast.batch.queue.open_queue import open_queue

    queue_plain_loop.fill_postgres(url, count)
    ours = {"queue": f"{url}?queue=b{tag}", "sink": f"{url}?table=b{tag}"}
    queue = open_queue(ours["queue"])
    queue.enqueue(pairs(count))
    queue.close()
    with psycopg.connect(url, autocommit=True) as db:
        db.execute("VACUUM ANALYZE stayfast_item")
    return {
        "plain loop": once("plain-postgres", {"url": url}, count, chunk),
        "stayfast": once("ours", ours, count, chunk),
    }


def pubsub_runs(folder: Path, count: int, chunk: int, tag: str) -> dict[str, dict[str, float]]:
    from stayfast.batch.queue.open_queue import open_queue

    runs = {}
    for who in ("plain loop", "stayfast", "official streaming client"):
        name = f"bench-{who.split()[0]}-{tag}"
        url, sink = f"pubsub://lab/{name}?topic={name}", f"sqlite://{folder}/{name}.db?table=r"
        queue = open_queue(url, sink=sink)
        queue.enqueue(pairs(count))
        queue.close()
        place = {"project": "lab", "subscription": name, "path": f"{folder}/{name}-raw.db"}
        if who == "plain loop":
            runs[who] = once("plain-pubsub", place, count, chunk)
        elif who == "stayfast":
            runs[who] = once("ours", {"queue": url, "sink": sink}, count, chunk)
        else:
            runs[who] = once("streaming-pubsub", place, count, chunk)
    return runs


def peer(python: str, name: str, folder: Path, count: int) -> dict[str, float]:
    place = folder / name
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir()
    done = subprocess.run(
        [python, str(HERE / "queue_peer_tasks.py"), name, str(place), str(count)],
        capture_output=True, text=True, check=False, timeout=200,
    )  # fmt: skip
    if done.returncode:
        raise SystemExit(f"{name} failed: {done.stderr[-800:]}")
    told = json.loads(done.stdout.splitlines()[-1])
    return {"items_per_second": told["items_per_second"], "cpu_us_per_item": told["cpu_seconds"] / told["found"] * 1e6}


def pgqueuer(python: str, url: str, count: int) -> dict[str, float]:
    command = [python, str(HERE / "queue_peer_pgqueuer.py"), url, str(count)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=200)
    if done.returncode:
        raise SystemExit(f"pgqueuer failed: {done.stderr[-800:]}")
    told = json.loads(done.stdout.splitlines()[-1])
    return {"items_per_second": told["items_per_second"], "cpu_us_per_item": told["cpu_seconds"] / count * 1e6}


class Redis:
    """A server of our own for the peers that need one."""

    def __enter__(self) -> Redis:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        os.environ["BENCH_REDIS"] = f"redis://127.0.0.1:{port}/0"
        command = ["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "yes"]
        self.folder = tempfile.mkdtemp(prefix="bench-redis-")
        self.process = subprocess.Popen([*command, "--dir", self.folder], stdout=subprocess.DEVNULL)
        time.sleep(1.0)
        return self

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        self.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)


def median_rows(title: str, runs: list[dict[str, dict[str, float]]]) -> list[dict[str, Any]]:
    """Each who's median, and the median of the per-round ratio to the plain loop: rounds share the machine's mood."""
    rows = []
    for who in runs[0]:
        ratio = (
            [run[who]["items_per_second"] / run["plain loop"]["items_per_second"] for run in runs]
            if "plain loop" in runs[0]
            else []
        )
        commits = [run[who].get("commits_per_chunk", 0) for run in runs]
        rows.append(
            {
                "setting": title,
                "who": who,
                "items_per_second": round(statistics.median(run[who]["items_per_second"] for run in runs)),
                "cpu_us_per_item": round(statistics.median(run[who]["cpu_us_per_item"] for run in runs), 1),
                "of_plain_loop": round(statistics.median(ratio), 2) if ratio else "",
                "commits_per_chunk": round(statistics.median(commits), 2) if all(commits) else "",
            }
        )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--items", type=int, default=20_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--peers", metavar="PYTHON")
    parser.add_argument("--only", default="sqlite,postgres,pubsub")
    options = parse(parser)
    wanted = options.only.split(",")
    title = "queue_speed" if len(wanted) == 3 else f"queue_speed_{'_'.join(wanted)}"
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="bench-queue-") as name:
        for section in (sqlite_rows, postgres_rows, pubsub_rows):
            if section.__name__.removesuffix("_rows") in wanted:
                rows += section(Path(name), options)
                more = {"items": options.items, "repeats": options.repeats, "load_average": os.getloadavg()}
                publish(title, rows, record=options.record, **more)


def postgres_rows(_: Path, options: argparse.Namespace) -> list[dict[str, Any]]:
    from postgres_server import PostgresServer

    server = PostgresServer()
    runs = []
    try:
        for number in range(options.repeats):
            runs.append(postgres_runs(server.url, options.items, 100, str(number)))
            if options.peers:
                runs[-1]["pgqueuer, batch 100"] = pgqueuer(options.peers, server.url, options.items // 4)
    finally:
        server.close()
    return median_rows("postgresql, chunk 100", runs)


def pubsub_rows(folder: Path, options: argparse.Namespace) -> list[dict[str, Any]]:
    from pubsub_server import PubsubServer

    emulator = PubsubServer()
    os.environ["PUBSUB_EMULATOR_HOST"] = emulator.host
    try:
        runs = [pubsub_runs(folder, options.items // 4, 100, str(number)) for number in range(options.repeats)]
    finally:
        emulator.close()
    return median_rows("pub/sub emulator, chunk 100", runs)


def sqlite_rows(folder: Path, options: argparse.Namespace) -> list[dict[str, Any]]:
    rows = []
    for chunk, count in ((100, options.items), (1, max(500, options.items // 20))):
        runs = [sqlite_runs(folder, count, chunk, f"{chunk}-{n}") for n in range(options.repeats)]
        rows += median_rows(f"sqlite, one file, FULL, chunk {chunk}", runs)
    if options.peers:
        with Redis():
            for name in ("huey", "celery", "dramatiq"):
                try:
                    runs = [{name: peer(options.peers, name, folder, 1000)} for _ in range(min(2, options.repeats))]
                except SystemExit as error:
                    print(f"left out: {error}", file=sys.stderr)
                    continue
                rows += median_rows("peer, safest settings, one UPSERT per item", runs)
    return rows


if __name__ == "__main__":
    main()
