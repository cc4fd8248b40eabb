"""A real ``stayfast dashboard`` in a process of its own, runs to show, and plain requests without a client's help."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from stayfast.model.exit_codes import Outcome
from stayfast.runtime.run_record.record import RECORD_KEY, AttemptRecord, CheckpointRecord, RunRecord, encode

SOURCE = Path(__file__).resolve().parents[2] / "src"


def environment(**more: str) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(SOURCE), "STAYFAST_METADATA": "off", **more}


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Dashboard:
    """Started on a free loopback port; ended with SIGINT, as a person would."""

    def __init__(self, tmp_path: Path, *arguments: str, actions: bool = False, port: int = 0) -> None:
        token_file = tmp_path / f"token-{os.urandom(4).hex()}"
        more = ["--allow-actions", "--token-file", str(token_file)] if actions else []
        command = [sys.executable, "-m", "stayfast", "dashboard", *arguments, "--port", str(port), "--json", *more]
        self.log = tmp_path / "dashboard.log"
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(command, env=environment(), stdout=subprocess.PIPE, stderr=log)
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, self.log.read_text()
        self.url: str = json.loads(line)["url"]
        self.port = urlsplit(self.url).port or 0
        self.token = token_file.read_text().strip() if actions else ""

    def __enter__(self) -> Dashboard:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def end(self) -> int:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
            try:
                self.process.wait(20)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
                raise
        return self.process.returncode

    def get(self, path: str) -> Any:
        answer = self.ask("GET", path)
        assert answer.status == 200, (path, answer)
        return answer.json

    def ask(
        self, method: str, path: str, headers: list[tuple[str, str]] | None = None, body: bytes = b"", host: str = ""
    ) -> Answer:
        """One request, byte by byte as given; ``host="-"`` leaves the header out."""
        lines = [f"{method} {path} HTTP/1.1"]
        if host != "-":
            lines.append(f"Host: {host or f'127.0.0.1:{self.port}'}")
        lines += [f"{name}: {value}" for name, value in headers or []]
        if body or method in ("POST", "PUT", "PATCH"):
            lines.append(f"Content-Length: {len(body)}")
        lines += ["Connection: close", "", ""]
        with socket.create_connection(("127.0.0.1", self.port), timeout=20) as connection:
            connection.sendall("\r\n".join(lines).encode("utf-8", "surrogateescape") + body)
            data = b""
            while more := connection.recv(1 << 16):
                data += more
        head, _, content = data.partition(b"\r\n\r\n")
        first, *rest = head.decode("latin-1").split("\r\n")
        found = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in rest)}
        return Answer(int(first.split()[1]), found, content)

    def post(self, path: str, value: Any, token: str | None = None) -> Answer:
        headers = [
            ("Content-Type", "application/json"),
            ("X-Stayfast-Token", self.token if token is None else token),
            ("Origin", self.url.rstrip("/")),
        ]
        return self.ask("POST", path, headers, json.dumps(value).encode())


def row(attempt: int, **more: Any) -> AttemptRecord:
    base = {
        "started_at": f"2026-11-15T1{attempt % 10}:00:00.000Z",
        "ended_at": f"2026-11-15T1{attempt % 10}:30:00.000Z",
        "first_step": attempt * 100,
        "last_step": attempt * 100 + 99,
        "useful_seconds": 1500.0,
        "save_seconds": 30.0,
        "outcome": Outcome.INTERRUPTED,
        "cause": "preemption",
        "zone": "us-central1-a",
        "capacity": "spot",
        "usd_per_hour": 2.0,
    }
    return AttemptRecord(attempt, **(base | more))


def write_run(folder: Path, *rows: AttemptRecord, checkpoints: int = 2, **more: Any) -> str:
    """A run as its ledger says; returns its URL."""
    folder.mkdir(parents=True, exist_ok=True)
    listed = tuple(
        CheckpointRecord(1000 - number, max(1, len(rows)), f"2026-11-15T19:{59 - number % 60:02d}:00.000Z", size=4096)
        for number in range(checkpoints)
    )
    rows = rows or (row(1),)
    head = RunRecord(f"file://{folder}", len(rows), "token", listed, rows, **more)
    (folder / RECORD_KEY).write_bytes(encode(head))
    return f"file://{folder}"
