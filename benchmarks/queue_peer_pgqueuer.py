"""pgqueuer, batch 100, a no-op task with one UPSERT per item into the same database; arguments: URL COUNT."""

from __future__ import annotations

import asyncio
import json
import sys
import time

import asyncpg
from pgqueuer import PgQueuer
from pgqueuer.types import QueueExecutionMode


async def run(url: str, count: int) -> None:
    connection = await asyncpg.connect(url)
    results = await asyncpg.create_pool(url, min_size=1, max_size=4)
    await results.execute("CREATE TABLE IF NOT EXISTS peer_result (key text PRIMARY KEY, payload text)")
    await results.execute("TRUNCATE peer_result")
    queuer = PgQueuer.from_asyncpg_connection(connection)
    tables = await results.fetchval("SELECT to_regclass('pgqueuer')")
    if tables is None:
        await queuer.queries.install()

    @queuer.entrypoint("work")
    async def work(job: object) -> None:
        await results.execute("INSERT INTO peer_result VALUES ($1, '1') ON CONFLICT DO NOTHING", job.payload.decode())

    await queuer.queries.enqueue(["work"] * count, [f"k{n}".encode() for n in range(count)], [0] * count)
    started, cpu = time.perf_counter(), time.process_time()
    await queuer.run(batch_size=100, mode=QueueExecutionMode.drain)
    seconds, used = time.perf_counter() - started, time.process_time() - cpu
    found = await results.fetchval("SELECT count(*) FROM peer_result")
    assert found == count, f"{found} of {count}"
    print(json.dumps({"found": found, "items_per_second": count / seconds, "cpu_seconds": used}))


if __name__ == "__main__":
    asyncio.run(run(sys.argv[1], int(sys.argv[2])))
