"""What a run keeps beyond its counter: the tracked things, and the engine that carries them to the store and back.

The engine is loaded when the first thing is tracked; a run that tracks nothing needs none of it.
"""

from __future__ import annotations

import logging
import sys
import threading
from typing import TYPE_CHECKING, Any

from stayfast.errors import CorruptError, StateMismatchError, UsageError
from stayfast.runtime.run_record.record import CheckpointRecord
from stayfast.runtime.runs.options import RunOptions
from stayfast.storage.stores.protocol import Store

if TYPE_CHECKING:
    from stayfast.runtime.checkpoint.checkpointer import Checkpointer
    from stayfast.runtime.checkpoint.snapshot import Snapshot
    from stayfast.runtime.checkpoint.writer import DurableSnapshot
    from stayfast.runtime.run_record.owner import RecordOwner
    from stayfast.runtime.runs.coordination import Coordination
    from stayfast.runtime.state.tracked_state import TrackedObject

log = logging.getLogger("stayfast")

RNG = "~rng"
"""The name of the global generators; no keyword argument can be spelt like that."""


class State:
    """The tracked things of one run."""

    def __init__(self, options: RunOptions, rank: int = 0) -> None:
        self._options = options
        self._rank = rank
        self._tracked: dict[str, TrackedObject] = {}
        self._engine: Checkpointer | None = None
        self._size = 0

    @property
    def exists(self) -> bool:
        """Whether anything is tracked."""
        return bool(self._tracked)

    def track(self, things: dict[str, Any]) -> None:
        """Add things by name; a name is used once."""
        from stayfast.runtime.state.tracked_state import make_tracked

        fresh = {name: make_tracked(name, thing) for name, thing in things.items()}
        for name in fresh:
            if name in self._tracked:
                raise UsageError(f"{name} is tracked already", help="give each thing a name of its own")
        self._tracked |= fresh

    def open(self, store: Store) -> None:
        """Get ready to save and restore; the generators join when something else is tracked."""
        if not self._tracked or self._engine is not None:
            return
        from stayfast.runtime.checkpoint.checkpointer import Checkpointer
        from stayfast.runtime.state.tracked_state import GlobalRandomState, make_tracked

        if self._options.rng:
            self._tracked[RNG] = make_tracked(RNG, GlobalRandomState())
        self._engine = Checkpointer(store, buffers=self._options.buffers, rank=self._rank)
        for item in self._tracked.values():
            self._engine.watch_optimizer(item.thing)

    def warm_up(self) -> None:
        """Get the memory for snapshots ahead of the first one, off the loop's time; called once, after a step."""
        if self._engine is None:
            return
        from stayfast.runtime.state.tracked_state import collect_states

        state = collect_states(self._tracked)
        threading.Thread(target=self._engine.preallocate, args=(state,), name="stayfast-memory", daemon=True).start()

    def restore(self, owner: RecordOwner, coordination: Coordination) -> CheckpointRecord | None:
        """Load the newest checkpoint that every rank can read; returns which, None when there is none."""
        newest = owner.head.newest
        if newest is None:
            return None
        if self._engine is None:
            self._nothing_tracked(newest)
            return newest

        def read(committed: CheckpointRecord) -> dict[str, Any]:
            state, problem = {}, None
            try:
                state = self._read(committed, rank=coordination.rank, size=coordination.size)
            except CorruptError as error:
                problem = str(error)
            problem = coordination.agree_on_restore(committed, problem)
            if problem is not None:
                raise CorruptError(problem)
            return state

        found = self._engine.restore_newest(owner.head, read=read, reread=lambda: coordination.reread(owner))
        if found is None:
            return None
        committed, state = found
        self._load(state, committed)
        return committed

    def _read(self, committed: CheckpointRecord, *, rank: int, size: int) -> dict[str, Any]:
        """This rank's state. Sharded things load themselves here, from all ranks that saved, however many."""
        assert self._engine is not None
        rows = committed.ranks
        sharded = {name: item.thing for name, item in self._tracked.items() if hasattr(item.thing, "load_ranks")}
        if len(rows) != size and not sharded:
            raise StateMismatchError(
                f"checkpoint {committed.name} was saved by {len(rows)} ranks, this world has {size}",
                help="start as many ranks, or track sharded state through stayfast.integrations.dcp.sharded",
            )
        if not sharded:
            return self._engine.restore(rows[rank], into=self._present())
        ranks = [self._engine.open_saved_rank(row) for row in rows]
        own = ranks[min(rank, len(ranks) - 1)]
        state = {name: own.load_object(name) for name in own.names if name not in sharded}
        if rank >= len(ranks):
            state.pop(RNG, None)  # two ranks must not draw the same numbers
        for name, thing in sharded.items():
            thing.load_ranks(name, ranks)
        if len(ranks) == size:
            self._engine.set_base(own)
        return state

    def _present(self) -> dict[str, Any] | None:
        """What is there now: tensors are filled in place where they fit, without a second copy on the way.

        Pairs of functions are not asked: they may have nothing to give before they were given a state.
        """
        if "torch" not in sys.modules:
            return None
        from stayfast.runtime.state.tracked_state import collect_states

        return collect_states({name: item for name, item in self._tracked.items() if item.thing is not None})

    def _load(self, state: dict[str, Any], committed: CheckpointRecord) -> None:
        from stayfast.runtime.state.tracked_state import load_states

        wanted = {name: item for name, item in self._tracked.items() if not hasattr(item.thing, "load_ranks")}
        if RNG not in state or not self._options.rng:  # an older checkpoint, or asked to leave the generators alone
            state.pop(RNG, None)
            wanted.pop(RNG, None)
        load_states(wanted, state, strict=self._options.strict)
        self._size = committed.size

    def _nothing_tracked(self, newest: CheckpointRecord) -> None:
        if newest.inventory_sha256 is not None and self._options.strict:
            raise UsageError(
                f"checkpoint {newest.name} holds state, but this program tracks nothing",
                help="call run.track(...) before the first step, or pass strict=False to resume the counter alone",
            )
        log.warning(
            "nothing is tracked: only the step counter resumes, at step %d; run.track(model=...) keeps state",
            newest.step + 1,
            extra={"action": "nothing_tracked"},
        )

    def snapshot(self, step: int) -> Snapshot | None:
        """Copy everything out of the loop's reach; None when nothing is tracked."""
        if self._engine is None:
            return None
        from stayfast.runtime.state.tracked_state import collect_states

        snapshot = self._engine.snapshot(step, collect_states(self._tracked))
        self._size = snapshot.size
        return snapshot

    def values(self) -> dict[str, Any]:
        """What every tracked thing says of itself now; the generators are left out."""
        return {name: item.get() for name, item in self._tracked.items() if name != RNG}

    def persist(self, snapshot: Snapshot, attempt: int) -> DurableSnapshot:
        """Make it durable, on any thread."""
        assert self._engine is not None
        try:
            return self._engine.persist(snapshot, attempt)
        except BaseException:
            snapshot.release()
            raise

    def committed(self, persisted: DurableSnapshot) -> None:
        """Later saves may refer to these parts."""
        assert self._engine is not None
        self._engine.mark_committed(persisted)

    @property
    def in_flight(self) -> frozenset[str]:
        """Folders that garbage collection has to leave alone."""
        return frozenset() if self._engine is None else self._engine.unfinished_folders

    def save_seconds(self) -> float | None:
        """What a full save from here would take, learned from the saves so far; None before the first."""
        if self._engine is None or not self._size:
            return None
        return sum(self._engine.estimate_seconds(self._size))

    def close(self) -> None:
        """Give threads and memory back."""
        if self._engine is not None:
            self._engine.close()
