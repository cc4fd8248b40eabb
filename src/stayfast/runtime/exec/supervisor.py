"""``stayfast exec``: the outside half of the exit contract, for any program in any language.

It stands where a container's PID 1 stands: reaps what is orphaned, hands a notice to its direct child alone, ends the
rest of the tree when the child has ended or the deadline comes, and leaves with the code that is true. Launchers
rewrite exit codes (torchrun turns 75 into 1), so each rank also leaves its outcome in a directory that is read here.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from stayfast.model import variables
from stayfast.model.exit_codes import Outcome
from stayfast.process.proc import process_state, signal_disposition
from stayfast.process.tree import (
    become_subreaper,
    descendants,
    send_signal,
    signal_tree,
)
from stayfast.runtime.exec.child import SupervisedChild
from stayfast.runtime.exec.exit_decision import decide_exit
from stayfast.runtime.exec.outcome_directory import OutcomeDirectory
from stayfast.runtime.interruption.exit_report import ExitReport, publish_report
from stayfast.runtime.interruption.sources import source_names
from stayfast.settings import Settings

if TYPE_CHECKING:
    from stayfast.runtime.exec.external_notices import ExternalNotices
    from stayfast.runtime.exec.synced_directories import SyncedDirectories

_NOTICES = (signal.SIGTERM, signal.SIGINT)
_PASSED_ON = (signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2, signal.SIGWINCH, signal.SIGCONT)
_LEFTOVERS_SECONDS = 2.0
_READERS_SECONDS = 0.5


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
        self._external: ExternalNotices | None = None
        self._signals = {*_NOTICES, *_PASSED_ON, signal.SIGCHLD}
        if settings.extra_signal is not None:
            self._signals.add(signal.Signals(settings.extra_signal))

    def run(self) -> int:
        """Start, watch, end, report; returns the exit code of the contract."""
        signal.pthread_sigmask(signal.SIG_BLOCK, self._signals)  # from here on nothing is lost, even as PID 1
        directory = OutcomeDirectory(self._settings.outcome_dir)
        if directory.problem:
            _warn(directory.problem)
        try:
            if source_names(self._settings, detect=False):
                from stayfast.runtime.exec.external_notices import ExternalNotices

                self._external = ExternalNotices(self._settings)
                self._external.start()
            stopped = None if self._sync is None else self._sync.begin(self._signals - {signal.SIGCHLD})
            return self._run(directory) if stopped is None else stopped
        finally:
            directory.remove()

    def _run(self, directory: OutcomeDirectory) -> int:
        become_subreaper()
        environment = dict(os.environ)
        environment.pop(variables.OUTCOME_DIR, None)
        if directory.path is not None:
            environment[variables.OUTCOME_DIR] = directory.path
        environment.setdefault("PYTHONUNBUFFERED", "1")
        try:
            pid = os.posix_spawnp(
                self._command[0], self._command, environment, setsigmask=[], setsigdef=[signal.SIGPIPE, signal.SIGXFSZ]
            )
        except OSError as error:
            _warn(f"cannot start {self._command[0]!r}: {error.strerror}; check its name, its mode and PATH")
            return 127 if isinstance(error, FileNotFoundError) else 126
        child = SupervisedChild(pid, self._settings)
        if self._sync is not None:
            self._sync.start()
        self._watch(child)
        self._end_leftovers(child)
        if self._sync is not None:
            self._last_copy(child, self._sync)
        child.outcomes = directory.read()
        return self._report_end(child)

    # -- while it runs

    def _watch(self, child: SupervisedChild) -> None:
        while child.status is None:
            left = child.deadline - time.monotonic()
            if left <= 0 and not child.killed:
                child.killed = True
                signal_tree(signal.SIGKILL)
            if child.killed:
                left = child.given_up_at - time.monotonic()
                if left <= 0:
                    return  # stuck in the kernel: it dies when its system call returns, and we cannot wait for that
            info = signal.sigtimedwait(self._signals, min(left, 3600.0))
            if info is not None:
                self._handle(child, info)
            if child.notice_at is None:
                self._look_for_notice(child)
            self._reap(child)

    def _look_for_notice(self, child: SupervisedChild) -> None:
        """A notice from another source than a signal: the child gets a SIGTERM for it."""
        notice = None if self._external is None else self._external.notice
        if notice is not None and self._external is not None:
            self._give_notice(child, notice.detail, str(notice.cause), self._external.deadline)
        elif self._sync is not None and self._sync.is_superseded:
            self._give_notice(child, "SIGTERM", "superseded")
        else:
            return
        send_signal(child.pid, signal.SIGTERM)

    def _give_notice(
        self, child: SupervisedChild, name: str, cause: str | None = None, leave_at: float | None = None
    ) -> None:
        reserved = 0.0 if self._sync is None else self._sync.reserve_seconds(self._settings.window_seconds)
        child.give_notice(name, cause, leave_at, reserved_seconds=reserved)

    def _handle(self, child: SupervisedChild, info: signal.struct_siginfo) -> None:
        number = signal.Signals(info.si_signo)
        if number == signal.SIGCHLD:
            return
        first = child.notice_at is None
        if number in _NOTICES or number == self._settings.extra_signal:
            if first:
                self._give_notice(child, number.name)
            child.shorten_window()
            if number == signal.SIGTERM and not first:
                return  # one notice, however often it is sent
        from_terminal = number == signal.SIGINT and info.si_code > 0
        if not from_terminal:  # the terminal has told the whole foreground group already
            send_signal(child.pid, number)

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
        until = child.deadline
        if child.notice_at is None:
            until = time.monotonic() + _LEFTOVERS_SECONDS
        elif not child.killed:
            listeners = [
                pid for pid in descendants() if signal_disposition(pid, signal.SIGTERM) in ("handler", "blocked")
            ]
            for pid in listeners:
                send_signal(pid, signal.SIGTERM)
            self._wait_while(child, lambda: any(process_state(pid) not in "ZX" for pid in listeners), until)
            if listeners:  # what reads from their pipes has yet to read the last lines
                self._wait_while(child, lambda: bool(descendants()), min(until, time.monotonic() + _READERS_SECONDS))
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
        sync, settings = self._sync, self._settings
        end = decide_exit(
            child,
            interrupted_code=settings.interrupted_code,
            unsafe=lambda: None if sync is None else sync.unsafe_outcome(settings),
            is_done=lambda: self._is_done is not None and self._is_done(max(0.0, child.leave_at - time.monotonic())),
        )
        known: dict[str, Any] = {} if sync is None else {"saved": sync.saved, "attempt": sync.attempt}
        report = ExitReport(
            outcome=end.outcome,
            code=end.code,
            action="program_ended",
            cause=end.cause,
            detail=end.detail,
            seconds_used=round(child.used_seconds, 3),
            seconds_allowed=child.allowed_seconds,
            **known | {key: end.deciding[key] for key in ("run", "attempt", "step", "saved") if key in end.deciding},
        )
        if sync is not None:
            sync.record_end(end.outcome, end.cause, child.leave_at - time.monotonic())
        quiet = child.notice_at is None and end.outcome is Outcome.FINISHED
        publish_report(report, settings._replace(outcome_dir=None), quiet=quiet)
        return end.code


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


def _warn(sentence: str) -> None:
    if sys.stderr is not None:
        sys.stderr.write(f"stayfast exec: {sentence}\n")
