"""The newest checkpoint that every process of the run can read, loaded into what is tracked."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from stayfast.errors import CorruptError, StateMismatchError, UsageError
from stayfast.runtime.interruption.guard import Guard
from stayfast.runtime.run_record.owner import RecordOwner
from stayfast.runtime.run_record.record import CheckpointRecord
from stayfast.runtime.runs.coordination import Coordination
from stayfast.runtime.runs.opening import OpenRun
from stayfast.runtime.runs.options import RunOptions
from stayfast.runtime.state.tracked_state import RNG, TrackedState
from stayfast.settings import Settings

if TYPE_CHECKING:
    from stayfast.runtime.checkpoint.checkpointer import Checkpointer
    from stayfast.runtime.state.step_digests import StepDigests

log = logging.getLogger("stayfast")


def restore_run(opened: OpenRun, tracked: TrackedState, options: RunOptions, guard: Guard) -> int:
    """Load what was committed; returns the first step to run."""
    owner = opened.owner
    if owner is None:
        return 0
    started = guard.clock.monotonic()
    checkpointer = _open_checkpointer(opened, tracked, options) if tracked else None
    newest = owner.head.newest
    if newest is None:
        return 0
    if checkpointer is None:
        _warn_nothing_tracked(newest, options)
        committed: CheckpointRecord | None = newest
    else:
        committed = _restore_state(owner, opened.coordination, checkpointer, tracked, options)
    if committed is None:
        return 0
    if committed != newest:
        (owner.resume_from if opened.coordination.is_leader else owner.follow)(committed)
    guard.durations.add("restore", guard.clock.monotonic() - started, step=committed.step)
    log.info("attempt %d resumes at step %d", opened.attempt, committed.step + 1, extra={"action": "resumed"})
    return committed.step + 1


def _open_checkpointer(opened: OpenRun, tracked: TrackedState, options: RunOptions) -> Checkpointer:
    if options.rng:
        tracked.add_generators()
    checkpointer = opened.open_checkpointer(options.buffers)
    for thing in tracked.things:
        checkpointer.watch_optimizer(thing)
    return checkpointer


def _restore_state(
    owner: RecordOwner,
    coordination: Coordination,
    checkpointer: Checkpointer,
    tracked: TrackedState,
    options: RunOptions,
) -> CheckpointRecord | None:
    def read(committed: CheckpointRecord) -> dict[str, Any]:
        state: dict[str, Any] = {}
        problem = None
        try:
            state = _read(committed, checkpointer, tracked, coordination)
        except CorruptError as error:
            problem = str(error)
        problem = coordination.agree_on_restore(committed, problem)
        if problem is not None:
            raise CorruptError(problem)
        return state

    found = checkpointer.restore_newest(owner.head, read=read, reread=lambda: coordination.reread(owner))
    if found is None:
        return None
    committed, state = found
    tracked.load(state, strict=options.strict)
    return committed


def _read(
    committed: CheckpointRecord, checkpointer: Checkpointer, tracked: TrackedState, coordination: Coordination
) -> dict[str, Any]:
    """This rank's state. Sharded things load themselves here, from all ranks that saved, however many."""
    rank, size = coordination.rank, coordination.size
    rows, sharded = committed.ranks, tracked.sharded
    if len(rows) != size and not sharded:
        raise StateMismatchError(
            f"checkpoint {committed.name} was saved by {len(rows)} ranks, this world has {size}",
            help="start as many ranks, or track sharded state through stayfast.integrations.dcp.sharded",
        )
    if not sharded:
        return checkpointer.restore(rows[rank], into=tracked.present())
    ranks = [checkpointer.open_saved_rank(row) for row in rows]
    own = ranks[min(rank, len(ranks) - 1)]
    state = {name: own.load_object(name) for name in own.names if name not in sharded}
    if rank >= len(ranks):
        state.pop(RNG, None)  # two ranks must not draw the same numbers
    for name, thing in sharded.items():
        thing.load_ranks(name, ranks)
    if len(ranks) == size:
        checkpointer.set_base(own)
    return state


def _warn_nothing_tracked(newest: CheckpointRecord, options: RunOptions) -> None:
    if newest.inventory_sha256 is not None and options.strict:
        raise UsageError(
            f"checkpoint {newest.name} holds state, but this program tracks nothing",
            help="call run.track(...) before the first step, or pass strict=False to resume the counter alone",
        )
    log.warning(
        "nothing is tracked: only the step counter resumes, at step %d; run.track(model=...) keeps state",
        newest.step + 1,
        extra={"action": "nothing_tracked"},
    )


def open_step_digests(settings: Settings, tracked: TrackedState) -> StepDigests | None:
    """Where every step leaves its digests, if that was asked for."""
    if settings.fingerprints is None:
        return None
    from stayfast.runtime.state.step_digests import StepDigests

    return StepDigests(settings.fingerprints, settings.rank, tracked.values)
