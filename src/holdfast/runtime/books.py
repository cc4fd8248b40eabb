"""The books of a run: its claim, its checkpoints and its ledger row, as the session needs them.

A run without a URL keeps no books; every method is then a cheap no-op, so that the session has one path.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any

from holdfast.checkpoint.head import AttemptRow, Committed
from holdfast.checkpoint.ledger import RunLedger, check_progress
from holdfast.errors import HoldfastError, UrlError
from holdfast.model.exits import Outcome
from holdfast.runtime.guard import Guard
from holdfast.stores.base import Store
from holdfast.stores.open import open_store

log = logging.getLogger("holdfast")

COUNTER_INTERVAL_SECONDS = 30.0
STALLED_AFTER_INTERVALS = 2


class Books:
    """What is kept about the run outside this process."""

    def __init__(self, url: str | None, total_steps: int | None, guard: Guard) -> None:
        self.url = _fill_in(url, guard.settings.completion_index)
        self._total = total_steps
        self._guard = guard
        self._store: Store | None = None
        self._ledger: RunLedger | None = None
        self._loop_started = 0.0
        self._stop_stall_watch = threading.Event()
        self.stalled_seconds = 0.0
        """How long the loop has waited for hand-overs: what checkpoints really cost."""

    @property
    def exists(self) -> bool:
        """Whether anything is kept at all."""
        return self._ledger is not None

    @property
    def attempt(self) -> int:
        return self._ledger.head.attempt if self._ledger is not None else 1

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

    def open(self) -> None:
        """Claim the run: attempt + 1, fenced against every earlier attempt."""
        if self.url is None:
            return
        settings = self._guard.settings
        self._store = open_store(self.url)
        ledger = RunLedger(self._store, self.url, clock=self._guard.clock)
        row = AttemptRow(
            attempt=0,
            started_at=ledger.now(),
            machine=settings.machine,
            zone=settings.zone,
            capacity=settings.capacity,
            usd_per_hour=settings.usd_per_hour,
        )
        ledger.claim(row)
        self._ledger = ledger
        try:
            check_progress(ledger.head, settings.max_stalled_attempts)
        except HoldfastError as error:
            self.close(Outcome.FAILED, type(error).__name__)
            raise

    def restore(self) -> int:
        """The first step to run."""
        if self._ledger is None:
            return 0
        head = self._ledger.head
        if head.attempt > 1:
            log.info("attempt %d resumes at step %d", head.attempt, head.next_step, extra={"action": "resumed"})
        return head.next_step

    def loop_starts(self) -> None:
        """Time counts from here; an attempt that never commits is written down as one that made no progress."""
        self._loop_started = self._guard.clock.monotonic()
        if self._ledger is None:
            return
        if self._total is not None and self._ledger.head.total_steps != self._total:
            self._ledger.record(total_steps=self._total, finished=False)
        threading.Thread(target=self._watch_for_stall, name="holdfast-stall", daemon=True).start()

    def interval_seconds(self) -> float:
        """How long until the next checkpoint is due."""
        chosen = self._guard.settings.checkpoint_seconds
        return COUNTER_INTERVAL_SECONDS if chosen is None else chosen

    def full_save_seconds(self) -> float | None:
        """What a save from here would take, by what saves have taken; None when none has been measured."""
        return self._guard.durations.p95("persist")

    def prepare(
        self, step: int, *, finished: bool = False, outcome: Outcome | None = None, cause: str | None = None
    ) -> Callable[[], None]:
        """Take what has to be taken now; the returned job makes it durable and commits it, on any thread."""
        ledger = self._ledger
        assert ledger is not None
        row = self._row(outcome, cause)

        def persist() -> None:
            committed = Committed(step=step, attempt=ledger.head.attempt, committed_at=ledger.now())
            ledger.commit(committed, keep=lambda rows: rows[:1], finished=finished, **row)
            log.debug("step %d is committed", step, extra={"action": "checkpoint_committed", "step": step})

        return persist

    def close(self, outcome: Outcome, cause: str | None = None, *, finished: bool | None = None) -> None:
        """Write down how this attempt ended; a failure to do so is told, not raised: the end is certain already."""
        if self._ledger is None:
            return
        try:
            self._ledger.record(finished=finished, **self._row(outcome, cause))
        except HoldfastError as error:
            log.warning(
                "the end of this attempt could not be written down: %s", error, extra={"action": "ledger_failed"}
            )

    def release(self) -> None:
        """Give back threads and connections."""
        self._stop_stall_watch.set()
        if self._store is not None:
            self._store.close()

    def _row(self, outcome: Outcome | None, cause: str | None) -> dict[str, Any]:
        started = self._loop_started or self._guard.clock.monotonic()
        row: dict[str, Any] = {
            "useful_seconds": round(self._guard.clock.monotonic() - started - self.stalled_seconds, 3),
            "save_seconds": round(self.stalled_seconds, 3),
        }
        if outcome is not None:
            assert self._ledger is not None
            row |= {"outcome": outcome, "cause": cause, "ended_at": self._ledger.now()}
        return row

    def _watch_for_stall(self) -> None:
        patience = STALLED_AFTER_INTERVALS * max(self.interval_seconds(), COUNTER_INTERVAL_SECONDS)
        if self._guard.clock.wait(self._stop_stall_watch, patience) or self._ledger is None:
            return
        row = self._ledger.head.row
        if row.last_step < row.first_step and row.outcome is None:
            try:
                self._ledger.record(stalled=True)
            except HoldfastError as error:
                log.debug("stall not recorded: %s", error)


def _fill_in(url: str | None, index: str | None) -> str | None:
    if url is None or "{index}" not in url:
        return url
    if index is None:
        raise UrlError(
            f"the URL {url!r} has {{index}} in it, but JOB_COMPLETION_INDEX is not set",
            help="run it in an Indexed Job, or set the variable",
        )
    return url.replace("{index}", index)
