"""Start a program as a container would, send it SIGTERM, and write down what every process of it does."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from stayfast.doctor.trace import Tracer
from stayfast.errors import UsageError
from stayfast.runtime.namespace import Options, Started, start
from stayfast.runtime.process_tree import disposition, state_of

HANDLER_SECONDS = 1.0
SETTLE_SECONDS = 0.25
STEP_SECONDS = 0.002
LOOK_SECONDS = 0.02
BURIAL_SECONDS = 10.0


@dataclass(slots=True)
class Process:
    """One process of the program; times count from the sending of SIGTERM."""

    pid: int
    host_pid: int
    parent: int
    command: str
    action: str
    """What it does about SIGTERM: handler, default, ignored, blocked."""
    at_signal: bool = True
    received_seconds: float | None = None
    ended_seconds: float | None = None
    ended_status: int | None = None
    children_seconds: list[float] = field(default_factory=list)
    """When it started others: a shell that acts on a signal does so by starting commands."""


@dataclass(slots=True)
class Observation:
    """Everything that was seen."""

    command: list[str]
    processes: dict[int, Process] = field(default_factory=dict)
    first: int = 0
    namespace: bool = True
    why_no_namespace: str | None = None
    traced: bool = True
    why_not_traced: str | None = None
    sent_after_seconds: float = 0.0
    delivered: bool = False
    """Whether PID 1 could notice the signal at all."""
    ended_before: bool = False
    exit_code: int = 0
    ended_by: str = "exit"
    seconds: float = 0.0
    left_running: list[int] = field(default_factory=list)
    start_error: str | None = None


def observe(
    command: Sequence[str], *, grace_seconds: float, after_seconds: float | None, namespace: bool
) -> Observation:
    """Run the command once; nothing of it is left when this returns, however it returns."""
    stdout = sys.stderr.fileno() if sys.stderr is not None else None
    options = Options(namespace=namespace, held=True)
    started = start(command, cwd=os.getcwd(), env=os.environ, stdout=stdout, options=options)
    watch = _Watch(list(command), started)
    try:
        watch.tracer.await_end(started.pid)
        started.release()
        return watch.run(grace_seconds, after_seconds)
    finally:
        watch.end()
        started.close()


class _Watch:
    def __init__(self, command: list[str], started: Started) -> None:
        self.started = started
        self.seen = Observation(command, first=started.pid, namespace=started.namespace)
        self.seen.why_no_namespace = started.why_not
        self.tracer = Tracer(self._signalled, self._born, self._ended)
        self.sent_at: float | None = None
        self.is_leaving = False

    def run(self, grace_seconds: float, after_seconds: float | None) -> Observation:
        seen, started = self.seen, self.started
        began = time.monotonic()
        code = self._wait_for_handler(began, after_seconds)
        if started.start_error is not None:
            reason = os.strerror(started.start_error)
            raise UsageError(f"cannot start {seen.command[0]!r}: {reason}", help="check its name, its mode and PATH")
        if code is None:
            seen.why_not_traced = self.tracer.attach(seen.first)
            seen.traced = seen.why_not_traced is None
        while code is None and self.is_leaving:
            self.tracer.step()
            code = self.started.wait(STEP_SECONDS)
        if code is not None:
            seen.ended_before, seen.exit_code, seen.seconds = True, _code(code), 0.0
            return seen
        self._look(at_signal=True)
        seen.sent_after_seconds = round(time.monotonic() - began, 3)
        self.sent_at = time.monotonic()
        seen.delivered = disposition(seen.first, signal.SIGTERM) in ("handler", "blocked") or not seen.namespace
        if seen.namespace:
            os.kill(seen.first, signal.SIGTERM)
        else:
            seen.delivered = started.signal(signal.SIGTERM)
        if seen.delivered and not seen.traced:
            self._signalled(seen.first, signal.SIGTERM)
        self._until_the_end(grace_seconds)
        return seen

    def end(self) -> None:
        """End what still runs: the dead are buried by their tracer first, then by their parent."""
        until = time.monotonic() + BURIAL_SECONDS
        while self.started.poll() is None and time.monotonic() < until:
            self.started.kill_all()
            self.tracer.step()
            self.started.wait(STEP_SECONDS)

    def _wait_for_handler(self, began: float, after_seconds: float | None) -> int | None:
        """Until a process shows a handler, or the time is over; the exit code when the program ended before."""
        limit = HANDLER_SECONDS if after_seconds is None else after_seconds
        quiet_since, used, looked = began, -1, began
        while time.monotonic() - began < limit:
            self.tracer.step()
            code = self.started.wait(STEP_SECONDS)
            if code is not None:
                return code
            if time.monotonic() - looked < LOOK_SECONDS:
                continue
            looked = time.monotonic()
            tree = self.started.tree()
            # Interpreters (node) have handlers of their own before the program installs its: wait until it is up.
            if used != (used := sum(_ticks(pid) for pid in tree)):
                quiet_since = time.monotonic()
                continue
            up = after_seconds is None and time.monotonic() - quiet_since >= SETTLE_SECONDS
            if up and any(disposition(pid, signal.SIGTERM) == "handler" for pid in tree):
                break
        return self.started.poll()

    def _until_the_end(self, grace_seconds: float) -> None:
        assert self.sent_at is not None
        seen = self.seen
        code: int | None = None
        looked = 0.0
        while code is None:
            self.tracer.step()
            now = time.monotonic()
            if now - looked > LOOK_SECONDS:
                looked = now
                self._look(at_signal=False)
            if seen.ended_by == "exit" and now - self.sent_at >= grace_seconds:
                seen.ended_by = "sigkill"
                self.started.kill_all()
            code = self.started.wait(STEP_SECONDS)
        seen.seconds = round(time.monotonic() - self.sent_at, 3)
        seen.exit_code = _code(code)
        first = seen.processes.get(seen.first)
        if first is not None and first.ended_seconds is None:
            self._ended(seen.first, 0)

    # -- what is seen

    def _look(self, *, at_signal: bool) -> None:
        tree = self.started.tree()
        for pid in tree:
            if pid not in self.seen.processes:
                self._add(pid, at_signal=at_signal)
            elif self.seen.processes[pid].received_seconds is None:
                self._look_at(self.seen.processes[pid])
        if not self.seen.traced and self.sent_at is not None:
            for pid, process in self.seen.processes.items():
                if process.ended_seconds is None and pid not in tree:
                    self._ended(pid, 0)

    def _look_at(self, process: Process) -> None:
        action = disposition(process.host_pid, signal.SIGTERM)
        if action != "gone":
            if process.action == "blocked" and self.seen.delivered and process.host_pid == self.seen.first:
                if not _is_pending(
                    process.host_pid
                ):  # it waits for signals instead of handling them, and took this one
                    process.received_seconds = self._since()
                return
            process.action = action

    def _add(self, pid: int, *, at_signal: bool) -> None:
        if state_of(pid) in "ZX":
            return
        status = _status(pid)
        self.seen.processes[pid] = Process(
            pid=int(status.get("NSpid", str(pid)).split()[-1]),
            host_pid=pid,
            parent=int(status.get("PPid", "0")),
            command=_command(pid, status),
            action=disposition(pid, signal.SIGTERM),
            at_signal=at_signal,
        )

    def _since(self) -> float:
        return 0.0 if self.sent_at is None else round(time.monotonic() - self.sent_at, 3)

    def _signalled(self, pid: int, number: int) -> None:
        if number != signal.SIGTERM or self.sent_at is None:
            return
        if pid == self.seen.first and not self.seen.delivered and self.seen.processes[pid].action == "default":
            return  # a tracer sees it go by, but for PID 1 the kernel drops what has no handler
        if pid not in self.seen.processes:
            self._add(pid, at_signal=False)
        process = self.seen.processes.get(pid)
        if process is not None and process.received_seconds is None:
            process.action = disposition(pid, signal.SIGTERM)
            process.received_seconds = self._since()

    def _born(self, parent: int, _child: int) -> None:
        process = self.seen.processes.get(parent)
        if process is not None and self.sent_at is not None:
            process.children_seconds.append(self._since())

    def _ended(self, pid: int, status: int) -> None:
        if self.sent_at is None and pid == self.seen.first:  # by itself; what it leaves behind is still there
            self.is_leaving = True
            self._look(at_signal=False)
            self.seen.left_running = [other for other in self.seen.processes if other != pid]
        process = self.seen.processes.get(pid)
        if process is None or self.sent_at is None:
            return
        process.ended_seconds, process.ended_status = self._since(), status
        if pid == self.seen.first and self.seen.ended_by == "exit":
            others = [one for one in self.seen.processes.values() if one.ended_seconds is None]
            self.seen.left_running = [one.host_pid for one in others if state_of(one.host_pid) not in "ZX"]


def _status(pid: int) -> dict[str, str]:
    try:
        with open(f"/proc/{pid}/status", encoding="utf-8", errors="replace") as file:
            return dict(line.rstrip("\n").split(":\t", 1) for line in file if ":\t" in line)
    except OSError:
        return {}


def _command(pid: int, status: dict[str, str]) -> str:
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            words = file.read(4096).split(b"\0")
    except OSError:
        words = []
    text = " ".join(word.decode("utf-8", "replace") for word in words if word)
    return " ".join((text or status.get("Name", "?")).split())[:200]


def _is_pending(pid: int) -> bool:
    status = _status(pid)
    pending = int(status.get("ShdPnd", "0"), 16) | int(status.get("SigPnd", "0"), 16)
    return bool(pending & 1 << (signal.SIGTERM - 1))


def _ticks(pid: int) -> int:
    """Processor time so far."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
        return int(fields[11]) + int(fields[12])
    except (OSError, IndexError, ValueError):
        return 0


def _code(code: int) -> int:
    return code if code >= 0 else 128 - code
