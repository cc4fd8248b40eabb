"""How an attempt ends: save what fits, run the drain, write it down.

Separate from the loop, because all ways out meet here: a notice at a boundary, the end of the block, a failure.
"""

from __future__ import annotations

import enum
import logging
from dataclasses import dataclass
from typing import NamedTuple

from stayfast.errors import Interrupted, SupersededError
from stayfast.model.exit_codes import Outcome
from stayfast.model.notice import Cause
from stayfast.runtime.interruption.drain import DrainStep
from stayfast.runtime.interruption.guard import Guard
from stayfast.runtime.interruption.notice_board import GraceBudget
from stayfast.runtime.runs.opening import OpenRun, record_end
from stayfast.runtime.runs.saving import CheckpointSaver

log = logging.getLogger("stayfast")

_FAILURE_WAITS_SECONDS = 5.0
_PEERS_ANSWER_SECONDS = 5.0


class SaveKind(enum.StrEnum):
    """How much of the work is carried over, best first."""

    FULL = "full save"
    SNAPSHOT = "last snapshot"
    COMMITTED = "last committed checkpoint"


@dataclass(frozen=True, slots=True)
class SaveChoice:
    """What the budget allows, in numbers."""

    saving: SaveKind
    needed_seconds: float
    had_seconds: float

    def __str__(self) -> str:
        return f"needed {self.needed_seconds:.1f} s, had {self.had_seconds:.1f} s: {self.saving}"


def choose_save(budget: GraceBudget, *, full_seconds: float | None, in_flight_seconds: float | None) -> SaveChoice:
    """The best that still fits.

    ``full_seconds`` is what a new save would take on top of the one in flight, None when none has been measured yet:
    then it is worth trying, the watchdog leaves in time either way. ``in_flight_seconds`` is what a snapshot that is
    already in host memory still needs, None when there is none.
    """
    had = budget.remaining_seconds
    flight = in_flight_seconds or 0.0
    full = (full_seconds or 0.0) + flight
    if budget.fits(full):
        return SaveChoice(SaveKind.FULL, full, had)
    if in_flight_seconds is not None and budget.fits(flight):
        return SaveChoice(SaveKind.SNAPSHOT, full, had)
    return SaveChoice(SaveKind.COMMITTED, full, had)


class Place(NamedTuple):
    """Where the loop was when the block ended."""

    completed: int
    """The last step whose end was a boundary, or was treated as one."""
    reached: int
    """The step that the loop was in or would have entered next."""
    at_boundary: bool
    """Whether the tracked state is that of the end of ``completed``; otherwise an exception cut a step short."""
    started: bool
    interruption: Interrupted | None
    """What was raised into the loop already."""
    total: int | None
    declared: str
    """Why the program said that the work is complete; empty when it did not."""

    @property
    def complete(self) -> bool:
        """Whether nothing is left to do."""
        return bool(self.declared) or self.total is None or self.completed + 1 >= self.total


class FinalSave:
    """The last save of one attempt, and how it ended."""

    def __init__(self, guard: Guard, opened: OpenRun, saver: CheckpointSaver) -> None:
        self._guard, self._opened, self._saver = guard, opened, saver
        self.outcome: Outcome | None = None
        """How the attempt ended, when that is not for the exception to say: finished or stopped."""

    def drain(self, step: int, cause: str) -> None:
        """Save what fits, then the program's own steps; numbers go to the log."""
        first = []
        if self._opened.owner is not None and step < self._opened.next_step:  # no step was done since the last commit
            self._saver.wait(self._guard.budget.remaining_seconds)
            self._record_end(Outcome.INTERRUPTED, cause, kept=True)
        elif self._opened.owner is not None:
            choice = choose_save(
                self._guard.budget,
                full_seconds=self._saver.full_seconds(),
                in_flight_seconds=self._saver.in_flight_seconds(),
            )
            log.warning("drain: %s", choice, extra={"action": "drain_started", "step": step})
            first.append(DrainStep("save", lambda: self._save_last(step, cause, choice)))
        self._guard.drain(first)

    def _save_last(self, step: int, cause: str, choice: SaveChoice) -> None:
        if choice.saving is not SaveKind.COMMITTED:
            self._saver.wait(self._guard.budget.remaining_seconds)
        if choice.saving is SaveKind.FULL and not self._saver.busy:
            self._saver.save_now(step, outcome=Outcome.INTERRUPTED, cause=cause)
        elif not self._saver.busy and self._guard.budget.fits(self._saver.full_seconds() or 0.0):
            self._record_end(Outcome.INTERRUPTED, cause)  # a write like any other: only if there is time for it

    def conclude(self, error: BaseException | None, place: Place) -> BaseException | None:
        """Save what can be saved; returns the interruption or failure that the block ends by, None when it finished."""
        if place.interruption is not None:  # it stands, whatever the program made of it
            if error is not place.interruption:
                self._guard.log_interrupting(error)
            return place.interruption
        if error is None:
            return self._end_of_block(place)
        if isinstance(error, Interrupted):
            return error
        notice = self._guard.notice
        if notice is None:
            self._keep_completed(error, place)
        if isinstance(error, SystemExit) and (
            notice is None or (place.at_boundary and (self._guard.stop_was_reported or place.declared))
        ):
            return self._exit(error, place)
        cause = self._guard.interruption_cause(error)
        if notice is None or cause is None or isinstance(error, SupersededError):
            return error
        self._guard.log_interrupting(error)
        self._drain_after(error, place, cause)
        return Interrupted(self._guard.settings.interrupted_code, cause=cause, detail=notice.detail)

    def _keep_completed(self, error: BaseException, place: Place) -> None:
        """The steps are done and what the program does after them fails: the next start repeats that alone."""
        done = place.at_boundary and (place.declared or place.total is not None) and place.complete
        clean = isinstance(error, SystemExit) and error.code in (None, 0)
        alone = self._opened.owner is not None and self._opened.coordination.size == 1
        if not done or clean or not alone or isinstance(error, SupersededError):
            return
        try:
            self._saver.wait()
            if place.completed >= self._opened.next_step:
                self._saver.save_now(place.completed)
        except Exception as problem:  # noqa: BLE001 - the program's own error is the one to report
            log.warning("the completed steps could not be saved: %s", problem, extra={"action": "save_failed"})

    def _exit(self, error: SystemExit, place: Place) -> BaseException:
        """``sys.exit`` inside the block ends its step as ``break`` does; the program's own code is kept."""
        clean = error.code in (None, 0)
        if self._guard.notice is None and error.code == self._guard.settings.interrupted_code != 0:
            if place.at_boundary:
                self.drain(place.completed, Cause.REQUEST)
            else:
                self._drain_after(error, place, Cause.REQUEST)
            return Interrupted(self._guard.settings.interrupted_code, cause=Cause.REQUEST, detail="the program exited")
        if clean or not place.complete:
            return self._end_of_block(place) or error
        return error

    def _end_of_block(self, place: Place) -> BaseException | None:
        notice = self._guard.notice
        done = (place.complete and place.at_boundary) or self._was_finished(place)
        try:
            if notice is not None and not place.declared and (self._guard.stop_was_reported or not done):
                self.drain(place.completed, notice.cause)
                return Interrupted(self._guard.settings.interrupted_code, cause=notice.cause, detail=notice.detail)
            if done:
                self._finish(place)
            else:
                self._stop(place)
        except Exception as error:  # noqa: BLE001 - handed on: the caller ends by it
            return error
        return None

    def _drain_after(self, error: BaseException, place: Place, cause: str) -> None:
        """An exception came after the notice. What it cut short is never saved: the state is between two boundaries."""
        coordination = self._opened.coordination
        last = coordination.last_step(place.completed, place.reached, _PEERS_ANSWER_SECONDS)
        if place.at_boundary and last == place.completed:
            self.drain(place.completed, cause)
            return
        coordination.report_failed_save(
            place.reached if last is None else last, f"{type(error).__name__} cut the step short"
        )
        self._saver.wait(self._guard.budget.remaining_seconds)
        if not self._saver.busy:
            self._record_end(Outcome.INTERRUPTED, cause)
        self._guard.drain()

    def _finish(self, place: Place) -> None:
        """The work is complete: all steps are done, the program said so, or there is no ``total_steps``."""
        self._saver.wait()
        if self._saver.superseded is not None:
            raise self._saver.superseded
        if place.declared:
            log.info("finished after step %d: %s", place.completed, place.declared, extra={"action": "finished_early"})
        if self._opened.owner is None or self._was_finished(place):
            self._record_end(Outcome.FINISHED)
        elif place.completed >= self._opened.next_step:
            self._saver.save_now(place.completed, finished=True, outcome=Outcome.FINISHED)
            overhead = 100 * self._saver.loop_time.overhead
            log.info("checkpoints cost %.2g %% of the time", overhead, extra={"action": "overhead"})
        else:
            self._record_end(Outcome.FINISHED, finished=True)
        self.outcome = Outcome.FINISHED

    def _stop(self, place: Place) -> None:
        """The program left its loop before ``total_steps``: save, so that the next start resumes after this step."""
        self._saver.wait()
        if self._saver.superseded is not None:
            raise self._saver.superseded
        news = self._opened.owner is not None and place.completed >= self._opened.next_step
        obstacle = self._obstacle(place, news)
        if news and not obstacle:
            self._saver.save_now(place.completed, outcome=Outcome.STOPPED)
        else:
            self._record_end(Outcome.STOPPED, kept=not news)
        log.warning(
            "the block ended after step %d, %s: the run is stopped, not finished, and the next start resumes at "
            "step %d; call run.finish() when the work is complete",
            place.completed,
            obstacle or f"before total_steps={place.total}",
            self._opened.next_step,
            extra={"action": "stopped"},
        )
        self.outcome = Outcome.STOPPED
        self._guard.drain()

    def _obstacle(self, place: Place, news: bool) -> str:
        """Why the state of a program that left early cannot be saved; empty when it can."""
        if not place.at_boundary:
            return "a signal handler cut the next one short"
        if news and not self._opened.coordination.leave_together(place.completed):
            return "and other ranks did not end there"
        return ""

    def write_down(self, error: BaseException | None) -> None:
        """A failure goes on record too; nothing is saved then, since the step was cut short."""
        if error is None or isinstance(error, Interrupted) or self.outcome is not None or self._opened.owner is None:
            return
        cause = self._guard.interruption_cause(error)
        self._saver.wait(min(_FAILURE_WAITS_SECONDS, self._guard.budget.remaining_seconds))
        if cause is Cause.SUPERSEDED or isinstance(error, SupersededError) or self._saver.busy:
            return
        outcome = Outcome.FAILED if cause is None else Outcome.INTERRUPTED
        self._record_end(outcome, cause or type(error).__name__)

    def _was_finished(self, place: Place) -> bool:
        """Whether an earlier attempt had finished, and this one has done nothing more."""
        return not place.started and self._opened.is_finished(place.total)

    def _record_end(
        self, outcome: Outcome, cause: str | None = None, *, finished: bool | None = None, kept: bool = False
    ) -> None:
        """Unless it finished or all of it is ``kept``, what was done after the newest commit is lost."""
        owner = self._opened.owner
        if owner is None or not self._opened.coordination.is_leader:
            return
        fields = self._saver.loop_time.record_fields(lost=not kept and outcome is not Outcome.FINISHED)
        record_end(owner, outcome, cause, finished=finished, **fields)
