"""A worker process as its pool knows it: how it is started, and what it has reported through its pipe."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass, field
from typing import Any

from stayfast.batch.worker.item_counts import SharedTally
from stayfast.model import variables
from stayfast.process.proc import read_stat


@dataclass(slots=True)
class WorkerHandle:
    """The process, its two pipes, the memory with its counts, and its state."""

    process: subprocess.Popen[bytes]
    status_fd: int
    alive_fd: int
    tally: SharedTally
    handles: list[str] = field(default_factory=list)
    started: bool = False
    warned: bool = False  # it has had a notice
    finished: bool = False  # it found the queue drained
    fatal: str | None = None
    gone: bool = False  # the queue or the sink was removed or replaced
    status_closed_at: float | None = None  # its pipe is closed
    _buffer: bytes = b""

    @classmethod
    def start(cls, options: dict[str, Any], stdout: int | None) -> WorkerHandle:
        """A new process with these options; see ``worker_process``."""
        status, report = os.pipe()
        life, alive = os.pipe()
        tally = SharedTally.create()
        given = json.dumps({**options, "tell_fd": report, "life_fd": life, "tally_fd": tally})
        command = [sys.executable, "-m", "stayfast.batch.worker.worker_process", given]
        environment = {**os.environ, variables.OUTCOME_FILE: os.devnull, variables.TERMINATION_LOG: os.devnull}
        environment.pop(variables.OUTCOME_DIR, None)  # the pool reports how it ended, once
        try:
            process = subprocess.Popen(
                command, pass_fds=(report, life, tally), env=environment, stdin=subprocess.DEVNULL, stdout=stdout
            )
            child = cls(process, status, alive, SharedTally(tally))
        finally:
            for descriptor in (report, life, tally):
                os.close(descriptor)
        os.set_blocking(status, False)
        return child

    def read_status(self) -> bool:
        """Take in what it has reported; false when its pipe is at its end."""
        while True:
            try:
                data = os.read(self.status_fd, 1 << 16)
            except (BlockingIOError, OSError):
                return True
            if not data:
                return False
            *lines, self._buffer = (self._buffer + data).split(b"\n")
            for line in lines:
                self._apply(json.loads(line))

    def _apply(self, report: dict[str, Any]) -> None:
        self.handles = report.get("handles", self.handles)
        self.started = self.started or bool(report.get("started"))
        self.warned = self.warned or bool(report.get("warned"))
        self.finished = self.finished or bool(report.get("finished"))
        self.fatal = report.get("fatal", self.fatal)
        self.gone = self.gone or bool(report.get("gone"))

    def is_running(self) -> bool:
        """Whether it is neither dead nor stopped."""
        if self.process.returncode is not None:
            return False
        stat = read_stat(self.process.pid)
        return stat is None or stat.state not in "TtZX"

    def close(self) -> None:
        """Close both pipes."""
        os.close(self.status_fd)
        os.close(self.alive_fd)
