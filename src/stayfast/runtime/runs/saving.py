"""Saving beside the training loop: when a checkpoint is due, and one thread that makes it durable and commits it.

The loop pays for the copy alone. While a save is under way a newer one waits its turn at the loop's side; what has been
committed is what the record says, never what was asked for.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from stayfast.errors import StayfastError, SupersededError
from stayfast.model.exit_codes import Outcome
from stayfast.runtime.checkpoint.cleanup import run_cleanup
from stayfast.runtime.checkpoint.policies import (
    Cadence,
    CadenceInput,
    EverySeconds,
    KeepLast,
    Retention,
    YoungDaly,
    apply_retention,
)
from stayfast.runtime.interruption.guard import Guard
from stayfast.runtime.run_record.owner import RecordOwner
from stayfast.runtime.run_record.record import CheckpointRecord
from stayfast.runtime.runs.coordination import SaveWish
from stayfast.runtime.runs.loop_time import LoopTime
from stayfast.runtime.runs.opening import OpenRun
from stayfast.runtime.runs.options import RunOptions
from stayfast.runtime.state.tracked_state import TrackedState

if TYPE_CHECKING:
    from stayfast.runtime.checkpoint.snapshot import Snapshot
    from stayfast.runtime.checkpoint.writer import DurableSnapshot

log = logging.getLogger("stayfast")

STALL_SECONDS = 30.0
STALLED_AFTER_INTERVALS = 2
_NEVER, _NOW = float("inf"), float("-inf")
_LEAVING_JOIN_SECONDS = 1.0

Job = Callable[[], None]


class CheckpointSaver:
    """At most one save in flight; failures are kept for the loop to decide about.

    For a run that keeps nothing no save is ever due, and none can be started.
    """

    def __init__(self, opened: OpenRun, tracked: TrackedState, options: RunOptions, guard: Guard) -> None:
        self._opened = opened
        self._tracked = tracked
        self._guard = guard
        self._clock = guard.clock
        self._cadence = options.cadence or _default_cadence(guard.settings.checkpoint_seconds)
        self._retention: Retention = options.retention or KeepLast(2)
        attempts = () if opened.record is None else opened.record.attempts
        self._interruptions = sum(row.outcome in (Outcome.INTERRUPTED, Outcome.LOST) for row in attempts)
        self.loop_time = LoopTime(guard.clock)
        self._requested = False
        self._state_bytes = 0
        self._cleaned = False
        self._wake = threading.Condition()
        self._job: Job | None = None
        self._job_started_at = 0.0
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None
        self.superseded: SupersededError | None = None
        self.error: Exception | None = None
        self.failures = 0
        self.persist_seconds = 0.0
        self.committed_bytes = 0

    def begin(self, next_step: int, total: int | None) -> None:
        """Time counts from here; an attempt that never commits is written down as one that made no progress."""
        self.loop_time.begin(next_step)
        owner = self._opened.owner
        if owner is None:
            return
        if owner.head.newest is not None:
            self._state_bytes = owner.head.newest.size
        if not self._opened.coordination.is_leader:
            return
        if total is not None and owner.head.total_steps != total:
            owner.update_attempt(total_steps=total, finished=False)
        threading.Thread(target=self._watch_for_stall, args=(owner,), name="stayfast-stall", daemon=True).start()

    # -- when to save

    def request(self) -> None:
        """Save at the end of this step, or as soon as the save in flight is over."""
        self._requested = True

    def next_check(self, step: int) -> tuple[float, float]:
        """The monotonic instant and the step at whose end to ask again whether a save is due."""
        if self._opened.owner is None:
            return _NEVER, _NEVER
        agreed = self._opened.coordination.next_decision
        if agreed is not None:
            return _NEVER, agreed
        seconds, steps = self._cadence.next_check(self._moment(step))
        return self._clock.monotonic() + max(0.0, seconds), step + max(1.0, steps)

    def save_if_due(self, step: int) -> tuple[float, float] | None:
        """Start a save that is requested or due after this step; returns ``next_check``.

        None when the rank that decides does not answer.
        """
        if self._opened.owner is None:
            self._requested = False
            return self.next_check(step)
        save = self._opened.coordination.decide_save(step, self._wish(step))
        if save is None:
            return None
        if save:
            self._requested = False
            self.wait(self._guard.budget.remaining_seconds)  # ranks must not skip what the others save
            if not self.busy:
                self.start(step)
        seconds, steps = self.next_check(step)
        return (_NOW if self._requested else seconds), steps  # requested: a save is in flight, look again

    def _wish(self, step: int) -> SaveWish:
        requested, idle = self._requested, not self.busy and self._guard.notice is None
        if not self._opened.coordination.decides_after(step):
            return SaveWish(requested, idle)
        moment = self._moment(step)
        due = self._cadence.is_due(moment)
        if requested or (due and idle):
            moment = replace(moment, steps_since_save=0, seconds_since_save=0.0)
        step_seconds = self._guard.durations.p95("step") or 0.0
        return SaveWish(requested, idle, due, self._cadence.next_check(moment), step_seconds)

    def _moment(self, step: int) -> CadenceInput:
        persist_seconds = self._guard.durations.p95("persist") or 0.0
        return self.loop_time.moment(step, persist_seconds=persist_seconds, interruptions=self._interruptions)

    # -- what saves cost

    def full_seconds(self) -> float | None:
        """What a save from here would take, by what saves have taken; None when none has been measured."""
        if not self._tracked:
            return self._guard.durations.p95("persist")
        checkpointer = self._opened.checkpointer
        if checkpointer is None or not self._state_bytes:
            return None
        return sum(checkpointer.estimate_seconds(self._state_bytes))

    def in_flight_seconds(self) -> float | None:
        """What the save in flight still needs, by what saves have cost so far; None when there is none."""
        with self._wake:
            if self._job is None:
                return None
            estimate = self._guard.durations.p95("persist")
            return max(0.0, (estimate or 0.0) - (self._clock.monotonic() - self._job_started_at))

    # -- saving

    @property
    def busy(self) -> bool:
        """Whether a save is in flight."""
        return self._job is not None

    def preallocate(self) -> None:
        """Get the memory for copies ahead of the first one, off the loop's time; called once, after a step."""
        checkpointer = self._opened.checkpointer
        if checkpointer is not None:
            state = self._tracked.collect()
            threading.Thread(
                target=checkpointer.preallocate, args=(state,), name="stayfast-memory", daemon=True
            ).start()

    def start(self, step: int, *, finished: bool = False, **row: Any) -> None:
        """Copy the state, which the loop waits for; the saver's thread makes it durable and commits it.

        The caller has made sure that no save is in flight. ``row`` is what the record says of the attempt.
        """
        owner = self._opened.owner
        assert owner is not None
        started = self._clock.monotonic()
        snapshot = None
        if self._opened.checkpointer is not None:
            snapshot = self._opened.checkpointer.snapshot(step, self._tracked.collect())
            self._state_bytes = snapshot.size
        taken_at = self.loop_time.add_copy(step, started)
        self._guard.durations.add("snapshot", taken_at - started)
        if "outcome" in row:
            row = {"cause": None, "ended_at": owner.timestamp(), **row}
        row |= self.loop_time.record_fields()
        self._submit(lambda: self._commit(owner, step, snapshot, taken_at, finished, row))

    def save_now(self, step: int, *, finished: bool = False, **row: Any) -> None:
        """Save and wait until it is committed; the saver's thread does it, so that a deadline can end the waiting."""
        if self._opened.owner is None:
            return
        self.start(step, finished=finished, **row)
        if not self.wait(self._guard.budget.remaining_seconds):
            raise TimeoutError("the deadline came before the checkpoint was committed")
        if self.superseded is not None:
            raise self.superseded
        if self.error is not None:
            raise self.error

    def wait(self, seconds: float | None = None) -> bool:
        """Wait for the save in flight; false when time ran out first."""
        with self._wake:
            return self._wake.wait_for(lambda: self._job is None, None if seconds == _NEVER else seconds)

    def close(self) -> None:
        """No more saves. The one in flight ends by itself; with other ranks it reads their messages, so wait for it."""
        with self._wake:
            self._closed.set()
            self._wake.notify_all()
        if self._thread is not None and self._opened.coordination.size > 1:
            self._thread.join(_LEAVING_JOIN_SECONDS)

    # -- the saver's thread

    def _submit(self, job: Job) -> None:
        with self._wake:
            assert self._job is None, "one save at a time"
            self._job = job
            self._job_started_at = self._clock.monotonic()
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="stayfast-saver", daemon=True)
                self._thread.start()
            self._wake.notify_all()

    def _work(self) -> None:
        while True:
            with self._wake:
                self._wake.wait_for(lambda: self._job is not None or self._closed.is_set())
                if self._job is None:
                    return
                job = self._job
            self._run(job)
            with self._wake:
                self._job = None
                self._wake.notify_all()

    def _run(self, job: Job) -> None:
        started = self._clock.monotonic()
        try:
            job()
            self.error = None
        except SupersededError as error:
            self.superseded = error
        except Exception as error:  # noqa: BLE001 - kept for the loop, which decides whether to continue
            self.error = error
            self.failures += 1
            log.warning(
                "a checkpoint could not be saved (%s); an earlier one, if there is any, is still valid",
                error,
                extra={"action": "checkpoint_failed"},
            )
        else:
            seconds = self._clock.monotonic() - started
            self.persist_seconds += seconds
            self._guard.durations.add("persist", seconds)

    def _commit(
        self,
        owner: RecordOwner,
        step: int,
        snapshot: Snapshot | None,
        taken_at: float,
        finished: bool,
        row: dict[str, Any],
    ) -> None:
        coordination, checkpointer = self._opened.coordination, self._opened.checkpointer
        durable: DurableSnapshot | None = None
        if snapshot is not None and checkpointer is not None:
            try:
                durable = checkpointer.persist(snapshot, owner.head.attempt)
            except Exception as error:
                snapshot.release()
                coordination.report_failed_save(step, str(error))
                coordination.check_owner(owner)
                raise
        mine = CheckpointRecord(step=step, attempt=owner.head.attempt, committed_at=owner.timestamp())
        if durable is not None:
            mine = replace(mine, size=durable.size, inventory_sha256=durable.inventory_sha256)
        if row.get("outcome") is Outcome.INTERRUPTED:
            row["safe_seconds"] = round(self._guard.budget.spent_seconds, 3)
        before = len(owner.head.checkpoints)
        keep = partial(apply_retention, self._retention)
        head = coordination.commit(owner, mine, keep=keep, finished=finished, **row)
        self.loop_time.add_commit(taken_at)
        if durable is not None and checkpointer is not None:
            self.committed_bytes += durable.size
            checkpointer.mark_committed(durable)
            stale = not self._cleaned or len(head.checkpoints) <= before
            if stale and coordination.is_leader and "outcome" not in row:
                # Other ranks may be writing the next save already: then only what is older than the newest may go.
                attempt = head.attempt if coordination.size == 1 else None
                if run_cleanup(owner.store, self._clock, attempt, checkpointer.unfinished_folders):
                    self._cleaned = True
        log.info("step %d is committed", step, extra={"action": "checkpoint_committed", "step": step})

    def _watch_for_stall(self, owner: RecordOwner) -> None:
        seconds, _ = self._cadence.next_check(self._moment(self.loop_time.saved_step))
        interval = seconds if seconds != _NEVER else STALL_SECONDS
        patience = STALLED_AFTER_INTERVALS * max(interval, STALL_SECONDS)
        if self._clock.wait(self._closed, patience):
            return
        row = owner.head.current_attempt
        if row.last_step < row.first_step and row.outcome is None:
            try:
                owner.update_attempt(stalled=True)
            except StayfastError as error:
                log.debug("stall not recorded: %s", error)


def _default_cadence(seconds: float | None) -> Cadence:
    return EverySeconds(seconds) if seconds else YoungDaly()
