"""A storm of SIGKILLs on real workers, forked from a process that has imported everything already.

``python kill_campaign.py '{"queue": URL, "sink": URL, "kills": N, "seed": S}'`` prints one JSON object. After every
single kill the total-queue check runs: no item may be gone, none unheard of stored, and whatever the queue calls done
must be in the sink with the right payload. In the end, without kills, the rest is drained and everything compared.
"""

from __future__ import annotations

import json
import logging
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

from kill_judge import JudgeProcess  # noqa: E402

from stayfast.batch.queue.open_queue import open_queue  # noqa: E402
from stayfast.batch.queue.protocol import RetryPolicy  # noqa: E402
from stayfast.batch.sink.open_sink import open_sink  # noqa: E402
from stayfast.batch.worker.audit import audit_queue  # noqa: E402
from stayfast.batch.worker.task import Failed, Task  # noqa: E402
from stayfast.batch.worker.worker import Worker, WorkerOptions  # noqa: E402
from stayfast.batch.worker.worker_process import _open_with_retries  # noqa: E402
from stayfast.runtime.interruption.guard import Guard  # noqa: E402

POINTS = ("complete", "claim", "record_all", "missing", "release")
POLICY = RetryPolicy(max_failures=3, max_deliveries=1_000_000, backoff_seconds=0.01)


def answer(value: int) -> dict[str, int]:
    return {"sq": value * value + 1}


def expected(number: int) -> str | None:
    return None if number % 997 == 13 else json.dumps(answer(number), separators=(",", ":"))


def compute(batch: list[dict[str, Any]]) -> list[Any]:
    time.sleep(0.0002 * len(batch))
    return [Failed("odd one out", retry=False) if item["v"] % 997 == 13 else answer(item["v"]) for item in batch]


TASK = Task(compute, key=lambda item: item["id"], each=False)


def worker(options: dict[str, Any], seed: int) -> None:
    """The whole life of one forked worker; sometimes it kills itself at a named point instead of being killed."""
    os.setpgid(0, 0)
    logging.disable(logging.WARNING)
    chance = random.Random(seed)
    with Guard() as guard:
        queue, sink = opened(options, guard)
        if options.get("lease_seconds"):
            queue.lease_seconds = options["lease_seconds"]
        if chance.random() < 0.5:
            _kill_self_at(chance.choice(POINTS), chance.randrange(1, 6), chance.random() < 0.5, queue, sink)
        Worker(TASK, queue, sink, guard, WorkerOptions(chunk=options.get("chunk", 10))).run()
    queue.close()


def opened(options: dict[str, Any], guard: Guard) -> tuple[Any, Any]:
    """As patiently as a real worker opens them: a file whose last writer was killed is being recovered by somebody."""
    queue = _open_with_retries(lambda: open_queue(options["queue"], sink=options["sink"], policy=POLICY), guard)
    return queue, _open_with_retries(lambda: open_sink(options["sink"]), guard)


def in_child(action: Callable[[], None], told: Path) -> int:
    """Run it in a fork that leaves with 0, the code of its SystemExit, or 99; whatever it says goes to a file."""
    sys.stdout.flush()
    pid = os.fork()
    if pid:
        return pid
    code = 99
    try:
        os.dup2(os.open(told, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 2)
        action()
        code = 0
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def _kill_self_at(point: str, call: int, after: bool, queue: Any, sink: Any) -> None:
    place = sink if point in ("record_all", "missing") else queue
    original, calls = getattr(place, point), 0

    def wrapped(*args: Any, **kwargs: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == call and not after:
            os.kill(os.getpid(), signal.SIGKILL)
        result = original(*args, **kwargs)
        if calls == call:
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    setattr(place, point, wrapped)


def failed(code: int, told: Path) -> str:
    """Why a campaign ends before its time, with the last words of the worker."""
    try:
        words = told.read_text(errors="replace").strip()[-1500:]
    except OSError as error:
        words = f"(its words are lost: {error})"
    return f"a worker failed with exit code {code} ({told.name}): {words or '(it said nothing)'}"


class Campaign:
    def __init__(self, options: dict[str, Any]) -> None:
        self.options = options
        self.chance = random.Random(options["seed"])
        self.children: dict[int, Path] = {}  # and where each writes what goes wrong
        self.spawned = 0
        self.folder = Path(tempfile.mkdtemp(prefix="campaign-"))
        self.kills = self.by_full_exec = self.self_kills = self.checks = 0
        self.found = dict.fromkeys(("lost", "unexpected", "wrong", "acknowledged_not_stored"), 0)
        self.next_item = self.refill = 0
        os.environ["STAYFAST_OUTCOME_FILE"] = os.devnull
        self.judge = JudgeProcess(options, expected)

    def enqueue(self, count: int) -> None:
        queue = open_queue(self.options["queue"], sink=self.options["sink"])
        numbers = range(self.next_item, self.next_item + count)
        queue.enqueue([(f"k{n:06d}", json.dumps({"id": f"k{n:06d}", "v": n})) for n in numbers])
        # every tenth is offered a second time, as a publisher that retries would
        queue.enqueue([(f"k{n:06d}", json.dumps({"id": f"k{n:06d}", "v": n})) for n in numbers if n % 10 == 0])
        self.next_item += count
        queue.close()

    def spawn(self) -> None:
        seed = self.chance.randrange(1 << 30)
        self.spawned += 1
        told = self.folder / f"worker-{self.spawned}-seed-{seed}"
        self.children[in_child(lambda: worker(self.options, seed), told)] = told

    def full_exec(self) -> None:
        """The real command, killed with its whole process group."""
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "campaign_task.py").write_text(
                "import stayfast, time\n@stayfast.task(key=lambda i: i['id'])\ndef work(batch):\n"
                "    time.sleep(0.0002 * len(batch))\n"
                "    return [stayfast.Failed('odd one out', retry=False) if i['v'] % 997 == 13 else "
                "{'sq': i['v'] ** 2 + 1} for i in batch]\n"
            )
            start = "from stayfast.cli.main import entry; entry()"
            command = [sys.executable, "-c", start, "work", "campaign_task:work", "--chunk", "10"]
            command += ["--queue", self.options["queue"], "--sink", self.options["sink"], "--workers", "2"]
            command += ["--max-deliveries", "1000000"]
            process = subprocess.Popen(
                command, cwd=folder, start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
            )
            time.sleep(0.3 + self.chance.random() * 0.5)
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            self.by_full_exec += 1
            self.killed()

    def reap(self) -> None:
        for pid, told in list(self.children.items()):
            done, status = os.waitpid(pid, os.WNOHANG)
            if done:
                code = os.waitstatus_to_exitcode(status)
                if code == -signal.SIGKILL:
                    self.forget(pid)
                    self.self_kills += 1
                    self.killed()
                elif code in (0, 75):
                    self.forget(pid)
                else:
                    raise SystemExit(failed(code, told))

    def forget(self, pid: int) -> None:
        self.children.pop(pid).unlink(missing_ok=True)

    def killed(self) -> None:
        self.kills += 1
        self.check()

    def check(self) -> None:
        """Nothing lost, nothing unexpected, and acknowledged implies stored: now."""
        self.checks += 1
        answer = self.judge.ask(self.next_item)
        for name in self.found:
            self.found[name] += answer[name]
        if answer["ready"] < 400:
            self.refill = 800

    def run(self) -> dict[str, Any]:
        self.enqueue(1500)
        target = self.options["kills"]
        for _ in range(self.options.get("workers", 3)):
            self.spawn()
        while self.kills < target:
            time.sleep(self.chance.random() * self.options.get("life_seconds", 0.04))
            self.reap()
            if self.children:
                victim = self.chance.choice(list(self.children))
                os.kill(victim, signal.SIGKILL)
                _, status = os.waitpid(victim, 0)
                code = os.waitstatus_to_exitcode(status)
                if code not in (0, 75, -signal.SIGKILL):  # it had failed by itself, just before
                    raise SystemExit(failed(code, self.children[victim]))
                self.forget(victim)
                if code == -signal.SIGKILL:
                    self.killed()
            if self.options.get("full_exec") and self.kills % 20 == 0:
                self.full_exec()
            if self.options.get("stop_early") and self.found["acknowledged_not_stored"]:
                break
            if self.refill:
                self.enqueue(self.refill)
                self.refill = 0
            while len(self.children) < self.options.get("workers", 3):
                self.spawn()
        return self.finish()

    def finish(self) -> dict[str, Any]:
        """No more kills: the storm is over, and everything must come right."""
        for pid in list(self.children):
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            self.forget(pid)
        told = self.folder / "last"
        pid = in_child(self.drain, told)
        deadline = time.monotonic() + 90
        while not (ended := os.waitpid(pid, os.WNOHANG))[0]:
            if time.monotonic() > deadline:
                os.kill(pid, signal.SIGKILL)
                raise SystemExit("the queue did not drain within 90 s after the storm")
            time.sleep(0.02)
        if ended[1]:
            raise SystemExit(failed(os.waitstatus_to_exitcode(ended[1]), told))
        self.check()
        self.judge.close()
        shutil.rmtree(self.folder, ignore_errors=True)
        return self.verdict()

    def drain(self) -> None:
        logging.disable(logging.WARNING)
        with Guard() as guard:
            queue, sink = opened(self.options, guard)
            Worker(TASK, queue, sink, guard, WorkerOptions(chunk=50)).run()
        queue.close()

    def verdict(self) -> dict[str, Any]:
        queue = open_queue(self.options["queue"], sink=self.options["sink"])
        sink = open_sink(self.options["sink"])
        audit = audit_queue(queue.entries(), sink.keys())
        dead = {row.key for row in queue.dead()}
        wrong = 0
        for n in range(self.next_item):
            payload = sink.get(f"k{n:06d}")
            if n % 997 == 13:
                wrong += payload is not None or f"k{n:06d}" not in dead
            else:
                wrong += payload is None or json.loads(payload) != answer(n)
        queue.close()
        sink.close()
        return {
            "items": self.next_item,
            "kills": self.kills,
            "self_kills": self.self_kills,
            "full_exec": self.by_full_exec,
            "checks": self.checks,
            "acknowledged_not_stored": self.found["acknowledged_not_stored"] + audit.lost_count,
            "lost": self.found["lost"] + audit.missing_count,
            "unexpected": self.found["unexpected"] + audit.foreign_count,
            "dead": audit.dead,
            "wrong": self.found["wrong"] + wrong,
        }


if __name__ == "__main__":
    print(json.dumps(Campaign(json.loads(sys.argv[1])).run()))
