"""What is put under fault: an attempt that claims, saves and prunes, and a restore, all of it the product's own."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future
from typing import Any

from stayfast.clock import Clock, ManualClock
from stayfast.runtime.checkpoint.checkpointer import Checkpointer
from stayfast.runtime.checkpoint.cleanup import CleanupResult, delete_unreferenced
from stayfast.runtime.checkpoint.policies import KeepLast, apply_retention
from stayfast.runtime.checkpoint.snapshot import HostBufferPool
from stayfast.runtime.run_record.commit_protocol import read_head, run_protocol
from stayfast.runtime.run_record.owner import RecordOwner
from stayfast.runtime.run_record.record import AttemptRecord, CheckpointRecord
from stayfast.storage.stores.protocol import Store

State = dict[str, Any]
PART_BYTES = 4096
FROZEN = bytes(range(256)) * 32  # exactly two parts that never change: later saves refer to them


class InlineExecutor(Executor):
    """Does the work at once: the same operations in an order that a seed replays."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except BaseException as error:
            future.set_exception(error)
            if not isinstance(error, Exception):
                raise
        return future

    def map(
        self, fn: Callable[..., Any], *iterables: Iterable[Any], timeout: float | None = None, chunksize: int = 1
    ) -> Iterator[Any]:
        return map(fn, *iterables)


INLINE = InlineExecutor()


def make_engine(store: Store, clock: Clock, *, inline: bool) -> Checkpointer:
    """Small parts, so that a small state has several."""
    engine = Checkpointer(store, clock=clock, threads=2, part_bytes=PART_BYTES)
    if inline:
        engine._executor = INLINE  # type: ignore[assignment]
        engine._pool = HostBufferPool(2, INLINE)
    return engine


def make_state(rng: random.Random, step: int, *, parts: int = 2) -> State:
    """Values that name their step, so that a mix of two saves can never pass for either."""
    state: State = {"frozen": FROZEN, "step": step}
    for number in range(parts):
        state[f"leaf-{number}"] = b"%d/%d:" % (step, number) + rng.randbytes(rng.randint(4100, 5000))
    return state


class Attempt:
    """One process life: claims the run when made."""

    def __init__(self, store: Store, *, keep: int = 2, inline: bool = False, clock: Clock | None = None) -> None:
        self.store = store
        self.keep = KeepLast(keep)
        self.clock = clock or ManualClock()
        self.ledger = RecordOwner(store, "run", clock=self.clock)
        self.ledger.claim(AttemptRecord(attempt=0, started_at=self.ledger.timestamp()))
        self.engine = make_engine(store, self.clock, inline=inline)

    @property
    def number(self) -> int:
        return self.ledger.head.attempt

    def restore(self) -> tuple[int, State] | None:
        """Where this attempt resumes."""
        found = self.engine.restore_newest(self.ledger.head)
        return None if found is None else (found[0].step, found[1])

    def save(self, step: int, state: State) -> None:
        """Acknowledged once this returns."""
        snapshot = self.engine.snapshot(step, state)
        try:
            persisted = self.engine.persist(snapshot, self.number)
        except BaseException as error:
            snapshot.release()
            if isinstance(error, Exception):
                self.ledger.check_owner()
            raise
        row = CheckpointRecord(step, self.number, self.ledger.timestamp(), persisted.size, persisted.inventory_sha256)
        self.ledger.commit(row, keep=lambda rows: apply_retention(self.keep, rows))
        self.engine.mark_committed(persisted)

    def prune(self) -> CleanupResult:
        """Remove what no kept checkpoint needs."""
        return run_protocol(delete_unreferenced(self.number, self.engine.unfinished_folders), self.store, self.clock)

    def close(self) -> None:
        self.engine.close()


def restore_all(store: Store) -> list[tuple[int, State]]:
    """Every checkpoint that the head lists, newest first; ``CorruptError`` when one of them is not whole."""
    clock = ManualClock()
    held = run_protocol(read_head(), store, clock)
    if held is None:
        return []
    engine = make_engine(store, clock, inline=True)
    return [(row.step, engine.restore(row)) for row in held.head.checkpoints]
