"""``holdfast exec``: the outside half of the exit contract, for any program in any language.

It stands where a container's PID 1 stands: reaps what is orphaned, hands a notice to its direct child alone, ends the
rest of the tree when the child has ended or the deadline comes, and leaves with the code that is true. Launchers
rewrite exit codes (torchrun turns 75 into 1), so each rank also leaves its outcome in a directory that is read here.
"""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from holdfast.model.exits import FAILED, FINISHED, Outcome
from holdfast.runtime.environment import Settings
from holdfast.runtime.outcome import Report, publish

_PR_SET_CHILD_SUBREAPER = 36
_NOTICES = (signal.SIGTERM, signal.SIGINT)
_PASSED_ON = (signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2, signal.SIGWINCH, signal.SIGCONT)
_LEFTOVERS_SECONDS = 2.0
_RESERVE = 0.5  # of the margin: a child that is ours leaves by itself a margin before the window ends


@dataclass(slots=True)
class Supervised:
    """What is known about the program that is being run."""

    pid: int
    status: int | None = None
    notice_at: float | None = None
    notice_signal: str = ""
    killed: bool = False
    outcomes: list[dict[str, Any]] = field(default_factory=list)

    @property
    def code(self) -> int:
        """The program's own exit code, 128 + n when a signal ended it."""
        if self.status is None:
            return FAILED
        code = os.waitstatus_to_exitcode(self.status)
        return code if code >= 0 else 128 - code


class Supervisor:
    """Runs one command to its end."""

    def __init__(self, command: Sequence[str], settings: Settings, *, is_done: Any = None) -> None:
        self._command = list(command)
        self._settings = settings
        self._is_done = is_done
        self._signals = {*_NOTICES, *_PASSED_ON, signal.SIGCHLD}
        if settings.extra_signal is not None:
            self._signals.add(signal.Signals(settings.extra_signal))

    def run(self) -> int:
        """Start, watch, end, report; returns the exit code of the contract."""
        made = None if self._settings.outcome_dir else tempfile.mkdtemp(prefix="holdfast-outcome-")
        directory = self._settings.outcome_dir or made or ""
        try:
            _empty(directory)
            return self._run(directory)
        finally:
            if made is not None:
                shutil.rmtree(made, ignore_errors=True)

    def _run(self, directory: str) -> int:
        signal.pthread_sigmask(signal.SIG_BLOCK, self._signals)
        _become_subreaper()
        environment = {**os.environ, "HOLDFAST_OUTCOME_DIR": directory}
        environment.setdefault("PYTHONUNBUFFERED", "1")
        try:
            pid = os.posix_spawnp(
                self._command[0], self._command, environment, setsigmask=[], setsigdef=[signal.SIGPIPE, signal.SIGXFSZ]
            )
        except OSError as error:
            sys.stderr.write(f"holdfast exec: cannot start {self._command[0]!r}: {error.strerror}\n")
            return 127 if isinstance(error, FileNotFoundError) else 126
        child = Supervised(pid)
        self._watch(child)
        self._end_leftovers(child)
        child.outcomes = _read_outcomes(directory)
        return self._conclude(child)

    # -- while it runs

    def _watch(self, child: Supervised) -> None:
        while child.status is None:
            left = self._deadline(child) - time.monotonic()
            if left <= 0:
                if not child.killed:
                    child.killed = True
                    _signal_tree(signal.SIGKILL)
                left = 1.0  # an uninterruptible process dies when its system call returns; nothing more can be done
            info = signal.sigtimedwait(self._signals, min(left, 3600.0))
            if info is not None:
                self._handle(child, info)
            self._reap(child)

    def _handle(self, child: Supervised, info: signal.struct_siginfo) -> None:
        number = signal.Signals(info.si_signo)
        if number == signal.SIGCHLD:
            return
        first = child.notice_at is None
        if number in _NOTICES or number == self._settings.extra_signal:
            if first:
                child.notice_at, child.notice_signal = time.monotonic(), number.name
            if number == signal.SIGTERM and not first:
                return  # one notice, however often it is sent
        from_terminal = number == signal.SIGINT and info.si_code > 0
        if not from_terminal:  # the terminal has told the whole foreground group already
            _kill(child.pid, number)

    def _deadline(self, child: Supervised) -> float:
        if child.notice_at is None:
            return float("inf")
        window = self._settings.window_seconds - _RESERVE * self._settings.margin_seconds
        return child.notice_at + max(0.0, window)

    def _reap(self, child: Supervised) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid == child.pid:
                child.status = status

    # -- when it has ended

    def _end_leftovers(self, child: Supervised) -> None:
        """What the child left running: asked once, then ended, inside the same deadline."""
        if not _descendants():
            return
        _signal_tree(signal.SIGTERM)
        until = min(time.monotonic() + _LEFTOVERS_SECONDS, self._deadline(child))
        while _descendants() and time.monotonic() < until:
            signal.sigtimedwait({signal.SIGCHLD}, max(0.0, min(0.1, until - time.monotonic())))
            self._reap(child)
        for _ in range(50):
            if not _descendants():
                return
            _signal_tree(signal.SIGKILL)
            time.sleep(0.01)
            self._reap(child)

    def _conclude(self, child: Supervised) -> int:
        failed = [item for item in child.outcomes if item.get("outcome") == Outcome.FAILED]
        stopped = [item for item in child.outcomes if item.get("outcome") == Outcome.INTERRUPTED]
        cause, detail = None, f"the program left with {child.code}"
        if failed:
            outcome, code = Outcome.FAILED, child.code or FAILED
            detail = f"rank {failed[0].get('rank', 0)} failed: {failed[0].get('detail', '')}"
        elif stopped:
            outcome, code = Outcome.INTERRUPTED, self._settings.interrupted_code
            cause = str(stopped[0].get("cause") or "unknown")
        elif child.notice_at is not None and not self._finished(child):
            outcome, code = Outcome.INTERRUPTED, self._settings.interrupted_code
            cause = "cancellation" if child.notice_signal == "SIGINT" else "unknown"
        else:
            outcome = Outcome.FINISHED if child.code == FINISHED else Outcome.FAILED
            code = child.code
        used = 0.0 if child.notice_at is None else time.monotonic() - child.notice_at
        report = Report(
            outcome=outcome,
            code=code,
            action="program_ended",
            cause=cause,
            detail=(f"killed at the deadline; {detail}" if child.killed else detail)[:300],
            seconds_used=round(used, 3),
            seconds_allowed=None if child.notice_at is None else self._settings.window_seconds,
            **_from_rank((stopped or failed or [{}])[0]),
        )
        publish(
            report, _without_directory(self._settings), quiet=child.notice_at is None and outcome is Outcome.FINISHED
        )
        return code

    def _finished(self, child: Supervised) -> bool:
        """An interrupted program that says 0 is believed only when something vouches for it."""
        if child.code != FINISHED:
            return False
        if any(item.get("outcome") == Outcome.FINISHED for item in child.outcomes):
            return True
        return self._is_done is not None and bool(self._is_done())


def _from_rank(item: dict[str, Any]) -> dict[str, Any]:
    return {key: item[key] for key in ("run", "attempt", "step", "saved") if key in item}


def _without_directory(settings: Settings) -> Settings:
    from dataclasses import replace

    return replace(settings, outcome_dir=None)


def _become_subreaper() -> None:
    """Orphans come to us even when we are not PID 1; where the kernel refuses, only PID 1 reaps them."""
    try:
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    except (OSError, AttributeError):
        pass


def _descendants() -> list[int]:
    """Everything below this process, zombies left out."""
    parents: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", "rb") as file:
                    fields = file.read().rpartition(b")")[2].split()
            except OSError:
                continue
            if fields[0] not in (b"Z", b"X"):
                parents.setdefault(int(fields[1]), []).append(int(name))
    found, open_list = [], [os.getpid()]
    while open_list:
        below = parents.get(open_list.pop(), [])
        found += below
        open_list += below
    return found


def _signal_tree(number: int) -> None:
    for pid in _descendants():
        _kill(pid, number)


def _kill(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        pass


def _read_outcomes(directory: str) -> list[dict[str, Any]]:
    found = []
    for name in sorted(os.listdir(directory)) if os.path.isdir(directory) else []:
        if name.startswith("rank-") and name.endswith(".json"):
            try:
                with open(os.path.join(directory, name), encoding="utf-8") as file:
                    item = json.loads(file.read(1 << 16))
            except (OSError, ValueError):
                continue
            if isinstance(item, dict):
                found.append(item)
    return found


def _empty(directory: str) -> None:
    """Outcomes of an earlier attempt in the same container say nothing about this one."""
    os.makedirs(directory, exist_ok=True)
    for name in os.listdir(directory):
        if name.startswith("rank-"):
            os.unlink(os.path.join(directory, name))
