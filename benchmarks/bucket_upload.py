"""Uploads of checkpoint parts: our stores against raw parallel PUTs over http.client, on loopback, side by side.

    python benchmarks/bucket_upload.py [--parts 24 --part-mib 16 --threads 4 --repeats 7] [--record]

The server is the tests' own, in a process of its own, told to keep nothing it need not keep. Each repeat runs every
contender once, in turn; the table shows medians and the ratio to raw PUTs (goal: at least 0.8).
"""

from __future__ import annotations

import argparse
import http.client
import importlib.metadata
import mmap
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import urlsplit

from reporting import parse, write

from stayfast.clock import to_rfc3339
from stayfast.storage.stores.open_store import open_store
from stayfast.storage.stores.protocol import ABSENT, Store

SERVER = Path(__file__).resolve().parent.parent / "tests" / "servers" / "bucket_server.py"
Upload = Callable[[int, memoryview, int], None]


def raw_puts(url: str) -> Upload:
    """One connection per thread, one PUT per part, the body straight from memory."""
    host = urlsplit(url).netloc
    connections: dict[int, http.client.HTTPConnection] = {}

    def put(number: int, part: memoryview, thread: int) -> None:
        connection = connections.get(thread) or connections.setdefault(thread, http.client.HTTPConnection(host))
        connection.request("PUT", f"/bucket/raw/{number}", body=part, headers={"Content-Length": str(len(part))})
        response = connection.getresponse()
        response.read()
        assert response.status == 200, response.status

    return put


def store_puts(store: Store, round_number: int) -> Upload:
    """As the checkpoint engine does: create-only, under fresh names."""

    def put(number: int, part: memoryview, _thread: int) -> None:
        store.put(f"{round_number}/part-{number:05d}", part, if_generation=ABSENT)

    return put


def timed(upload: Upload, parts: list[memoryview], threads: int) -> float:
    def work(thread: int) -> None:
        for number in range(thread, len(parts), threads):
            upload(number, parts[number], thread)

    started = time.perf_counter()
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(work, range(threads)))
    return time.perf_counter() - started


def wipe(url: str) -> None:
    connection = http.client.HTTPConnection(urlsplit(url).netloc)
    connection.request("POST", "/-/wipe")
    assert connection.getresponse().status == 200


def measure(url: str, options: argparse.Namespace) -> dict[str, list[float]]:
    os.environ.update(
        STORAGE_EMULATOR_HOST=url,
        AWS_ENDPOINT_URL=url,
        AWS_ACCESS_KEY_ID="test",
        AWS_SECRET_ACCESS_KEY="test",
        AWS_REGION="us-east-1",
    )
    size = options.part_mib << 20
    parts = [memoryview(mmap.mmap(-1, size)) for _ in range(options.parts)]
    for number, part in enumerate(parts):
        part[:] = os.urandom(1 << 20) * options.part_mib
        part[0] = number % 256
    stores = {scheme: open_store(f"{scheme}://bucket/{scheme}") for scheme in ("gs", "s3")}
    seconds: dict[str, list[float]] = {"raw PUT": [], "gs://": [], "s3://": []}
    raw = raw_puts(url)
    for repeat in range(options.repeats + 1):  # the first warms up
        contenders = [
            ("raw PUT", raw),
            ("gs://", store_puts(stores["gs"], repeat)),
            ("s3://", store_puts(stores["s3"], repeat)),
        ]
        turn = repeat % len(contenders)
        for name, upload in contenders[turn:] + contenders[:turn]:
            taken = timed(upload, parts, options.threads)
            wipe(url)
            if repeat:
                seconds[name].append(taken)
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--parts", type=int, default=24)
    parser.add_argument("--part-mib", type=int, default=16)
    parser.add_argument("--threads", type=int, default=4)
    parser.add_argument("--repeats", type=int, default=7)
    options = parse(parser)
    server = subprocess.Popen(
        [sys.executable, str(SERVER), "--weak-etags"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert server.stdout is not None
        seconds = measure(f"http://127.0.0.1:{int(server.stdout.readline())}", options)
    finally:
        server.communicate()
    total = options.parts * options.part_mib / 1024
    medians = {name: statistics.median(rows) for name, rows in seconds.items()}
    rows = {
        name: {"seconds": taken, "gib_per_second": total / taken, "of_raw": medians["raw PUT"] / taken}
        for name, taken in medians.items()
    }
    print(f"{options.parts} parts of {options.part_mib} MiB, {options.threads} threads, median of {options.repeats}")
    for name, row in rows.items():
        print(f"{name:8}  {row['seconds']:7.3f} s  {row['gib_per_second']:6.2f} GiB/s  {row['of_raw']:5.2f} x raw")
    result = {
        "benchmark": "bucket_upload",
        "measured_at": to_rfc3339(time.time()),
        "options": {name: value for name, value in vars(options).items() if name != "record"},
        "rows": rows,
        "python": platform.python_version(),
        "obstore": importlib.metadata.version("obstore"),
        "machine": f"{os.cpu_count()} CPUs, {platform.system()} {platform.machine()}",
        "load_average": os.getloadavg()[0],
    }
    write("bucket_upload", result, record=options.record)


if __name__ == "__main__":
    main()
