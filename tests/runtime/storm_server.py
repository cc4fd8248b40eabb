"""A fork server for suite E: programs in a logging storm, each signalled twice at random instants, judged by its end.

Run as ``python storm_server.py COUNT SEED DIRECTORY [--impatient]``; prints one JSON line with what was seen, the
impatient one at the first thing that is wrong. Each program is a fork
of this process that has imported everything already, and leaves by the interpreter's own way out, exit handlers
included.
"""

from __future__ import annotations

import json
import logging
import logging.handlers
import os
import queue
import random
import select
import signal
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

import stayfast
import stayfast.runtime.runs.run  # imported before the forks, so that each of them starts at once
from stayfast.settings import read_settings

AT_ONCE = 10
GRACE, MARGIN = 8.0, 1.0
HANG_SECONDS = 20.0


def program(number: int, directory: str, ready: int) -> None:
    """A loop that logs without pause, with two more threads that do the same, and a run in every second program."""
    os.environ |= {
        "STAYFAST_GRACE_SECONDS": str(GRACE),
        "STAYFAST_MARGIN_SECONDS": str(MARGIN),
        "STAYFAST_METADATA": "off",
        "STAYFAST_OUTCOME_FILE": f"{directory}/outcome-{number}",
        "STAYFAST_CHECKPOINT_SECONDS": "0.005",
    }
    logging.basicConfig(filename=f"{directory}/log-{number}", level=logging.DEBUG, force=True)
    if number % 4 < 2:  # through a queue, as busy programs log; its lock is one that nobody may take twice
        root, lines = logging.getLogger(), queue.Queue[logging.LogRecord]()
        logging.handlers.QueueListener(lines, *root.handlers).start()
        root.handlers = [logging.handlers.QueueHandler(lines)]
    log = logging.getLogger("program")
    stop = threading.Event()

    def storm() -> None:
        while not stop.is_set():
            log.info("a line from %s", threading.current_thread().name)
            stop.wait(0.0005)

    for _ in range(2):
        threading.Thread(target=storm, daemon=number % 3 != 0).start()
    url = f"file://{directory}/run-{number}" if number % 2 else None
    with stayfast.run(url, settings=read_settings()) as run:
        run.on_drain(stop.set, name="stop the storm")
        os.write(ready, b"r")
        for step in run.steps():
            log.info("step %d", step)
            if step % 50 == 0:
                time.sleep(0.001)


def judge(code: int, seconds: float, directory: str, number: int) -> str:
    """What is wrong with this end; empty when nothing is."""
    if code != 75:
        return f"program {number} left with {code}"
    if seconds > GRACE - MARGIN:
        return f"program {number} took {seconds:.2f} s"
    lines = Path(directory, f"outcome-{number}").read_text().splitlines()
    report = json.loads(lines[0])
    if len(lines) != 1 or report["outcome"] != "interrupted":
        return f"program {number} reported {lines}"
    drained = [step["outcome"] for step in report["drain"]]
    if drained != ["done"] * len(drained) or not drained:
        return f"program {number} drained {report['drain']}"
    saved = f"step {report['step']}" if report["step"] >= 0 else "nothing"
    if number % 2 and report["saved"] != saved:
        return f"program {number} stopped at {report['step']} and saved {report['saved']}"
    return ""


@dataclass
class Running:
    """One program, and what is to be done to it next."""

    number: int
    pid: int
    ready: int
    signals: list[float] = field(default_factory=list)
    first: float = 0.0

    def look(self, rng: random.Random, directory: str) -> str | None:
        """Do what is due; returns a verdict when it has ended: empty when all was well."""
        now = time.monotonic()
        if self.ready >= 0:
            if not select.select([self.ready], [], [], 0)[0]:
                return f"program {self.number} never started" if now - self.first > HANG_SECONDS else None
            os.close(self.ready)
            self.ready = -1
            first = now + rng.random() * 0.04
            self.signals = [first, first + rng.random() * 0.01]
            self.first = first
        while self.signals and self.signals[0] <= time.monotonic():
            if len(self.signals) == 2:
                self.first = time.monotonic()
            self.signals.pop(0)
            os.kill(self.pid, signal.SIGTERM)  # one that has ended takes it too: it is not reaped yet
        if self.signals:
            return None
        ended, status = os.waitpid(self.pid, os.WNOHANG)
        if ended:
            return judge(os.waitstatus_to_exitcode(status), time.monotonic() - self.first, directory, self.number)
        if now - self.first > HANG_SECONDS:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
            return f"program {self.number} hung"
        return None


def main(count: int, seed: int, directory: str, impatient: bool = False) -> None:
    """Keep a few programs going until all have ended."""
    rng = random.Random(seed)
    running: list[Running] = []
    wrong: list[str] = []
    started = 0
    while started < count or running:
        while started < count and len(running) < AT_ONCE:
            reading, writing = os.pipe()
            pid = os.fork()
            if pid == 0:
                program(started, directory, writing)  # leaves by SystemExit, through every frame of ours
                os._exit(99)
            os.close(writing)
            running.append(Running(started, pid, reading, first=time.monotonic()))
            started += 1
        for item in list(running):
            verdict = item.look(rng, directory)
            if verdict is not None:
                running.remove(item)
                wrong += [verdict] if verdict else []
                for path in (f"log-{item.number}", f"outcome-{item.number}"):
                    Path(directory, path).unlink(missing_ok=True)
        if impatient and wrong:
            for item in running:
                os.kill(item.pid, signal.SIGKILL)
                os.waitpid(item.pid, 0)
            break
        time.sleep(0.001)
    print(json.dumps({"programs": started, "signals": 2 * started, "wrong": wrong}))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4:] == ["--impatient"])
