"""The guard: notices, budget, drain and exit contract for one process, with or without a run.

``stayfast.run`` and the batch worker stand on it; a program with its own loop can use it alone::

    with stayfast.guard() as guard:
        while work_left():
            if guard.should_stop():
                break          # the drain runs, and the process leaves with 75
            do_some()
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable
from dataclasses import asdict
from types import TracebackType
from typing import NoReturn

from stayfast.clock import Clock, SystemClock
from stayfast.errors import Interrupted, RunError, StayfastError, SupersededError
from stayfast.forks import fork_safe_lock
from stayfast.model.exit_codes import FINISHED, Outcome
from stayfast.model.notice import Cause, Notice
from stayfast.runtime.interruption.drain import DrainResult, DrainStep, run_drain
from stayfast.runtime.interruption.exit_cause import exit_code_of, interruption_cause, is_clean_exit
from stayfast.runtime.interruption.exit_report import ExitReport, publish_report
from stayfast.runtime.interruption.notice_board import GraceBudget, NoticeBoard
from stayfast.runtime.interruption.signals import SignalSource
from stayfast.runtime.interruption.sources import open_sources, source_names
from stayfast.runtime.interruption.watchdog import Watchdog
from stayfast.settings import Settings, read_settings
from stayfast.telemetry.durations import Durations

log = logging.getLogger("stayfast")

NOTICE_FOLLOWS_SECONDS = 0.5

_active: Guard | None = None
_active_lock = fork_safe_lock()


def active_guard() -> Guard | None:
    """The guard of this process, if one is open; a forked child has none."""
    return _active if _active is not None and _active._owner == os.getpid() else None


class Guard:
    """Watches for notices while open, and ends the process by the exit contract."""

    def __init__(self, *, chain: bool = False, settings: Settings | None = None, clock: Clock | None = None) -> None:
        self.settings = settings or read_settings()
        self.clock: Clock = clock or SystemClock()
        self.board = NoticeBoard(self.settings, self.clock)
        self.durations = Durations()
        self.budget = GraceBudget(self.board, self.durations)
        self._describe: Callable[[], dict[str, object]] = dict
        self._chain = chain
        self._steps: list[DrainStep] = []
        self._results: list[DrainResult] = []
        self._stop_was_reported = False
        self._awaited = False
        self._gone = False  # the process leaves: nothing is put back that could hide its exit code
        self._owner = os.getpid()
        self._reported = threading.Lock()
        self._signals = SignalSource(self.board)
        self._sources = [self._signals, *open_sources(self.board, source_names(self.settings))]
        self._watchdog: Watchdog | None = None

    # -- what the program asks

    @property
    def notice(self) -> Notice | None:
        """The notice, or None while nothing threatens."""
        return self.board.notice

    def should_stop(self) -> bool:
        """True once the machine is going away; the caller is expected to leave its loop."""
        if self.board.notice is None:
            return False
        self._stop_was_reported = True
        self._signals.hold_others()
        return True

    @property
    def stop_was_reported(self) -> bool:
        """Whether ``should_stop`` has said yes: then an ordinary end of the block means interrupted, not finished."""
        return self._stop_was_reported

    def wait(self, seconds: float | None = None) -> bool:
        """Sleep that a notice ends early; true when there is one."""
        return self.clock.wait(self.board.arrived, seconds)

    def interrupt(self, detail: str = "", *, cause: Cause = Cause.REQUEST, grace_seconds: float = float("inf")) -> None:
        """A notice from the program itself."""
        self.board.post(Notice(cause, self.clock.monotonic(), grace_seconds, detail))

    def on_drain(self, action: Callable[[], object], *, name: str = "", estimate_seconds: float = 0.0) -> None:
        """Do this before leaving, after the state was saved, in the order given, if the estimate still fits."""
        self._steps.append(DrainStep(name or getattr(action, "__name__", "drain step"), action, estimate_seconds))

    def describe(self, fields: Callable[[], dict[str, object]]) -> None:
        """Add to the report what these are at the end: run, attempt, step, saved."""
        self._describe = fields

    # -- opening and closing

    def start(self) -> Guard:
        """Begin to watch; ``with`` does the same."""
        global _active
        with _active_lock:
            if _active is not None and _active._owner == os.getpid():
                raise RunError(
                    "a guard or run is open already in this process",
                    help="end it before opening another, one after another is fine",
                )
            _active = self
        try:
            self._watchdog = Watchdog(self.board, self._deadline_reached)
            for source in self._sources:
                source.start()
        except BaseException:
            self._close()
            raise
        return self

    def __enter__(self) -> Guard:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.hold_signals()
        try:
            self.end(error)
        finally:
            del error, trace  # see leave()
            self.release_signals()

    def end(self, error: BaseException | None = None, outcome: Outcome | None = None) -> None:
        """Close by the exit contract: returns when finished, raises ``Interrupted`` when not, re-raises nothing.

        ``outcome`` is for a run that knows how it ended: finished or stopped; without it the error decides.
        """
        if os.getpid() != self._owner:
            return  # a forked child unwinds its copy of the block: the run is its parent's, so is its end
        try:
            self._end(error, outcome)
        finally:
            del error  # see leave()

    def _end(self, error: BaseException | None, outcome: Outcome | None) -> None:
        if outcome is not None:
            self.report(outcome, FINISHED if error is None else exit_code_of(error))
            self._close()
            return
        if isinstance(error, Interrupted):
            try:
                self.exit_interrupted(error)
            finally:
                del error
        if error is not None:
            self.await_notice(error)
        cause = self.interruption_cause(error)
        if cause is not None:
            self.log_interrupting(error)
            self.drain()
            self.exit_interrupted(Interrupted(self.settings.interrupted_code, cause=cause), cause_of=error)
        if error is not None and not is_clean_exit(error):
            self.drain()
            self.report(Outcome.FAILED, exit_code_of(error), detail=f"{type(error).__name__}: {error}"[:300])
        else:
            self.report(Outcome.FINISHED, FINISHED)
        self._close()

    def await_notice(self, error: BaseException) -> None:
        """Wait briefly for a notice: the death of workers and peers is often seen before the signal that caused it."""
        if self._awaited or self.board.notice is not None or isinstance(error, StayfastError | Interrupted):
            return
        self._awaited = True
        self.clock.wait(self.board.arrived, NOTICE_FOLLOWS_SECONDS)

    def interruption_cause(self, error: BaseException | None) -> Cause | None:
        """Whether this end of the block is an interruption, and its cause; None when it is not one."""
        return interruption_cause(error, self.board.notice, self.settings, stop_was_reported=self._stop_was_reported)

    def is_exit_of_program(self, error: BaseException) -> bool:
        """Whether this is a ``sys.exit`` of the program's own code; one in a signal handler can cut any line short."""
        return isinstance(error, SystemExit) and not self._signals.raised_by_held(error)

    def log_interrupting(self, error: BaseException | None) -> None:
        """An exception that counts as an interruption is logged with its traceback, so that a real error is seen."""
        if error is None or isinstance(error, SystemExit | SupersededError):
            return
        log.warning(
            "%s after the notice: this attempt counts as interrupted, not as failed",
            type(error).__name__,
            exc_info=error,
            extra={"action": "exception_after_notice"},
        )

    def hold_signals(self) -> None:
        """Hold off the signal handlers of other code until ``release_signals``: none may raise inside the end."""
        if os.getpid() == self._owner:
            self._signals.hold_others()

    def release_signals(self) -> None:
        """Put those handlers back, unless the process is about to leave; call it last, they may raise."""
        if os.getpid() == self._owner and not self._gone:
            self._signals.release_others(repeat=self.board.notice is None)

    # -- the last metres

    def drain(self, first: list[DrainStep] | None = None) -> list[DrainResult]:
        """Run what has to be done before leaving, once."""
        steps, self._steps = [*(first or []), *self._steps], []
        if steps:
            self._results += run_drain(steps, self.budget, self.clock)
        return self._results

    def exit_interrupted(self, interruption: Interrupted, *, cause_of: BaseException | None = None) -> NoReturn:
        """Report, put the handlers back, and raise; the watchdog stays until the process is gone.

        No frame that the exception passes may keep it: the watchdog sees that it was caught by its going away.
        """
        self.report(
            Outcome.INTERRUPTED, self.settings.interrupted_code, cause=interruption.cause, detail=interruption.detail
        )
        if self._chain:
            self._signals.call_previous()
        notice = self.board.notice
        # Nobody takes the machine away from a program that asked for the end itself: it may well go on afterwards.
        if self._watchdog is not None and notice is not None and notice.cause is not Cause.REQUEST:
            self._gone = True
            self._watchdog.stay_armed(interruption, self._signals.restore_defaults)
            self._signals.stop(leaving=True)
            self._close(keep_watchdog=True)
        else:
            self._close()
        try:
            raise interruption from cause_of
        finally:
            del interruption

    def report(self, outcome: Outcome, code: int, *, cause: str | None = None, detail: str = "") -> None:
        """Tell how it ended; the first to tell wins, so that the watchdog and the main thread never both speak."""
        if not self._reported.acquire(blocking=False):
            return
        notice = self.board.notice
        report = ExitReport(
            outcome=outcome,
            code=code,
            rank=self.settings.rank,
            cause=cause or (str(notice.cause) if notice is not None and outcome is Outcome.INTERRUPTED else None),
            detail=detail or (notice.detail if notice is not None else ""),
            seconds_used=round(self.budget.spent_seconds, 3),
            seconds_allowed=None if notice is None else round(self.board.deadline - notice.received_at, 3),
            drain=[asdict(result) for result in self._results],
            **self._described(),  # type: ignore[arg-type]
        )
        publish_report(report, self.settings)

    def _described(self) -> dict[str, object]:
        try:
            return self._describe()
        except Exception:
            log.exception("the end could not be described in full")
            return {}

    def _deadline_reached(self) -> None:
        self.report(
            Outcome.INTERRUPTED, self.settings.interrupted_code, detail="the deadline came before the drain was over"
        )

    def _close(self, *, keep_watchdog: bool = False) -> None:
        global _active
        for source in self._sources:
            source.stop()
        if self._watchdog is not None and not keep_watchdog:
            self._watchdog.disarm()
        with _active_lock:
            if _active is self:
                _active = None


def guard(*, chain: bool = False) -> Guard:
    """Only the notice and the exit contract, for programs with a loop of their own; use it as a context manager."""
    return Guard(chain=chain)
