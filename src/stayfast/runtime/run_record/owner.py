"""The run's head as this attempt holds it: claim it, commit to it, keep its ledger row up to date."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from stayfast.clock import Clock, to_rfc3339
from stayfast.errors import NoProgressError, RunError, StayfastError, SupersededError
from stayfast.model.exit_codes import Outcome
from stayfast.runtime.run_record.commit_protocol import (
    OwnedRecord,
    OwnStaleWriteError,
    claim,
    commit,
    read_head,
    run_protocol,
)
from stayfast.runtime.run_record.read import read_record
from stayfast.runtime.run_record.record import AttemptRecord, CheckpointRecord, RunRecord
from stayfast.storage.stores.protocol import Store

RetentionFilter = Callable[[tuple[CheckpointRecord, ...]], tuple[CheckpointRecord, ...]]
"""Which of the committed checkpoints, newest first, stay listed."""


def keep_all(checkpoints: tuple[CheckpointRecord, ...]) -> tuple[CheckpointRecord, ...]:
    """No retention."""
    return checkpoints


class RecordOwner:
    """Owns ``HEAD.json`` for one attempt; every call is one conditional replace, safe from any thread."""

    def __init__(self, store: Store, run: str, *, clock: Clock) -> None:
        self.store = store
        self.run = run
        self._clock = clock
        self._held: OwnedRecord | None = None
        self._lock = threading.Lock()
        self._unsure = False  # whether the last write may have happened although it ended in an error

    @property
    def head(self) -> RunRecord:
        """The head as of our last write."""
        if self._held is None:
            raise RunError(f"the run {self.run} has not been claimed")
        return self._held.head

    def claim(self, row: AttemptRecord) -> RunRecord:
        """Become the owner of the run; whoever owned it before can commit no more."""
        with self._lock:
            self._held = run_protocol(claim(self.run, row, _token), self.store, self._clock)
            return self._held.head

    def adopt(self, held: OwnedRecord) -> None:
        """Take over what another rank of this attempt has claimed."""
        self._held = held

    @property
    def owned(self) -> OwnedRecord | None:
        """Head and generation, to pass on to the other ranks."""
        return self._held

    def reread(self) -> RunRecord | None:
        """The head as it is now, whoever wrote it."""
        return read_record(self.store, self._clock)

    def commit(
        self, committed: CheckpointRecord, *, keep: RetentionFilter = keep_all, finished: bool = False, **row: Any
    ) -> RunRecord:
        """List a checkpoint whose parts are durable; from here on it exists."""

        def change(head: RunRecord) -> RunRecord:
            others = tuple(item for item in head.checkpoints if item.step != committed.step)
            kept = keep((committed, *others))
            assert committed in kept, "retention never drops the checkpoint that is being committed"
            return replace(head, checkpoints=kept, finished=finished).with_attempt(last_step=committed.step, **row)

        return self._write(change)

    def resume_from(self, committed: CheckpointRecord) -> RunRecord:
        """Resume from here: those before it in the list did not verify and go behind it, where retention ends them."""
        return self._write(lambda head: _with_newest(head, committed))

    def follow(self, committed: CheckpointRecord) -> None:
        """Another rank of this attempt records that the run resumes from here; this one only has to know it."""
        with self._lock:
            if self._held is not None:
                self._held = replace(self._held, head=_with_newest(self._held.head, committed))

    def update_attempt(self, *, finished: bool | None = None, total_steps: int | None = None, **row: Any) -> RunRecord:
        """Change this attempt's ledger row and nothing else."""

        def change(head: RunRecord) -> RunRecord:
            if finished is not None:
                head = replace(head, finished=finished)
            if total_steps is not None:
                head = replace(head, total_steps=total_steps)
            return head.with_attempt(**row) if row else head

        return self._write(change)

    def _write(self, change: Callable[[RunRecord], RunRecord]) -> RunRecord:
        with self._lock:
            if self._held is None:
                raise RunError(f"the run {self.run} has not been claimed")
            held = self._held
            for last in (False, True):
                if self._unsure:
                    self._held = held = self._reread_own_write(held)
                self._unsure = True
                try:
                    held = run_protocol(commit(held, change(held.head), _token), self.store, self._clock)
                    break
                except OwnStaleWriteError:
                    if last:
                        raise
            self._held, self._unsure = held, False
            return held.head

    def _reread_own_write(self, held: OwnedRecord) -> OwnedRecord:
        """The last write ended in an error and may be there all the same: our own head is nobody who took over."""
        found = run_protocol(read_head(), self.store, self._clock)
        return found if found is not None and found.head.attempt == held.head.attempt else held

    def check_owner(self) -> None:
        """Raise ``SupersededError`` when a newer attempt owns the run; to be asked when a save failed.

        The newer attempt may have pruned what this one was writing, and that must not look like a broken disk.
        """
        try:
            found = self.reread()
        except StayfastError:
            return  # what cannot be read says nothing about who owns it
        if found is not None and found.attempt > self.head.attempt:
            raise SupersededError("another attempt of this run took over while this one was saving")

    def timestamp(self) -> str:
        """The wall clock as the ledger writes it."""
        return to_rfc3339(self._clock.wall())


def check_progress(head: RunRecord, most: int) -> None:
    """Stop a run that only burns money.

    Only attempts that failed, or that outlived two checkpoint intervals without a commit, count; a storm of quick
    preemptions does not, and neither resets the count. A commit does.
    """
    stuck = 0
    for row in reversed(head.attempts[:-1]):
        if row.last_step >= row.first_step:
            break
        if row.outcome is Outcome.FAILED or row.stalled:
            stuck += 1
    if stuck >= most:
        raise NoProgressError(
            f"the last {stuck} attempts of {head.run} failed or stalled, and "
            + (f"nothing was saved after step {head.next_step - 1}" if head.next_step else "nothing was ever saved"),
            help="look at the last attempt's error; raise STAYFAST_MAX_STALLED_ATTEMPTS to try again",
        )


def _token() -> str:
    return secrets.token_hex(16)


def _with_newest(head: RunRecord, committed: CheckpointRecord) -> RunRecord:
    others = tuple(item for item in head.checkpoints if item != committed)
    return replace(head, checkpoints=(committed, *others))
