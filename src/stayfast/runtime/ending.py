"""How an attempt ends: save what fits, run the drain, write it down.

Separate from the loop, because all ways out meet here: a notice at a boundary, the end of the block, a failure.
"""

from __future__ import annotations

import logging
from typing import Any

from stayfast.errors import SupersededError
from stayfast.model.exits import Outcome
from stayfast.model.notice import Cause
from stayfast.runtime.books import Books
from stayfast.runtime.drain import DrainStep, SaveChoice, Saving, choose_saving
from stayfast.runtime.guard import Guard
from stayfast.runtime.saver import Saver

log = logging.getLogger("stayfast")

_FAILURE_WAITS_SECONDS = 5.0


class Ending:
    """The last saves of one attempt."""

    def __init__(self, guard: Guard, books: Books, saver: Saver) -> None:
        self._guard, self._books, self._saver = guard, books, saver

    def commit_now(self, step: int, **final: Any) -> None:
        """Save and wait until it is committed; the saver's thread does it, so that a deadline can end the waiting."""
        if not self._books.exists:
            return
        self._saver.submit(self._books.prepare(step, **final))
        if not self._saver.wait(self._guard.budget.remaining_seconds):
            raise TimeoutError("the deadline came before the checkpoint was committed")
        if self._saver.superseded is not None:
            raise self._saver.superseded
        if self._saver.error is not None:
            raise self._saver.error

    def drain(self, step: int, cause: str) -> None:
        """Save what fits, then the program's own steps; numbers go to the log."""
        first = []
        if self._books.exists and step < self._books.next_step:  # nothing has happened since the last commit
            self._saver.wait(self._guard.budget.remaining_seconds)
            self._books.close(Outcome.INTERRUPTED, cause, kept=True)
        elif self._books.exists:
            choice = choose_saving(
                self._guard.budget,
                full_seconds=self._books.full_save_seconds(),
                in_flight_seconds=self._saver.in_flight_seconds(),
            )
            log.warning("drain: %s", choice, extra={"action": "drain_started", "step": step})
            first.append(DrainStep("save", lambda: self._save_last(step, cause, choice)))
        self._guard.drain(first)

    def _save_last(self, step: int, cause: str, choice: SaveChoice) -> None:
        if choice.saving is not Saving.COMMITTED:
            self._saver.wait(self._guard.budget.remaining_seconds)
        if choice.saving is Saving.FULL and not self._saver.busy:
            self.commit_now(step, outcome=Outcome.INTERRUPTED, cause=cause)
        elif not self._saver.busy and self._guard.budget.fits(self._books.full_save_seconds() or 0.0):
            self._books.close(Outcome.INTERRUPTED, cause)  # a write like any other: only if there is time for it

    def finish(self, completed: int, *, started: bool) -> None:
        """All steps are done, or the program left its loop by itself, which counts the same."""
        self._saver.wait()
        if self._saver.superseded is not None:
            raise self._saver.superseded
        if not self._books.exists or (self._books.is_finished and not started):
            self._books.close(Outcome.FINISHED)
        elif completed >= self._books.next_step:
            self.commit_now(completed, finished=True, outcome=Outcome.FINISHED)
            log.info("checkpoints cost %.2g %% of the time", 100 * self._books.overhead(), extra={"action": "overhead"})
        else:
            self._books.close(Outcome.FINISHED, finished=True)

    def write_down(self, error: BaseException | None) -> None:
        """A failure goes on record too; nothing is saved then, since the step was cut short."""
        if error is None or isinstance(error, SystemExit) or not self._books.exists:
            return
        cause = self._guard.interruption_in(error)
        self._saver.wait(min(_FAILURE_WAITS_SECONDS, self._guard.budget.remaining_seconds))
        if cause is Cause.SUPERSEDED or isinstance(error, SupersededError) or self._saver.busy:
            return
        outcome = Outcome.FAILED if cause is None else Outcome.INTERRUPTED
        self._books.close(outcome, cause or type(error).__name__)
