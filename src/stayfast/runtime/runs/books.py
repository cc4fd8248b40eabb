"""The books of a run: its claim, its checkpoints and its ledger row, as the session needs them.

A run without a URL keeps no books; every method is then a cheap no-op, so that the session has one path.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from stayfast.errors import StayfastError, UrlError
from stayfast.model.exit_codes import Outcome
from stayfast.runtime.checkpoint.cleanup import delete_unreferenced
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
from stayfast.runtime.run_record.commit_protocol import run_protocol
from stayfast.runtime.run_record.owner import RecordOwner, check_progress
from stayfast.runtime.run_record.record import AttemptRecord, CheckpointRecord, RunRecord
from stayfast.runtime.runs.coordination import Coordination, SaveWish, SingleProcess
from stayfast.runtime.runs.options import RunOptions
from stayfast.runtime.runs.restoring import State
from stayfast.storage.stores.open_store import open_store
from stayfast.storage.stores.precondition_check import check_preconditions
from stayfast.storage.stores.protocol import Store

if TYPE_CHECKING:
    from stayfast.runtime.checkpoint.snapshot import Snapshot
    from stayfast.runtime.checkpoint.writer import DurableSnapshot
    from stayfast.runtime.state.step_digests import StepDigests

log = logging.getLogger("stayfast")

STALL_SECONDS = 30.0
STALLED_AFTER_INTERVALS = 2


class Books:
    """What is kept about the run outside this process."""

    def __init__(self, url: str | None, total_steps: int | None, options: RunOptions, guard: Guard) -> None:
        self.url = _fill_in(url, guard.settings.completion_index)
        self.state = State(options, guard.settings.rank)
        self.coordination: Coordination = SingleProcess()
        self._total = total_steps
        self._guard = guard
        self._cadence = options.cadence or _default_cadence(guard)
        self._retention: Retention = options.retention or KeepLast(2)
        self._store: Store | None = None
        self._ledger: RecordOwner | None = None
        self._loop_started = 0.0
        self._saved_at = 0.0
        self._saved_step = -1
        self._interruptions = 0
        self._collected = False
        self._released = threading.Event()
        self.stalled_seconds = 0.0
        """How long the loop has waited for hand-overs: what checkpoints really cost it."""
        self.saves = 0
        self.committed_bytes = 0
        self._kept_at = 0.0  # when the state of the newest commit was taken: what came after is not safe yet

    def fingerprints(self) -> StepDigests | None:
        """Where every step leaves its digests, if that was asked for."""
        path = self._guard.settings.fingerprints
        if path is None:
            return None
        from stayfast.runtime.state.step_digests import StepDigests

        return StepDigests(path, self._guard.settings.rank, self.state.values)

    @property
    def exists(self) -> bool:
        """Whether anything is kept at all."""
        return self._ledger is not None

    @property
    def attempt(self) -> int:
        return self._ledger.head.attempt if self._ledger is not None else 1

    @property
    def head(self) -> RunRecord | None:
        """The run's record as of our last write; None for a run that keeps no books."""
        return self._ledger.head if self._ledger is not None else None

    @property
    def next_step(self) -> int:
        """The first step that no committed checkpoint holds."""
        return self._ledger.head.next_step if self._ledger is not None else 0

    @property
    def is_finished(self) -> bool:
        """Whether an earlier attempt ended the work; a larger ``total_steps`` opens it again."""
        if self._ledger is None:
            return False
        head = self._ledger.head
        if not head.finished:
            return False
        return self._total is None or head.total_steps is None or self._total <= head.total_steps

    # -- beginning

    def open(self) -> None:
        """Claim the run: attempt + 1, fenced against every earlier attempt."""
        if self.url is None:
            return
        settings = self._guard.settings
        self._store = open_store(self.url)
        if self.url.startswith("file://."):
            self.url = self._store.url  # what the books and messages say must hold in every directory
        if settings.rank == 0:
            check_preconditions(self._store)
        ledger = RecordOwner(self._store, self.url, clock=self._guard.clock)
        row = AttemptRecord(
            attempt=0,
            started_at=ledger.timestamp(),
            machine=settings.machine,
            zone=settings.zone,
            capacity=settings.capacity,
            usd_per_hour=settings.run_usd_per_hour,
        )
        if settings.world_size > 1:
            from stayfast.runtime.runs.rank_group import RankGroup
            from stayfast.runtime.runs.rank_messages import connect_ranks

            self.coordination = RankGroup(connect_ranks(settings, self._guard.clock), self._guard.board)
        self.coordination.claim(ledger, row, lambda head: self._check_progress(ledger, head))
        self._ledger = ledger
        self._interruptions = sum(row.outcome in (Outcome.INTERRUPTED, Outcome.LOST) for row in ledger.head.attempts)

    def _check_progress(self, ledger: RecordOwner, head: RunRecord) -> None:
        self._ledger = ledger
        try:
            check_progress(head, self._guard.settings.max_stalled_attempts)
        except StayfastError as error:
            self.close(Outcome.FAILED, type(error).__name__)
            raise

    def restore(self) -> int:
        """Load what was committed; returns the first step to run."""
        if self._ledger is None or self._store is None:
            return 0
        ledger, store = self._ledger, self._store
        started = self._guard.clock.monotonic()
        self.state.open(store)
        committed = self.state.restore(ledger, self.coordination)
        if committed is None:
            return 0
        if committed != ledger.head.newest and self.coordination.is_leader:
            ledger.resume_from(committed)
        self._guard.durations.add("restore", self._guard.clock.monotonic() - started, step=committed.step)
        log.info("attempt %d resumes at step %d", self.attempt, committed.step + 1, extra={"action": "resumed"})
        return committed.step + 1

    def loop_starts(self, next_step: int) -> None:
        """Time counts from here; an attempt that never commits is written down as one that made no progress."""
        self._loop_started = self._saved_at = self._kept_at = self._guard.clock.monotonic()
        self._saved_step = next_step - 1
        if self._ledger is None or not self.coordination.is_leader:
            return
        if self._total is not None and self._ledger.head.total_steps != self._total:
            self._ledger.update_attempt(total_steps=self._total, finished=False)
        threading.Thread(target=self._watch_for_stall, name="stayfast-stall", daemon=True).start()

    # -- when to save

    def next_look(self, step: int) -> tuple[float, float]:
        """The monotonic instant and the step at whose end the cadence wants to be asked again."""
        if self._ledger is None:
            return float("inf"), float("inf")
        if self.coordination.next_decision is not None:
            return float("inf"), self.coordination.next_decision
        seconds, steps = self._cadence.next_check(self._moment(step))
        return self._guard.clock.monotonic() + max(0.0, seconds), step + max(1.0, steps)

    def decide(self, step: int, requested: bool, idle: bool) -> bool | None:
        """Whether to save at the end of this step; None when the rank that decides does not answer."""
        if self._ledger is None:
            return requested
        wish = SaveWish(requested, idle)
        if self.coordination.decides_after(step):
            moment = self._moment(step)
            due = self._cadence.is_due(moment)
            if requested or (due and idle):
                moment = replace(moment, steps_since_save=0, seconds_since_save=0.0)
            pace = self._guard.durations.p95("step") or 0.0
            wish = SaveWish(requested, idle, due, self._cadence.next_check(moment), pace)
        return self.coordination.decide_save(step, wish)

    def _moment(self, step: int) -> CadenceInput:
        now = self._guard.clock.monotonic()
        return CadenceInput(
            step=step,
            steps_since_save=step - self._saved_step,
            seconds_since_save=now - self._saved_at,
            save_seconds=self.stalled_seconds / self.saves if self.saves else 0.0,
            persist_seconds=self._guard.durations.p95("persist") or 0.0,
            interruptions=self._interruptions,
            run_seconds=now - self._loop_started,
            age_seconds=now - self._loop_started,
        )

    def full_save_seconds(self) -> float | None:
        """What a save from here would take, by what saves have taken; None when none has been measured."""
        if self.state.exists:
            return self.state.save_seconds()
        return self._guard.durations.p95("persist")

    # -- saving

    def prepare(self, step: int, *, finished: bool = False, **end: Any) -> Callable[[], None]:
        """Take what has to be taken now; the returned job makes it durable and commits it, on any thread."""
        started = self._guard.clock.monotonic()
        snapshot = self.state.snapshot(step)
        self._saved_at, self._saved_step = self._guard.clock.monotonic(), step
        self.stalled_seconds += self._saved_at - started
        self.saves += 1
        self._guard.durations.add("snapshot", self._saved_at - started)
        row, taken_at = self._row(**end), self._saved_at
        return lambda: self._persist(step, snapshot, taken_at, finished, row)

    def _persist(
        self, step: int, snapshot: Snapshot | None, taken_at: float, finished: bool, row: dict[str, Any]
    ) -> None:
        ledger = self._ledger
        assert ledger is not None
        try:
            persisted = None if snapshot is None else self.state.persist(snapshot, ledger.head.attempt)
        except Exception as error:
            self.coordination.report_failed_save(step, str(error))
            self.coordination.check_owner(ledger)
            raise
        if row.get("outcome") is Outcome.INTERRUPTED:
            row["safe_seconds"] = round(self._guard.budget.spent_seconds, 3)
        before = len(ledger.head.checkpoints)
        mine = _committed(step, persisted, ledger)
        head = self.coordination.commit(ledger, mine, keep=self._keep, finished=finished, **row)
        self._kept_at = taken_at
        if persisted is not None:
            self.committed_bytes += persisted.size
            self.state.committed(persisted)
            stale = not self._collected or len(head.checkpoints) <= before
            if stale and self.coordination.is_leader and "outcome" not in row:
                self._collect_garbage(head.attempt)
        log.info("step %d is committed", step, extra={"action": "checkpoint_committed", "step": step})

    def _keep(self, checkpoints: tuple[CheckpointRecord, ...]) -> tuple[CheckpointRecord, ...]:
        return apply_retention(self._retention, checkpoints)

    def _collect_garbage(self, attempt: int) -> None:
        """Never worth failing a save for."""
        assert self._store is not None
        try:
            # Other ranks may be writing the next save already: then only what is older than the newest may go.
            mine = attempt if self.coordination.size == 1 else None
            found = run_protocol(delete_unreferenced(mine, self.state.in_flight), self._store, self._guard.clock)
            self._collected = True
            if found.refused:
                log.warning("nothing was pruned: %s", found.refused, extra={"action": "prune_refused"})
        except StayfastError as error:
            log.warning("pruning stopped: %s", error, extra={"action": "prune_failed"})

    # -- the end

    def close(
        self, outcome: Outcome, cause: str | None = None, *, finished: bool | None = None, kept: bool = False
    ) -> None:
        """Write down how this attempt ended; a failure to do so is told, not raised: the end is certain already.

        Unless it finished or all of it is ``kept``, what was done after the newest commit is lost.
        """
        if self._ledger is None or not self.coordination.is_leader:
            return
        row = self._row(outcome, cause)
        if self._kept_at and not kept and outcome is not Outcome.FINISHED:
            lost = min(row["useful_seconds"], max(0.0, self._guard.clock.monotonic() - self._kept_at))
            row |= {"lost_seconds": round(lost, 3), "useful_seconds": round(row["useful_seconds"] - lost, 3)}
        try:
            self._ledger.update_attempt(finished=finished, **row)
        except StayfastError as error:
            log.warning("the end of this attempt is not on record: %s", error, extra={"action": "ledger_failed"})

    def overhead(self) -> float:
        """The share of the loop's time that checkpoints have cost it."""
        spent = self._guard.clock.monotonic() - self._loop_started
        return self.stalled_seconds / spent if self._loop_started and spent > 0 else 0.0

    def release(self) -> None:
        """Give back threads, memory and connections."""
        self._released.set()
        self.coordination.close()
        if self._store is not None:
            self.state.close()
            self._store.close()

    def _row(self, outcome: Outcome | None = None, cause: str | None = None) -> dict[str, Any]:
        now = self._guard.clock.monotonic()
        started = self._loop_started or now
        row: dict[str, Any] = {
            "useful_seconds": round(max(0.0, now - started - self.stalled_seconds), 3),
            "save_seconds": round(self.stalled_seconds, 3),
        }
        if outcome is not None:
            assert self._ledger is not None
            row |= {"outcome": outcome, "cause": cause, "ended_at": self._ledger.timestamp()}
        return row

    def _watch_for_stall(self) -> None:
        seconds, _ = self._cadence.next_check(self._moment(self._saved_step))
        interval = seconds if seconds != float("inf") else STALL_SECONDS
        patience = STALLED_AFTER_INTERVALS * max(interval, STALL_SECONDS)
        if self._guard.clock.wait(self._released, patience) or self._ledger is None:
            return
        row = self._ledger.head.current_attempt
        if row.last_step < row.first_step and row.outcome is None:
            try:
                self._ledger.update_attempt(stalled=True)
            except StayfastError as error:
                log.debug("stall not recorded: %s", error)


def _committed(step: int, persisted: DurableSnapshot | None, ledger: RecordOwner) -> CheckpointRecord:
    attempt = ledger.head.attempt
    if persisted is None:
        return CheckpointRecord(step=step, attempt=attempt, committed_at=ledger.timestamp())
    return CheckpointRecord(
        step=step,
        attempt=attempt,
        committed_at=ledger.timestamp(),
        size=persisted.size,
        inventory_sha256=persisted.inventory_sha256,
    )


def _default_cadence(guard: Guard) -> Cadence:
    chosen = guard.settings.checkpoint_seconds
    return YoungDaly() if not chosen else EverySeconds(chosen)


def _fill_in(url: str | None, index: str | None) -> str | None:
    if url is None or "{index}" not in url:
        return url
    if index is None:
        raise UrlError(
            f"the URL {url!r} has {{index}} in it, but JOB_COMPLETION_INDEX is not set",
            help="run it in an Indexed Job, or set the variable",
        )
    return url.replace("{index}", index)
