"""Start a program as a container would, send it SIGTERM, and write down what every process of it does."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from stayfast.errors import UsageError
from stayfast.process.container import ContainedProgram, ContainerOptions, start_contained
from stayfast.process.proc import command_line, process_state, read_status, signal_disposition
from stayfast.process.ptrace import SignalTracer
from stayfast.process.tree import send_signal
from stayfast.proof.doctor.readiness import Readiness

READY_SECONDS = 60.0
PATIENCE_SECONDS = 3.0
STEP_SECONDS = 0.002
LOOK_SECONDS = 0.02
READY_LOOK_SECONDS = 0.05
BLOCKED_SECONDS = 1.0  # a shell that forks and a thread that starts block all signals for a moment
SURE_LOOKS = 3
REAP_SECONDS = 10.0


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
    still_starting: bool = False
    """Whether the program did not get ready in time, so that nothing can be said about it."""
    ended_before: bool = False
    exit_code: int = 0
    ended_by: str = "exit"
    seconds: float = 0.0
    left_running: list[int] = field(default_factory=list)
    start_error: str | None = None


def observe(
    command: Sequence[str],
    *,
    grace_seconds: float,
    after_seconds: float | None,
    namespace: bool,
    progress: Callable[[str], None] = lambda _: None,
) -> Observation:
    """Run the command once; nothing of it is left when this returns, however it returns.

    Without ``after_seconds`` the signal is sent once the program is ready; ``progress`` hears of a long wait.
    """
    stdout = sys.stderr.fileno() if sys.stderr is not None else None
    options = ContainerOptions(namespace=namespace, start_paused=True)
    started = start_contained(command, cwd=os.getcwd(), env=os.environ, stdout=stdout, options=options)
    watch = _SignalObserver(list(command), started, progress)
    try:
        watch.tracer.await_end(started.pid)
        started.start_held()
        return watch.run(grace_seconds, after_seconds)
    finally:
        watch.end()
        started.close()


class _SignalObserver:
    def __init__(self, command: list[str], started: ContainedProgram, progress: Callable[[str], None]) -> None:
        self.started = started
        self.seen = Observation(command, first=started.pid, namespace=started.namespace)
        self.seen.why_no_namespace = started.namespace_refusal
        self.tracer = SignalTracer(self._on_signal, self._on_start, self._on_exit)
        self.progress = progress
        self.began = 0.0
        self.sent_at: float | None = None
        self.is_leaving = False

    def run(self, grace_seconds: float, after_seconds: float | None) -> Observation:
        seen = self.seen
        self.began = time.monotonic()
        readiness = Readiness(self.began) if after_seconds is None else None
        code = self._wait_for(readiness, after_seconds)
        if self.started.start_error is not None:
            reason = os.strerror(self.started.start_error)
            raise UsageError(f"cannot start {seen.command[0]!r}: {reason}", help="check its name, its mode and PATH")
        if code is None:
            seen.why_not_traced = self.tracer.attach(seen.first)
            seen.traced = seen.why_not_traced is None
        while True:
            while code is None and self.is_leaving:
                self.tracer.step()
                code = self.started.wait(STEP_SECONDS)
            if code is not None:
                seen.ended_before, seen.exit_code, seen.seconds = True, _code(code), 0.0
                return seen
            self._look(at_signal=True)
            if readiness is not None and self._is_over and not self._notices():
                seen.still_starting = readiness.is_loading(time.monotonic())
                if seen.still_starting:
                    return seen
            self._send()
            if self._until_the_end(grace_seconds, may_be_starting=readiness is not None):
                return seen
            self.sent_at = None
            if self._is_over:
                seen.still_starting = True
                return seen
            seen.processes.clear()  # PID 1 was still starting, and the kernel has dropped the signal
            code = self._wait_for(readiness, after_seconds)

    @property
    def _is_over(self) -> bool:
        return time.monotonic() - self.began >= READY_SECONDS

    def _send(self) -> None:
        seen = self.seen
        seen.delivered = self._notices()
        seen.sent_after_seconds = round(time.monotonic() - self.began, 3)
        self.sent_at = time.monotonic()
        if seen.namespace:
            send_signal(seen.first, signal.SIGTERM)
        elif seen.delivered:
            seen.delivered = self.started.signal(signal.SIGTERM)
        if seen.delivered and not seen.traced:
            self._on_signal(seen.first, signal.SIGTERM)

    def _notices(self) -> bool:
        """Whether PID 1 handles SIGTERM or waits for it: one that blocks it for a moment, to fork, does not."""
        for _ in range(SURE_LOOKS):
            action = signal_disposition(self.seen.first, signal.SIGTERM)
            if action != "blocked":
                return action == "handler"
            for _ in range(int(LOOK_SECONDS / STEP_SECONDS)):
                self.tracer.step()
                self.started.wait(STEP_SECONDS)
        return True

    def end(self) -> None:
        """End what still runs: the dead are buried by their tracer first, then by their parent."""
        until = time.monotonic() + REAP_SECONDS
        while self.started.poll() is None and time.monotonic() < until:
            self.started.kill_all()
            self.tracer.step()
            self.started.wait(STEP_SECONDS)

    def _wait_for(self, readiness: Readiness | None, after_seconds: float | None) -> int | None:
        """Until the program is ready, or the time is over; the exit code when the program ended before."""
        limit = READY_SECONDS if after_seconds is None else after_seconds
        looked = self.began
        silent = True
        while (now := time.monotonic()) - self.began < limit:
            self.tracer.step()
            code = self.started.wait(STEP_SECONDS)
            if code is not None:
                return code
            if readiness is None or now - looked < READY_LOOK_SECONDS:
                continue
            looked = now
            if readiness.is_ready(self.started.tree(), now):
                break
            if silent and now - self.began >= PATIENCE_SECONDS:
                silent = False
                self.progress(
                    f"not every process of the program handles SIGTERM yet: waiting up to {READY_SECONDS:.0f} s; "
                    "--after S sends the signal sooner"
                )
        return self.started.poll()

    def _until_the_end(self, grace_seconds: float, *, may_be_starting: bool) -> bool:
        """False when PID 1, which could not notice the signal, got its handler only after it."""
        assert self.sent_at is not None
        seen = self.seen
        code: int | None = None
        looked, unblocked_at = 0.0, self.sent_at
        while code is None:
            self.tracer.step()
            now = time.monotonic()
            if now - looked > LOOK_SECONDS:
                looked = now
                self._look(at_signal=False)
                action = signal_disposition(seen.first, signal.SIGTERM)
                unblocked_at = unblocked_at if action == "blocked" else now
                ready = action == "handler" or now - unblocked_at >= BLOCKED_SECONDS
                if ready and may_be_starting and not seen.delivered and seen.ended_by == "exit":
                    return False
            if seen.ended_by == "exit" and now - self.sent_at >= grace_seconds:
                seen.ended_by = "sigkill"
                self.started.kill_all()
            code = self.started.wait(STEP_SECONDS)
        seen.seconds = round(time.monotonic() - self.sent_at, 3)
        seen.exit_code = _code(code)
        first = seen.processes.get(seen.first)
        if first is not None and first.ended_seconds is None:
            self._on_exit(seen.first, 0)
        return True

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
                    self._on_exit(pid, 0)

    def _look_at(self, process: Process) -> None:
        action = signal_disposition(process.host_pid, signal.SIGTERM)
        if action != "gone":
            if process.action == "blocked" and self.seen.delivered and process.host_pid == self.seen.first:
                if not _is_pending(
                    process.host_pid
                ):  # it waits for signals instead of handling them, and took this one
                    process.received_seconds = self._since()
                return
            process.action = action

    def _add(self, pid: int, *, at_signal: bool) -> None:
        if process_state(pid) in "ZX":
            return
        status = read_status(pid)
        self.seen.processes[pid] = Process(
            pid=int(status.get("NSpid", str(pid)).split()[-1]),
            host_pid=pid,
            parent=int(status.get("PPid", "0")),
            command=_command(pid, status),
            action=signal_disposition(pid, signal.SIGTERM),
            at_signal=at_signal,
        )

    def _since(self) -> float:
        return 0.0 if self.sent_at is None else round(time.monotonic() - self.sent_at, 3)

    def _on_signal(self, pid: int, number: int) -> None:
        if number != signal.SIGTERM or self.sent_at is None:
            return
        if pid == self.seen.first and not self.seen.delivered and self.seen.processes[pid].action == "default":
            return  # a tracer sees it go by, but for PID 1 the kernel drops what has no handler
        if pid not in self.seen.processes:
            self._add(pid, at_signal=False)
        process = self.seen.processes.get(pid)
        if process is not None and process.received_seconds is None:
            process.action = signal_disposition(pid, signal.SIGTERM)
            process.received_seconds = self._since()

    def _on_start(self, parent: int, _child: int) -> None:
        process = self.seen.processes.get(parent)
        if process is not None and self.sent_at is not None:
            process.children_seconds.append(self._since())

    def _on_exit(self, pid: int, status: int) -> None:
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
            self.seen.left_running = [one.host_pid for one in others if process_state(one.host_pid) not in "ZX"]


def _command(pid: int, status: dict[str, str]) -> str:
    text = " ".join(filter(None, command_line(pid)))
    return " ".join((text or status.get("Name", "?")).split())[:200]


def _is_pending(pid: int) -> bool:
    status = read_status(pid)
    pending = int(status.get("ShdPnd", "0"), 16) | int(status.get("SigPnd", "0"), 16)
    return bool(pending & 1 << (signal.SIGTERM - 1))


def _code(code: int) -> int:
    return code if code >= 0 else 128 - code
