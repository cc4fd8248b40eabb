"""How an attempt ended, told to everybody who may ask: one JSON line, the pod's termination message, and ``exec``."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import zlib
from collections.abc import Sequence
from typing import Any, NamedTuple

from stayfast.model.exit_codes import Outcome
from stayfast.settings import Settings

TERMINATION_MESSAGE_BYTES = 4096
STDERR_SECONDS = 0.2  # how long a stuck reader of standard error may keep us


class ExitReport(NamedTuple):
    """Everything worth knowing about the end of an attempt."""

    outcome: Outcome
    code: int
    action: str = "attempt_ended"
    run: str = ""
    attempt: int | None = None
    """None where nobody counts: ``exec`` around a program that keeps no run."""
    rank: int = 0
    cause: str | None = None
    detail: str = ""
    step: int | None = None
    saved: str = ""
    seconds_used: float = 0.0
    seconds_allowed: float | None = None
    drain: Sequence[dict[str, Any]] = ()

    def to_json_line(self) -> str:
        """One line of JSON."""
        return json.dumps(self._asdict(), separators=(",", ":"))


def publish_report(report: ExitReport, settings: Settings, *, quiet: bool = False) -> None:
    """Tell the files first, standard error last: a blocked pipe must not keep ``exec`` from the truth."""
    line = report.to_json_line()
    if settings.outcome_dir is not None:
        _replace(os.path.join(settings.outcome_dir, _file_name(report)), line)
    write_termination_message(report, settings)
    if settings.outcome_file is not None:
        with contextlib.suppress(OSError), open(settings.outcome_file, "a", encoding="utf-8") as file:
            file.write(line + "\n")
    elif not quiet:
        _write_stderr(line)


def write_termination_message(report: ExitReport, settings: Settings) -> None:
    """``kubectl describe pod`` shows the last of these; the file exists only in a pod."""
    path = settings.termination_log
    if not path or not os.path.exists(path):
        return
    line = report.to_json_line()
    if len(line) > TERMINATION_MESSAGE_BYTES:  # cut short it would no longer be JSON
        line = report._replace(drain=(), detail=report.detail[:300], run=report.run[-300:]).to_json_line()
    with contextlib.suppress(OSError):
        # Without O_NONBLOCK a pipe in that place, which nobody reads, would keep us here.
        descriptor = os.open(path, os.O_WRONLY | os.O_TRUNC | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            os.write(descriptor, line.encode())
        finally:
            os.close(descriptor)


def _file_name(report: ExitReport) -> str:
    """One file per rank and piece of work: a launcher's second program must not hide how the first one ended."""
    work = report.run or " ".join(sys.argv[:1])
    return f"rank-{report.rank}-{zlib.crc32(work.encode('utf-8', 'replace')):08x}.json"


def _replace(path: str, line: str) -> None:
    temporary = f"{path}.{os.getpid()}"
    with contextlib.suppress(OSError):
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(temporary, "w", encoding="utf-8") as file:
            file.write(line + "\n")
        os.replace(temporary, path)


def _write_stderr(line: str) -> None:
    """Write to standard error without ever waiting long: its reader may be gone or stuck."""

    import threading

    def write() -> None:
        with contextlib.suppress(OSError, ValueError):
            os.write(stream.fileno(), (line + "\n").encode())

    stream = sys.stderr
    if stream is None:  # closed from the start: whatever is number 2 now is somebody else's
        return
    with contextlib.suppress(OSError, ValueError):
        if threading.current_thread() is threading.main_thread():
            stream.flush()
    writer = threading.Thread(target=write, daemon=True)
    try:
        writer.start()
    except RuntimeError:  # the interpreter is going down already
        return
    writer.join(STDERR_SECONDS)
