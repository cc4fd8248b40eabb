"""The checkpoint engine: snapshot, persist, restore, verify. Committing is the caller's, through ``HEAD.json``.

::

    snapshot = engine.snapshot(step, state)     # the training loop waits for this, and for nothing else
    persisted = engine.persist(snapshot, 3)     # on a background thread; durable, not yet visible
    ...the caller commits...
    engine.committed(persisted)                 # from now on unchanged parts may be referenced instead of written

One persist at a time, each committed (or given up) before the next begins: a save may reference parts of the newest
committed checkpoint, and retention must never remove them in between.
"""

from __future__ import annotations

import collections
import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from stayfast.clock import Clock, SystemClock
from stayfast.errors import CheckpointError
from stayfast.runtime.checkpoint.cuda_copies import DeviceCopier, PendingCopies, pin_function
from stayfast.runtime.checkpoint.in_place_reader import restore_in_place
from stayfast.runtime.checkpoint.inventory import Inventory, Part, default_algorithm
from stayfast.runtime.checkpoint.layout import PART_BYTES, Layout, LayoutCache
from stayfast.runtime.checkpoint.reader import DamagedFile, build_state, read_all, read_inventory, verify_checkpoint
from stayfast.runtime.checkpoint.sharded_reader import SavedRankState
from stayfast.runtime.checkpoint.snapshot import HostBuffer, HostBufferPool, Snapshot, copy_host_leaves, flatten_state
from stayfast.runtime.checkpoint.writer import CHUNK_BYTES, Content, DurableSnapshot, PartWriter, checkpoint_folder
from stayfast.runtime.run_record.read import newest_readable
from stayfast.runtime.run_record.record import CheckpointRecord, RunRecord
from stayfast.runtime.state.leaf import Leaf
from stayfast.storage.stores.protocol import Store

FIRST_SNAPSHOT_BYTES_PER_SECOND = 1e9
FIRST_PERSIST_BYTES_PER_SECOND = 100e6
REMEMBERED = 8
MEANINGFUL_BYTES = 1 << 20


def default_threads() -> int:
    """Enough to keep a disk or a bucket busy, few enough to leave the cores to the training loop."""
    return max(4, min(16, _cores()))


def _cores() -> int:
    return len(os.sched_getaffinity(0))


class Checkpointer:
    """Saves and restores one run's state in one store; safe to call from the loop and one background thread."""

    def __init__(
        self,
        store: Store,
        *,
        clock: Clock | None = None,
        buffers: int = 2,
        threads: int | None = None,
        part_bytes: int = PART_BYTES,
        algorithm: str | None = None,
        rank: int = 0,
    ) -> None:
        self._store = store
        self._clock = clock or SystemClock()
        self._threads = threads or default_threads()
        self._executor = ThreadPoolExecutor(self._threads, thread_name_prefix="stayfast-engine")
        # Copies have threads of their own: queued behind the writes of the last save they would stall the loop.
        self._copiers = ThreadPoolExecutor(min(self._threads, _cores()), thread_name_prefix="stayfast-copy")
        self._pool = HostBufferPool(buffers, self._copiers)
        self._planner = LayoutCache(part_bytes)
        self._algorithm = algorithm or default_algorithm()
        self._rank = rank
        self._rates = SaveRates()
        self._lock = threading.Lock()
        self._persisting = threading.Lock()
        self._base: Inventory | None = None
        self._in_flight: set[str] = set()
        self._device: DeviceCopier | None = None
        self._last: DurableSnapshot | None = None

    # -- saving

    def snapshot(self, step: int, state: Mapping[str, Any]) -> Snapshot:
        """Copy the state out of the training loop's reach; waits only when every buffer still holds a snapshot."""
        started = self._clock.monotonic()
        leaves, layout = flatten_state(state, self._planner)
        arena = self._pool.acquire()
        try:
            arena.reserve(layout.total)
            copies, unchanged = self._copy_device(leaves, layout, arena)
            copy_host_leaves(leaves, layout, arena, self._copiers)
        except BaseException:
            self._pool.release(arena)
            raise
        seconds = self._clock.monotonic() - started
        self._rates.snapshot_took(layout.total, seconds)
        if copies is None:  # the copy is complete: from here on only the state's description is needed
            for leaf in leaves:
                leaf.value = leaf.address = None
        return Snapshot(step, layout, leaves, arena, self._pool, seconds, copies, unchanged)

    def _copy_device(
        self, leaves: list[Leaf], layout: Layout, arena: HostBuffer
    ) -> tuple[PendingCopies | None, dict[int, Part]]:
        """Start copying what lies on devices; of parts that did not change, the stored ones that they equal."""
        if not any(leaf.address is None and leaf.length for leaf in leaves):
            return None, {}
        torch = sys.modules["torch"]
        arena.pin(pin_function(torch))
        with self._lock:
            last = self._last if self._last is not None and self._last.inventory is self._base else None
        if last is None or last.layout is not layout:
            return self._copier(torch).copy(leaves, layout, arena, {}), {}
        copies = self._copier(torch).copy(leaves, layout, arena, dict(last.unchanged))
        return copies, {number: last.inventory.parts[number] for number in copies.same}

    def _copier(self, torch: Any) -> DeviceCopier:
        with self._lock:
            if self._device is None:
                self._device = DeviceCopier(torch)
            return self._device

    def watch_optimizer(self, thing: Any) -> None:
        """Tell the engine of a tracked object; a torch optimizer will wait on the device for copies under way."""
        torch: Any = sys.modules.get("torch")
        if torch is not None and isinstance(thing, torch.optim.Optimizer):
            self._copier(torch).watch_optimizer(thing)

    def preallocate(self, state: Mapping[str, Any]) -> None:
        """Get (and pin) the memory that snapshots of this state need, ahead of the first one; call it in a thread."""
        leaves, layout = flatten_state(state, self._planner)
        on_device = any(leaf.address is None and leaf.length for leaf in leaves)
        taken = [self._pool.acquire() for _ in range(self._pool.free)]
        for arena in taken:
            try:
                arena.reserve(layout.total)
                if on_device:
                    arena.pin(pin_function(sys.modules["torch"]))
            finally:
                self._pool.release(arena)

    def persist(self, snapshot: Snapshot, attempt: int) -> DurableSnapshot:
        """Make a snapshot durable and release its buffer; after an error the snapshot may be persisted again."""
        folder = checkpoint_folder(snapshot.step, attempt, self._rank)
        with self._persisting:
            self._drop_base_if_uncertain()
            known = self._known_parts()
            if any(known.get(part.content) != part.key for part in snapshot.unchanged_parts.values()):
                raise CheckpointError(
                    "a newer save replaced what this snapshot builds on", help="take another snapshot"
                )
            with self._lock:
                self._in_flight.add(folder)
            try:
                writer = PartWriter(self._store, self._clock, self._algorithm, known, CHUNK_BYTES, self._rank)
                persisted = writer.write(snapshot, attempt, self._executor)
            except BaseException:
                with self._lock:
                    self._in_flight.discard(folder)
                raise
        self._rates.persist_took(persisted.written_bytes, persisted.seconds)
        snapshot.release()
        return persisted

    def mark_committed(self, persisted: DurableSnapshot) -> None:
        """The caller's commit succeeded: later saves may reference these parts."""
        with self._lock:
            self._base = persisted.inventory
            self._last = persisted
            self._in_flight.clear()  # what was uncertain before is listed now, or never will be

    @property
    def unfinished_folders(self) -> frozenset[str]:
        """Folders of saves that are under way or whose commit is not certain: garbage collection leaves them alone."""
        with self._lock:
            return frozenset(self._in_flight)

    @property
    def free_buffers(self) -> int:
        """How many snapshots can be taken now without waiting."""
        return self._pool.free

    def estimate_seconds(self, state_bytes: int) -> tuple[float, float]:
        """Seconds to snapshot and to persist this many bytes, learned from the saves so far."""
        return self._rates.estimate(state_bytes)

    def _drop_base_if_uncertain(self) -> None:
        """After a commit of unknown outcome the head may list other parts than we think, and a prune may end the rest.

        So the next save writes everything, and references nothing until it is committed.
        """
        with self._lock:
            if self._in_flight:
                self._base = self._last = None

    def _known_parts(self) -> dict[Content, str]:
        with self._lock:
            base = self._base
        if base is None or base.algorithm != self._algorithm or base.chunk_bytes != CHUNK_BYTES:
            return {}
        return {part.content: part.key for part in base.parts}

    # -- restoring

    def restore(self, committed: CheckpointRecord, *, into: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """The state of one committed checkpoint; ``CorruptError`` names the file that does not verify.

        ``into`` is a state like the one that was saved: its tensors are filled in place where name, dtype and shape
        agree, and stand in the result. Tensors that lived on a GPU come back on one where there is one.
        """
        _, inventory = read_inventory(self._store, committed)
        if into or (_gpu_here() and any(entry.device for entry in inventory.entries)):
            state = restore_in_place(self._store, inventory, into, self._threads)
        else:
            memory = read_all(self._store, inventory, self._executor)
            state = build_state(inventory, memory)
        with self._lock:
            self._base = inventory
        return state

    def restore_newest(
        self,
        head: RunRecord,
        *,
        into: Mapping[str, Any] | None = None,
        reread: Callable[[], RunRecord | None] | None = None,
        read: Callable[[CheckpointRecord], dict[str, Any]] | None = None,
    ) -> tuple[CheckpointRecord, dict[str, Any]] | None:
        """The newest checkpoint that verifies, or None when the run has none; ``read`` may stand in for ``restore``."""

        def read_one(committed: CheckpointRecord) -> dict[str, Any]:
            if committed.inventory_sha256 is None:
                return {}
            return read(committed) if read is not None else self.restore(committed, into=into)

        return newest_readable(head, read_one, among=f"the committed checkpoints in {self._store.url}", reread=reread)

    def open_saved_rank(self, row: CheckpointRecord) -> SavedRankState:
        """What one rank has saved, to be read piece by piece."""
        return SavedRankState(self._store, row, self._executor)

    def set_base(self, rank: SavedRankState) -> None:
        """Later saves may reference the parts of this one, as after ``restore``."""
        with self._lock:
            self._base = rank.inventory

    def verify(self, committed: CheckpointRecord) -> Iterator[DamagedFile | int]:
        """Read a whole checkpoint: yields the length of every good chunk, and a ``Damage`` for every bad one."""
        return verify_checkpoint(self._store, committed, self._executor)

    def close(self) -> None:
        """Stop the threads and give the memory back."""
        if self._device is not None:
            self._device.unwatch_optimizers()
        self._executor.shutdown(wait=True)
        self._copiers.shutdown(wait=True)
        self._pool.drop()


def _gpu_here() -> bool:
    torch: Any = sys.modules.get("torch")
    return torch is not None and bool(torch.cuda.is_available())


class SaveRates:
    """What a save will take: the slowest of the last few, since a promise to a deadline must hold on a bad day."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._snapshots: collections.deque[tuple[int, float]] = collections.deque(maxlen=REMEMBERED)
        self._persists: collections.deque[tuple[int, float]] = collections.deque(maxlen=REMEMBERED)

    def snapshot_took(self, size: int, seconds: float) -> None:
        with self._lock:
            self._snapshots.append((size, seconds))

    def persist_took(self, written: int, seconds: float) -> None:
        with self._lock:
            self._persists.append((written, seconds))

    def estimate(self, state_bytes: int) -> tuple[float, float]:
        """Seconds to snapshot and seconds to persist a state of this many bytes, all of it changed."""
        with self._lock:
            snapshots = list(self._snapshots)[1:] or list(self._snapshots)  # the first one also paid for its memory
            return (
                _seconds(state_bytes, snapshots, FIRST_SNAPSHOT_BYTES_PER_SECOND),
                _seconds(state_bytes, list(self._persists), FIRST_PERSIST_BYTES_PER_SECOND),
            )


def _seconds(size: int, rows: list[tuple[int, float]], first_rate: float) -> float:
    """Small saves tell the fixed cost, large ones the rate."""
    fixed = max((seconds for done, seconds in rows if done < MEANINGFUL_BYTES), default=0.0)
    rates = [done / seconds for done, seconds in rows if done >= MEANINGFUL_BYTES and seconds > 0]
    if not rates and rows and size < MEANINGFUL_BYTES:
        return fixed
    return fixed + size / min(rates, default=first_rate)
