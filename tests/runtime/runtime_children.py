"""Real child processes for tests: started from source text, signalled at known moments, judged by how they ended."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SOURCE = Path(__file__).resolve().parents[2] / "src"
STAYFAST = [sys.executable, "-m", "stayfast"]


@dataclass
class Ended:
    """How a child ended; ``seconds`` counts from the first signal that the test sent, or from the start."""

    code: int
    seconds: float
    out: str
    err: str

    @property
    def reports(self) -> list[dict[str, Any]]:
        """Every outcome line on standard error."""
        found = []
        for line in self.err.splitlines():
            if line.startswith("{"):
                try:
                    found.append(json.loads(line))
                except ValueError:
                    continue
        return found

    @property
    def report(self) -> dict[str, Any]:
        """The one outcome line."""
        assert len(self.reports) == 1, self.err
        return self.reports[0]


class Child:
    """A running child whose output is collected on threads, so that no pipe ever fills."""

    def __init__(self, command: list[str], environment: dict[str, str], **options: Any) -> None:
        self._since = time.monotonic()
        self._lines: list[str] = []
        self._errors: list[str] = []
        self._news = threading.Condition()
        options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "stdin": subprocess.DEVNULL} | options
        self.process = subprocess.Popen(command, env=environment, text=True, errors="replace", **options)
        self.pid = self.process.pid
        pairs = ((self.process.stdout, self._lines), (self.process.stderr, self._errors))
        self._readers = [threading.Thread(target=self._read, args=pair, daemon=True) for pair in pairs if pair[0]]
        for reader in self._readers:
            reader.start()

    def _read(self, stream: Any, lines: list[str]) -> None:
        for line in stream:
            with self._news:
                lines.append(line)
                self._news.notify_all()

    def wait_for(self, text: str, seconds: float = 20.0) -> str:
        """The first line of standard output that holds the text."""

        def found() -> str | None:
            return next((line for line in self._lines if text in line), None)

        with self._news:
            self._news.wait_for(lambda: found() or self.process.poll() is not None, seconds)
            line = found()
        assert line is not None, f"no {text!r} in {self._lines} {self._errors}"
        return line.strip()

    def send(self, number: int = signal.SIGTERM) -> float:
        """Signal the child itself; returns the monotonic instant of sending."""
        self._since = time.monotonic()
        self.process.send_signal(number)
        return self._since

    def end(self, seconds: float = 20.0) -> Ended:
        """Wait until it has ended; a hang is killed and fails the test."""
        try:
            code = self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise AssertionError(f"still running after {seconds} s: {self._lines} {self._errors}") from None
        took = time.monotonic() - self._since
        for reader in self._readers:
            reader.join(2.0)
        for stream in (self.process.stdout, self.process.stderr):
            if stream and not any(reader.is_alive() for reader in self._readers):
                stream.close()
        return Ended(code, took, "".join(self._lines), "".join(self._errors))


def environment(**variables: object) -> dict[str, str]:
    """The environment of a child: ours, cleaned, plus what the test wants; None unsets."""
    values = {name: value for name, value in os.environ.items() if not name.startswith("STAYFAST_")}
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "GCE_METADATA_HOST", "JOB_COMPLETION_INDEX"):
        values.pop(name, None)
    values |= {"PYTHONPATH": str(SOURCE), "PYTHONUNBUFFERED": "1", "STAYFAST_METADATA": "off"}
    for name, value in variables.items():
        if value is None:
            values.pop(name, None)
        else:
            values[name] = str(value)
    return values


def python(source: str, *arguments: str, before: list[str] | None = None, **variables: object) -> Child:
    """Start a Python program given as text; ``before`` stands in front of the command, such as ``exec``."""
    command = [*(before or []), sys.executable, "-c", textwrap.dedent(source), *arguments]
    return Child(command, environment(**variables))


def held(*arguments: str, **variables: object) -> Child:
    """Start ``stayfast`` itself."""
    return Child([*STAYFAST, *arguments], environment(**variables))
