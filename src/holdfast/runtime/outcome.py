"""How an attempt ended, told to everybody who may ask: one JSON line, the pod's termination message, and ``exec``."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import threading
from dataclasses import asdict, dataclass, field
from typing import Any

from holdfast.model.exits import Outcome
from holdfast.runtime.environment import Settings

TERMINATION_MESSAGE_BYTES = 4096


@dataclass(frozen=True, slots=True)
class Report:
    """Everything worth knowing about the end of an attempt."""

    outcome: Outcome
    code: int
    action: str = "attempt_ended"
    run: str = ""
    attempt: int = 1
    rank: int = 0
    cause: str | None = None
    detail: str = ""
    step: int | None = None
    saved: str = ""
    seconds_used: float = 0.0
    seconds_allowed: float | None = None
    drain: list[dict[str, Any]] = field(default_factory=list)

    def line(self) -> str:
        """One line of JSON."""
        return json.dumps(asdict(self), separators=(",", ":"))


def publish(report: Report, settings: Settings, *, quiet: bool = False) -> None:
    """Tell the files first, standard error last: a blocked pipe must not keep ``exec`` from the truth."""
    line = report.line()
    if settings.outcome_dir is not None:
        _replace(os.path.join(settings.outcome_dir, f"rank-{report.rank}.json"), line)
    write_termination_message(line, settings)
    if settings.outcome_file is not None:
        with contextlib.suppress(OSError), open(settings.outcome_file, "a", encoding="utf-8") as file:
            file.write(line + "\n")
    elif not quiet:
        _say(line)


def write_termination_message(line: str, settings: Settings) -> None:
    """``kubectl describe pod`` shows the last of these; the file exists only in a pod."""
    path = settings.termination_log
    if path and os.path.exists(path):
        with contextlib.suppress(OSError), open(path, "w", encoding="utf-8") as file:
            file.write(line[:TERMINATION_MESSAGE_BYTES])


def _replace(path: str, line: str) -> None:
    temporary = f"{path}.{os.getpid()}"
    with contextlib.suppress(OSError):
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(temporary, "w", encoding="utf-8") as file:
            file.write(line + "\n")
        os.replace(temporary, path)


def _say(line: str) -> None:
    """Write to standard error without ever waiting long: its reader may be gone or stuck."""

    def write() -> None:
        with contextlib.suppress(OSError, ValueError):
            os.write(sys.stderr.fileno() if sys.stderr is not None else 2, (line + "\n").encode())

    with contextlib.suppress(OSError, ValueError):
        if sys.stderr is not None and threading.current_thread() is threading.main_thread():
            sys.stderr.flush()
    writer = threading.Thread(target=write, daemon=True)
    try:
        writer.start()
    except RuntimeError:  # the interpreter is going down already
        return
    writer.join(0.5)
