"""The demo itself: a batch and a training run in a storm, then the proof."""

from __future__ import annotations

import json
import random
import signal
import sqlite3
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stayfast.batch.queue.open_queue import open_queue
from stayfast.batch.sink.open_sink import open_sink
from stayfast.batch.worker.audit import audit_queue
from stayfast.errors import RunError
from stayfast.model import variables
from stayfast.proof.demo import image_features
from stayfast.proof.demo.pod import DemoPod

USD_PER_HOUR = 0.512  # g2-standard-8 (one L4) on Spot, us-central1, list price of 2026-08-21
LONGEST_SECONDS = 110.0
CHUNK = 20


@dataclass(frozen=True, slots=True)
class DemoSettings:
    """How much work, and how much weather."""

    items: int = 2000
    workers: int = 3
    kills: int = 16
    seed: int = 1
    steps: int = 400


class StormDemo:
    """Holds the pods, throws the storm, tells the end."""

    def __init__(self, settings: DemoSettings, folder: Path) -> None:
        self.settings = settings
        self.folder = folder
        self.queue_url = f"sqlite:///{folder}/work.db?queue=images"
        self.sink_url = f"sqlite:///{folder}/work.db?table=features"
        self.steps_log = folder / "steps.log"
        self.kills: list[tuple[float, str, str]] = []
        self._chance = random.Random(settings.seed)
        self._started = time.monotonic()
        self._stopped: int | None = None
        self.trainer = self._trainer("training", folder / "training", self.steps_log)
        self.reference = self._trainer("uninterrupted", folder / "uninterrupted", folder / "uninterrupted.steps")
        self.pods = [self.trainer, *(self._worker(number) for number in range(settings.workers))]

    def _trainer(self, name: str, run: Path, log: Path) -> DemoPod:
        program = [sys.executable, "-m", "stayfast.proof.demo.training"]
        priced = {variables.USD_PER_HOUR: str(USD_PER_HOUR), variables.CAPACITY: "spot"}  # as if it stood there
        return DemoPod(name, [*program, f"file://{run}", str(self.settings.steps), str(log)], self.folder, priced)

    def _worker(self, number: int) -> DemoPod:
        urls = ["--queue", self.queue_url, "--sink", self.sink_url, "--chunk", str(CHUNK)]
        command = [
            sys.executable,
            "-m",
            "stayfast.cli.main",
            "work",
            "stayfast.proof.demo.image_features:features",
            *urls,
        ]
        log = {"STAYFAST_DEMO_LOG": str(self.folder / "computed")}
        return DemoPod(f"worker-{number}", command, self.folder, log)

    # -- the storm

    def run(self, show: Callable[[StormDemo], None]) -> dict[str, Any]:
        """Everything, from the first item to the proof."""
        self._enqueue()
        everybody = [*self.pods, self.reference]
        try:
            for pod in everybody:
                pod.start()
            self._storm(everybody, show)
        finally:
            for pod in everybody:
                pod.end()
        return self._proof()

    def _enqueue(self) -> None:
        queue = open_queue(self.queue_url)
        items = [{"image": f"image-{number:06d}", "seed": number} for number in range(self.settings.items)]
        queue.enqueue((item["image"], json.dumps(item)) for item in items)  # type: ignore[misc]
        queue.close()

    def _storm(self, everybody: list[DemoPod], show: Callable[[StormDemo], None]) -> None:
        next_kill = time.monotonic() + 0.8
        while not all(pod.finished for pod in everybody):
            if self._stopped is not None:
                raise SystemExit(128 + self._stopped)
            if self.seconds > LONGEST_SECONDS:
                raise RunError("the demo did not finish in time; this machine is very busy", help="try --kills 4")
            for pod in everybody:
                pod.poll()
            if time.monotonic() >= next_kill and len(self.kills) < self.settings.kills:
                self._interrupt_one()
                next_kill = time.monotonic() + self._chance.uniform(0.25, 0.7)
            show(self)
            time.sleep(0.05)
        show(self)

    def _interrupt_one(self) -> None:
        """Lightning: a machine is reclaimed, with the usual warning or with none."""
        alive = [pod for pod in self.pods if not pod.finished]
        if alive:
            pod = self._chance.choice(alive)
            number = self._chance.choice((signal.SIGTERM, signal.SIGKILL))
            if pod.interrupt(number):
                self.kills.append((self.seconds, pod.name, number.name))

    def stop(self, number: int) -> None:
        """End early: a signal to the demo itself."""
        self._stopped = number

    # -- what can be seen

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._started

    @property
    def step(self) -> int:
        """The last step that the training wrote down."""
        try:
            line = self.steps_log.read_bytes()[-64:].decode().splitlines()[-1]
            return int(line.split()[0]) + 1
        except (OSError, IndexError, ValueError):
            return 0

    def recorded(self) -> int:
        """How many results there are by now."""
        try:
            with sqlite3.connect(f"file:{self.folder}/work.db?mode=ro", uri=True, timeout=1) as database:
                return int(database.execute("SELECT count(*) FROM features").fetchone()[0])
        except sqlite3.Error:
            return 0

    # -- the proof

    def _proof(self) -> dict[str, Any]:
        queue = open_queue(self.queue_url, sink=self.sink_url)
        sink = open_sink(self.sink_url)
        audit = audit_queue(queue.entries(), sink.keys())
        queue.close()
        sink.close()
        rows = self._rows()
        right = sum(json.loads(payload) == image_features.describe(int(key[6:])) for key, payload in rows)
        keys = [key for key, _ in rows]
        computed = sum(len(path.read_text().split()) for path in self.folder.glob("computed.*"))
        steps = [int(line.split()[0]) for line in self.steps_log.read_text().splitlines()]
        weights, expected = self.trainer.output.read_text().strip(), self.reference.output.read_text().strip()
        lost_seconds = max(0.0, self.trainer.seconds - self.reference.seconds)
        return {
            "items": self.settings.items,
            "recorded": audit.recorded,
            "lost": self.settings.items - audit.recorded + (len(rows) - right),
            "duplicates": len(keys) - len(set(keys)),
            "computed": computed,
            "computed_again": computed - len(set(keys)),
            "bit_identical": bool(weights) and weights == expected,
            "weights": weights[:16],
            "kills": len(self.kills),
            "sigterm": sum(name == "SIGTERM" for _, _, name in self.kills),
            "sigkill": sum(name == "SIGKILL" for _, _, name in self.kills),
            "attempts": sum(pod.starts for pod in self.pods),
            "steps": self.settings.steps,
            "steps_repeated": len(steps) - len(set(steps)),
            "seconds": round(self.seconds, 2),
            "training_lost_seconds": round(lost_seconds, 2),
            "training_lost_usd": round(lost_seconds / 3600 * USD_PER_HOUR, 6),
            "usd_per_hour": USD_PER_HOUR,
        }

    def _rows(self) -> list[tuple[str, str]]:
        with sqlite3.connect(f"{self.folder}/work.db") as database:
            return list(database.execute("SELECT key, payload FROM features"))
