"""Processes that are treated as a cluster treats pods: interrupted without mercy, started again until they finish."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path

from stayfast.errors import RunError
from stayfast.model.exit_codes import FINISHED, NOT_COUNTED

AGAIN = NOT_COUNTED | {-signal.SIGKILL, -signal.SIGTERM}
"""What the rendered failure policy ignores; anything else would count against the Job."""


@dataclass(slots=True)
class DemoPod:
    """One command that has to reach exit 0."""

    name: str
    command: list[str]
    folder: Path
    environ: dict[str, str]
    process: subprocess.Popen[bytes] | None = None
    starts: int = 0
    codes: list[int] = field(default_factory=list)
    started_at: float = 0.0
    seconds: float = 0.0

    @property
    def finished(self) -> bool:
        return bool(self.codes) and self.codes[-1] == FINISHED

    @property
    def output(self) -> Path:
        return self.folder / f"{self.name}.out"

    def start(self) -> None:
        """A new life, in a session of its own so that a kill takes all of it."""
        with open(self.output, "wb") as out, open(self.folder / f"{self.name}.log", "ab") as errors:
            self.process = subprocess.Popen(
                self.command, stdout=out, stderr=errors, start_new_session=True, env={**os.environ, **self.environ}
            )
        self.starts += 1
        self.started_at = time.monotonic()

    def poll(self) -> None:
        """Do what the Job controller does: finished, once more, or failed."""
        if self.process is None or self.finished:
            return
        code = self.process.poll()
        if code is None:
            return
        self.seconds += time.monotonic() - self.started_at
        self.codes.append(code)
        if code == FINISHED:
            return
        if code not in AGAIN:
            tail = (self.folder / f"{self.name}.log").read_text(errors="replace").strip().splitlines()[-1:]
            raise RunError(f"the demo's {self.name} left with {code}: {' '.join(tail)}", help="please report this")
        self.start()

    def interrupt(self, number: signal.Signals) -> bool:
        """SIGTERM to the one process that a pod has as PID 1, or SIGKILL to all of it; false when it is not there."""
        if self.process is None or self.process.poll() is not None:
            return False
        try:
            if number == signal.SIGKILL:
                os.killpg(self.process.pid, signal.SIGKILL)
            else:
                self.process.send_signal(number)
        except ProcessLookupError:
            return False
        return True

    def end(self) -> None:
        """Nothing is left behind."""
        if self.process is not None:
            self.interrupt(signal.SIGKILL)
            self.process.wait()
