"""``stayfast exec``: the outside half of the exit contract, for any program in any language.

It stands where a container's PID 1 stands: reaps what is orphaned, hands a notice to its direct child alone, ends the
rest of the tree when the child has ended or the deadline comes, and leaves with the code that is true. Launchers
rewrite exit codes (torchrun turns 75 into 1), so each rank also leaves its outcome in a directory that is read here.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from stayfast.model import variables
from stayfast.model.exit_codes import FAILED, FINISHED, Outcome
from stayfast.process.tree import (
    become_subreaper,
    descendants,
    process_state,
    send_signal,
    signal_disposition,
    signal_tree,
)
from stayfast.runtime.interruption.exit_report import ExitReport, publish_report
from stayfast.runtime.interruption.sources import source_names
from stayfast.settings import Settings

if TYPE_CHECKING:
    from stayfast.runtime.exec.external_notices import ExternalNotices
    from stayfast.runtime.exec.synced_directories import SyncedDirectories

_NOTICES = (signal.SIGTERM, signal.SIGINT)
_PASSED_ON = (signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2, signal.SIGWINCH, signal.SIGCONT)
_LEFTOVERS_SECONDS = 2.0
_RESERVE = 0.5  # of the margin: a child that is ours leaves by itself a margin before the window ends


class SupervisedChild:
    """What is known about the program that is being run."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.status: int | None = None
        self.ended_at = float("inf")
        self.notice_at: float | None = None
        self.leave_at = float("inf")
        """When everything has to be done, the last copy included."""
        self.notice_signal = ""
        self.cause: str | None = None
        """Why, where a notice says more than a signal does."""
        self.killed = False
        self.reserved_seconds = 0.0
        """Seconds of the window that the last copy will need."""
        self.outcomes: list[dict[str, Any]] = []

    @property
    def code(self) -> int:
        """The program's own exit code, 128 + n when a signal ended it."""
        if self.status is None:
            return FAILED
        code = os.waitstatus_to_exitcode(self.status)
        return code if code >= 0 else 128 - code


class Supervisor:
    """Runs one command to its end."""

    def __init__(
        self,
        command: Sequence[str],
        settings: Settings,
        *,
        is_done: Callable[[float], bool] | None = None,
        sync: SyncedDirectories | None = None,
    ) -> None:
        """``is_done`` is asked, with the seconds it may take, when an interrupted program says that it is finished.

        ``sync`` are the directories that are kept in a store while the program runs.
        """
        self._command = list(command)
        self._settings = settings
        self._is_done = is_done
        self._sync = sync
        self._told: ExternalNotices | None = None
        self._signals = {*_NOTICES, *_PASSED_ON, signal.SIGCHLD}
        if settings.extra_signal is not None:
            self._signals.add(signal.Signals(settings.extra_signal))

    def run(self) -> int:
        """Start, watch, end, report; returns the exit code of the contract."""
        signal.pthread_sigmask(signal.SIG_BLOCK, self._signals)  # from here on nothing is lost, even as PID 1
        wished = self._settings.outcome_dir
        directory = _make_directory() if wished is None else _use_directory(wished)
        try:
            if source_names(self._settings, detect=False):
                from stayfast.runtime.exec.external_notices import ExternalNotices

                self._told = ExternalNotices(self._settings)
                self._told.start()
            stopped = None if self._sync is None else self._sync.begin(self._signals - {signal.SIGCHLD})
            return self._run(directory) if stopped is None else stopped
        finally:
            if wished is None and directory is not None:
                _empty(directory)
                os.rmdir(directory)

    def _run(self, directory: str | None) -> int:
        become_subreaper()
        environment = dict(os.environ)
        environment.pop(variables.OUTCOME_DIR, None)
        if directory is not None:
            environment[variables.OUTCOME_DIR] = directory
        environment.setdefault("PYTHONUNBUFFERED", "1")
        try:
            pid = os.posix_spawnp(
                self._command[0], self._command, environment, setsigmask=[], setsigdef=[signal.SIGPIPE, signal.SIGXFSZ]
            )
        except OSError as error:
            _warn(f"cannot start {self._command[0]!r}: {error.strerror}; check its name, its mode and PATH")
            return 127 if isinstance(error, FileNotFoundError) else 126
        child = SupervisedChild(pid)
        if self._sync is not None:
            self._sync.start()
        self._watch(child)
        self._end_leftovers(child)
        if self._sync is not None:
            self._last_copy(child, self._sync)
        child.outcomes = _read_outcomes(directory) if directory is not None else []
        return self._report_end(child)

    # -- while it runs

    def _watch(self, child: SupervisedChild) -> None:
        while child.status is None:
            left = self._deadline(child) - time.monotonic()
            if left <= 0 and not child.killed:
                child.killed = True
                signal_tree(signal.SIGKILL)
            if child.killed:
                left = self._window_end(child) - time.monotonic()
                if left <= 0:
                    return  # stuck in the kernel: it dies when its system call returns, and we cannot wait for that
            info = signal.sigtimedwait(self._signals, min(left, 3600.0))
            if info is not None:
                self._handle(child, info)
            if child.notice_at is None:
                self._look_for_notice(child)
            self._reap(child)

    def _look_for_notice(self, child: SupervisedChild) -> None:
        """What no signal told us: the child gets a SIGTERM for it."""
        told = None if self._told is None else self._told.notice
        if told is not None and self._told is not None:
            self._give_notice(child, told.detail, str(told.cause), self._told.deadline)
        elif self._sync is not None and self._sync.is_superseded:
            self._give_notice(child, "SIGTERM", "superseded")
        else:
            return
        send_signal(child.pid, signal.SIGTERM)

    def _give_notice(
        self, child: SupervisedChild, name: str, cause: str | None = None, leave_at: float | None = None
    ) -> None:
        child.notice_at, child.notice_signal, child.cause = time.monotonic(), name, cause
        child.leave_at = self._window() if leave_at is None else leave_at
        if self._sync is not None:
            child.reserved_seconds = self._sync.reserve_seconds(self._settings.window_seconds)

    def _handle(self, child: SupervisedChild, info: signal.struct_siginfo) -> None:
        number = signal.Signals(info.si_signo)
        if number == signal.SIGCHLD:
            return
        first = child.notice_at is None
        if number in _NOTICES or number == self._settings.extra_signal:
            if first:
                self._give_notice(child, number.name)
            child.leave_at = min(child.leave_at, self._window())
            if number == signal.SIGTERM and not first:
                return  # one notice, however often it is sent
        from_terminal = number == signal.SIGINT and info.si_code > 0
        if not from_terminal:  # the terminal has told the whole foreground group already
            send_signal(child.pid, number)

    def _deadline(self, child: SupervisedChild) -> float:
        """When the program has to be gone."""
        return child.leave_at - child.reserved_seconds

    def _window(self) -> float:
        """The end of the window of a signal that comes now."""
        window = self._settings.window_seconds - _RESERVE * self._settings.margin_seconds
        return time.monotonic() + max(0.0, window)

    def _window_end(self, child: SupervisedChild) -> float:
        """Half of what is kept back is for dying, the rest for the report."""
        reserve = _RESERVE * self._settings.margin_seconds
        return self._deadline(child) + max(0.05, reserve / 2)

    def _reap(self, child: SupervisedChild) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if os.WIFSIGNALED(status) and self._sync is not None:
                self._sync.note_crash()
            if pid == child.pid:
                child.status, child.ended_at = status, time.monotonic()

    # -- when it has ended

    def _end_leftovers(self, child: SupervisedChild) -> None:
        """What the child left running: asked once, then ended, inside the same deadline.

        After a notice they get all the time there is: a shell dies of the SIGTERM at once and leaves behind the trainer
        that has yet to hear of it. Those who listen are asked first: what reads from their pipes (`| tee log`) would
        only die of it, and they of the broken pipe. Without one they are stray helpers of a program that is done.
        """
        if not descendants():
            return
        until = self._deadline(child)
        if child.notice_at is None:
            until = time.monotonic() + _LEFTOVERS_SECONDS
        elif not child.killed:
            listeners = [
                pid for pid in descendants() if signal_disposition(pid, signal.SIGTERM) in ("handler", "blocked")
            ]
            for pid in listeners:
                send_signal(pid, signal.SIGTERM)
            self._wait_while(child, lambda: any(process_state(pid) not in "ZX" for pid in listeners), until)
        if not child.killed:
            signal_tree(signal.SIGTERM)
        self._wait_while(child, lambda: bool(descendants()), until)
        for _ in range(10):
            if not descendants():
                return
            signal_tree(signal.SIGKILL)
            signal.sigtimedwait([signal.SIGCHLD], 0.02)
            self._reap(child)

    def _wait_while(self, child: SupervisedChild, condition: Callable[[], bool], until: float) -> None:
        while condition() and time.monotonic() < until:
            signal.sigtimedwait([signal.SIGCHLD], max(0.0, min(0.1, until - time.monotonic())))
            self._reap(child)

    def _last_copy(self, child: SupervisedChild, sync: SyncedDirectories) -> None:
        """What the program left in its directories; a notice may still come while that takes its time."""
        sync.finish()
        started = time.monotonic()
        while not sync.is_done:
            until = child.leave_at
            if child.notice_at is None:
                until = started + sync.patience_seconds
            left = until - time.monotonic()
            if left <= 0:
                return
            info = signal.sigtimedwait(self._signals, min(left, 3600.0))
            if info is not None and child.notice_at is None and info.si_signo in _NOTICES:
                self._give_notice(child, signal.Signals(info.si_signo).name)

    def _report_end(self, child: SupervisedChild) -> int:
        failed = [item for item in child.outcomes if item.get("outcome") == Outcome.FAILED]
        interrupted = [item for item in child.outcomes if item.get("outcome") == Outcome.INTERRUPTED]
        stopped = [item for item in child.outcomes if item.get("outcome") == Outcome.STOPPED]
        own = next((item["code"] for item in stopped if item.get("code")), None)
        cause, detail = None, f"the program left with {child.code}"
        if failed:
            outcome, code = Outcome.FAILED, child.code or FAILED
            detail = f"rank {failed[0].get('rank', 0)} failed: {failed[0].get('detail', '')}"
        elif own is not None and child.code in (own, FAILED) and child.notice_at is None:
            outcome, code = Outcome.STOPPED, own  # torchrun turns every code into 1
        elif interrupted:
            outcome, code = Outcome.INTERRUPTED, self._settings.interrupted_code
            cause = str(interrupted[0].get("cause") or "unknown")
        elif child.notice_at is not None and not self._is_believed_finished(child):
            outcome, code = Outcome.INTERRUPTED, self._settings.interrupted_code
            cause = child.cause or ("cancellation" if child.notice_signal == "SIGINT" else "unknown")
        elif child.code == FINISHED and self._sync is not None and not self._sync.is_safe:
            outcome, code, detail = self._sync.unsafe_outcome(self._settings)
        else:
            outcome, code = Outcome.FINISHED if child.code == FINISHED else Outcome.FAILED, child.code
            if any(item.get("code") == code for item in stopped):
                outcome = Outcome.STOPPED
        used = 0.0 if child.notice_at is None else time.monotonic() - child.notice_at
        report = ExitReport(
            outcome=outcome,
            code=code,
            action="program_ended",
            cause=cause,
            detail=(f"killed at the deadline; {detail}" if child.killed else detail)[:300],
            seconds_used=round(used, 3),
            seconds_allowed=None if child.notice_at is None else self._allowed(child),
            **(self._from_sync() | _from_rank((interrupted or failed or stopped or [{}])[0])),
        )
        if self._sync is not None:
            self._sync.record_end(outcome, cause, child.leave_at - time.monotonic())
        quiet = child.notice_at is None and outcome is Outcome.FINISHED
        publish_report(report, self._settings._replace(outcome_dir=None), quiet=quiet)
        return code

    def _from_sync(self) -> dict[str, Any]:
        return {} if self._sync is None else {"saved": self._sync.saved, "attempt": self._sync.attempt}

    def _allowed(self, child: SupervisedChild) -> float:
        if child.notice_at is None or child.cause in (None, "superseded"):
            return self._settings.window_seconds
        return round(child.leave_at - child.notice_at, 3)

    def _is_believed_finished(self, child: SupervisedChild) -> bool:
        """An interrupted program that says 0 is believed only when something vouches for it."""
        if child.code != FINISHED:
            return False
        if child.notice_at is not None and child.notice_at > child.ended_at:
            return True  # it had finished when the notice came: only its last copy was still under way
        if any(item.get("outcome") == Outcome.FINISHED for item in child.outcomes):
            return True
        left = child.leave_at - time.monotonic()
        return self._is_done is not None and self._is_done(max(0.0, left))


def _from_rank(item: dict[str, Any]) -> dict[str, Any]:
    return {key: item[key] for key in ("run", "attempt", "step", "saved") if key in item}


def run_done_check(command: str, seconds: float) -> bool:
    """Whether a shell command exits 0 in time; one that takes longer is ended, and has not said yes."""
    pid = os.posix_spawn("/bin/sh", ["sh", "-c", command], os.environ, setsigmask=[])
    until = time.monotonic() + seconds
    while True:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status) == 0
        left = until - time.monotonic()
        if left <= 0:
            _warn(f"--done-check {command!r} did not answer within {seconds:.1f} s: taken as not finished")
            signal_tree(signal.SIGKILL)
            os.waitpid(pid, 0)
            return False
        signal.sigtimedwait([signal.SIGCHLD], min(left, 0.05))


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


def _make_directory() -> str | None:
    """A place for outcomes; None where nothing is writable (a read-only container), then the exit code alone speaks."""
    for parent in (os.environ.get("TMPDIR"), "/tmp", "/dev/shm", "."):
        if parent:
            path = os.path.join(os.path.abspath(parent), f"stayfast-outcome-{os.getpid()}-{os.urandom(4).hex()}")
            try:
                os.mkdir(path, 0o700)
            except OSError:
                continue
            return path
    _warn("no directory is writable for the ranks' outcomes; set STAYFAST_OUTCOME_DIR to one that is")
    return None


def _use_directory(path: str) -> str | None:
    try:
        os.makedirs(path, exist_ok=True)
        _empty(path)
        if not os.access(path, os.W_OK | os.X_OK):
            raise PermissionError(13, os.strerror(13))
    except OSError as error:
        _warn(f"STAYFAST_OUTCOME_DIR={path!r} cannot be used ({error.strerror}); the exit code alone will speak")
        return None
    return path


def _empty(directory: str) -> None:
    """Outcomes of an earlier attempt in the same container say nothing about this one."""
    for name in os.listdir(directory):
        if name.startswith("rank-"):
            os.unlink(os.path.join(directory, name))


def _warn(sentence: str) -> None:
    if sys.stderr is not None:
        sys.stderr.write(f"stayfast exec: {sentence}\n")
