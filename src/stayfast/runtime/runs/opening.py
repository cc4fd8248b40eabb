"""From a URL to a claimed run: the store, the record that this attempt owns, and the processes that take part."""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING, Any

from stayfast.errors import RunError, StayfastError, UrlError
from stayfast.forks import fork_safe_lock
from stayfast.model.exit_codes import Outcome
from stayfast.runtime.interruption.guard import Guard
from stayfast.runtime.run_record.owner import RecordOwner, check_progress
from stayfast.runtime.run_record.record import AttemptRecord, RunRecord
from stayfast.runtime.runs.coordination import Coordination, SingleProcess
from stayfast.storage.stores.open_store import open_store
from stayfast.storage.stores.precondition_check import check_preconditions

if TYPE_CHECKING:
    from stayfast.runtime.checkpoint.checkpointer import Checkpointer

log = logging.getLogger("stayfast")

_process_lock = fork_safe_lock()
_process: tuple[int, str | None] | None = None  # the process that has a run open, and the URL of that run


class OpenRun:
    """A run as this process holds it. Without an owner nothing is kept: a run without a URL, or one not yet opened."""

    def __init__(
        self, url: str | None, owner: RecordOwner | None = None, coordination: Coordination | None = None
    ) -> None:
        self.url = url
        self.owner = owner
        self.coordination: Coordination = coordination or SingleProcess()
        self.checkpointer: Checkpointer | None = None

    @property
    def record(self) -> RunRecord | None:
        """The run's record as of our last write; None when nothing is kept."""
        return None if self.owner is None else self.owner.head

    @property
    def attempt(self) -> int:
        return 1 if self.owner is None else self.owner.head.attempt

    def check_step_known(self, known: bool, call: str) -> None:
        """A state is saved under the number of its step; without one, nothing could be saved."""
        if self.owner is not None and not known:
            raise RunError(
                f"{call} cannot know which step this is, so nothing could be saved",
                help="loop over run.steps(), or call run.should_stop(step) at the end of every step",
            )

    @property
    def next_step(self) -> int:
        """The first step that no committed checkpoint holds."""
        return 0 if self.owner is None else self.owner.head.next_step

    def is_finished(self, total: int | None) -> bool:
        """Whether an earlier attempt ended the work; a larger ``total_steps`` opens it again."""
        record = self.record
        if record is None or not record.finished:
            return False
        return total is None or record.total_steps is None or total <= record.total_steps

    def open_checkpointer(self, buffers: int) -> Checkpointer:
        """Get ready to save and restore state; a run that tracks nothing does without."""
        from stayfast.runtime.checkpoint.checkpointer import Checkpointer

        assert self.owner is not None
        self.checkpointer = Checkpointer(self.owner.store, buffers=buffers, rank=self.coordination.rank)
        return self.checkpointer

    def close(self) -> None:
        """Give back threads, memory and connections."""
        self.coordination.close()
        if self.checkpointer is not None:
            self.checkpointer.close()
        if self.owner is not None:
            self.owner.store.close()


def open_run(url: str | None, guard: Guard) -> OpenRun:
    """Claim the run: attempt + 1, fenced against every earlier attempt."""
    if url is None:
        return OpenRun(None)
    settings = guard.settings
    store = open_store(url)
    coordination: Coordination = SingleProcess()
    try:
        if url.startswith("file://."):
            url = store.url  # what the record and messages say must hold in every directory
        if settings.rank == 0:
            check_preconditions(store)
        owner = RecordOwner(store, url, clock=guard.clock)
        row = AttemptRecord(
            attempt=0,
            started_at=owner.timestamp(),
            machine=settings.machine,
            zone=settings.zone,
            capacity=settings.capacity,
            usd_per_hour=settings.run_usd_per_hour,
        )
        if settings.world_size > 1:
            from stayfast.runtime.runs.rank_group import RankGroup
            from stayfast.runtime.runs.rank_messages import connect_ranks

            coordination = RankGroup(connect_ranks(settings, guard.clock), guard.board)
        coordination.claim(owner, row, lambda record: _require_progress(owner, record, settings.max_stalled_attempts))
    except BaseException:
        coordination.close()
        store.close()
        raise
    return OpenRun(url, owner, coordination)


def _require_progress(owner: RecordOwner, record: RunRecord, most: int) -> None:
    try:
        check_progress(record, most)
    except StayfastError as error:
        record_end(owner, Outcome.FAILED, type(error).__name__)
        raise


def record_end(
    owner: RecordOwner, outcome: Outcome, cause: str | None, *, finished: bool | None = None, **row: Any
) -> None:
    """Write down how this attempt ended; a failure to do so is logged, not raised: the end is certain already."""
    try:
        owner.update_attempt(finished=finished, outcome=outcome, cause=cause, ended_at=owner.timestamp(), **row)
    except StayfastError as error:
        log.warning("the end of this attempt is not on record: %s", error, extra={"action": "ledger_failed"})


def take_process(url: str | None) -> None:
    """One run at a time in a process; a forked child may open one of its own."""
    global _process
    with _process_lock:
        if _process is not None and _process[0] == os.getpid():
            raise RunError(
                f"a run is open already in this process ({_process[1] or 'without a URL'})",
                help="end it before opening another, one after another is fine",
            )
        _process = os.getpid(), url


def free_process() -> None:
    """The run of this process has ended."""
    global _process
    with _process_lock:
        _process = None


def fill_in_index(url: str | None, index: str | None) -> str | None:
    """Put the completion index of an Indexed Job in place of ``{index}``."""
    if url is None or "{index}" not in url:
        return url
    if index is None:
        raise UrlError(
            f"the URL {url!r} has {{index}} in it, but JOB_COMPLETION_INDEX is not set",
            help="run it in an Indexed Job, or set the variable",
        )
    return url.replace("{index}", index)
