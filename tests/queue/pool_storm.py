"""A storm on whole pools: SIGKILL for workers, SIGTERM for the pool, at random moments.

``python pool_storm.py '{"queue": URL, "sink": URL, "rounds": N, "items": N, "seed": S, "seconds": T}'`` prints one JSON
object. A round fills the queue and starts ``stayfast work`` until it exits with code 0. Every exit is compared with the
queue and the sink. After T seconds the round ends without further kills, and no other begins.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

from work_command import finish, shorten_leases, start_work, until, write_task  # noqa: E402

from stayfast.batch.queue.open_queue import open_queue  # noqa: E402
from stayfast.batch.sink.open_sink import open_sink  # noqa: E402

LEASE_SECONDS = 2.0


class Storm:
    def __init__(self, options: dict[str, Any], folder: Path) -> None:
        self.options, self.folder = options, folder
        self.chance = random.Random(options["seed"])
        self.queue, self.sink = open_queue(options["queue"]), open_sink(options["sink"])
        self.codes: Counter[int] = Counter()
        self.count = Counter(kills=0, terms=0, not_asked=0)
        self.enqueued = 0
        self.end = time.monotonic() + options.get("seconds", float("inf"))
        self.pause = options.get("pause", 0.5)  # the longest between two blows
        body = "def work(item):\n    time.sleep(0.004)\n    return item['v']"
        self.path = shorten_leases(folder, LEASE_SECONDS)
        self.task = write_task(folder, body, "@stayfast.task(each=True)")

    def run(self) -> dict[str, Any]:
        for _ in range(self.options["rounds"]):
            numbers = range(self.enqueued, self.enqueued + self.options["items"])
            self.queue.enqueue([(f"k{n:06d}", json.dumps({"v": n})) for n in numbers])
            self.enqueued += self.options["items"]
            while self.pool() != 0:
                pass
            if time.monotonic() > self.end:
                break
        self.queue.close()
        self.sink.close()
        return {"items": self.enqueued, "codes": self.codes, **self.count}

    def pool(self) -> int:
        """One pool, from its start to its end, and what it says about it."""
        more = ("--workers", str(self.chance.choice((1, 2))), "--chunk", "5", "--max-failures", "1000")
        url = (self.options["queue"], self.options["sink"])
        more += ("--backoff", "0.01")
        process = start_work(self.folder, self.task, *url, *more, STAYFAST_GRACE_SECONDS="6", PYTHONPATH=self.path)
        warned = False
        until(lambda: workers_of(process.pid) or process.poll() is not None)  # earlier, SIGTERM finds no handler
        last = time.monotonic() + self.chance.uniform(0.2, 5 * self.pause)
        while process.poll() is None and not warned and time.monotonic() < self.end:
            time.sleep(self.chance.uniform(0.05, self.pause))
            workers = workers_of(process.pid)
            for worker in workers if self.chance.random() < 0.5 else workers[:1]:
                with contextlib.suppress(ProcessLookupError):  # it ended by itself
                    os.kill(worker, signal.SIGKILL)
                self.count["kills"] += 1
            if time.monotonic() > last and process.poll() is None:
                time.sleep(self.chance.choice((0.0, 0.0, 0.02, 0.3)))
                process.send_signal(signal.SIGTERM)
                warned = True
                self.count["terms"] += 1
        code, told, err = finish(process, 90)
        self.judge(code, told, err, warned)
        return code

    def judge(self, code: int, told: dict[str, Any], err: str, warned: bool) -> None:
        self.codes[code] += 1
        depth = self.queue.depth()
        keys = sum(1 for _ in self.sink.keys())
        where = f"code {code}, {told}, {depth}, {keys} recorded: {err[-800:]}"
        assert depth.done <= keys, f"acknowledged and not recorded: {where}"
        assert code in ((0, 75, 1) if warned else (0, 1)), where
        assert code != 1 or "in a row died" in err, where
        assert code == told["code"], where
        assert told["outcome"] == {0: "finished", 75: "interrupted", 1: "failed"}[code], where
        if code == 0:
            assert (depth.left, depth.done, keys) == (0, self.enqueued, self.enqueued), where
            assert told["left"] == 0, where
        if told["queue"] is None:
            self.count["not_asked"] += 1
        else:
            assert (told["left"], told["queue"]["done"]) == (depth.left, depth.done), where


def workers_of(pool: int) -> list[int]:
    """The children that run the worker module."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdecimal():
            try:
                parent = int(Path("/proc", name, "stat").read_text().rpartition(")")[2].split()[1])
                words = Path("/proc", name, "cmdline").read_text()
            except OSError:
                continue
            if parent == pool and "worker_process" in words:
                found.append(int(name))
    return found


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="storm-") as place:
        print(json.dumps(Storm(json.loads(sys.argv[1]), Path(place)).run()))
