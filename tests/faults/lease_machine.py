"""Suite H on ownership: who may write a run's head and who holds an item, with lost answers and clocks that jump."""

from __future__ import annotations

import os
import shutil
import tempfile
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from faults.tiers import Lost
from stayfast.batch.queue.protocol import Lease, RetryPolicy
from stayfast.batch.queue.sqlite import LEASE_SECONDS, SqliteQueue
from stayfast.clock import ManualClock
from stayfast.errors import (
    ConflictError,
    LeaseLostError,
    OutcomeUnknownError,
    StayfastError,
    StoreUnavailableError,
    SupersededError,
)
from stayfast.filesystem import Buffer
from stayfast.runtime.run_record.owner import RecordOwner
from stayfast.runtime.run_record.record import RECORD_KEY, AttemptRecord, CheckpointRecord, RunRecord, decode
from stayfast.storage.stores.memory import MemoryStore
from stayfast.storage.stores.protocol import Blob

OWNERS = st.integers(0, 2)
FAULTS = (
    "fine",
    "request lost",
    "answer lost",
    "answer lost, then conflict",
    "late",
    "unavailable",
    "late, then cut off",
)
PLACE = "/dev/shm" if os.path.isdir("/dev/shm") else None


class Wire(MemoryStore):
    """One owner's way to the bucket; what goes wrong next is chosen by the machine."""

    def __init__(self, bucket: MemoryStore, landed: Any) -> None:
        super().__init__()
        self._bucket, self._landed = bucket, landed
        self.next: list[str] = []
        self.cut_off = False
        self.late: list[tuple[bytes, str | None]] = []

    def get(self, key: str, *, offset: int = 0, length: int | None = None) -> Blob:
        if self.cut_off:
            raise StoreUnavailableError("no connection")
        return self._bucket.get(key, offset=offset, length=length)

    def put(self, key: str, data: Buffer, *, if_generation: str | None = None) -> str:
        kind = "request lost" if self.cut_off else self.next.pop(0) if self.next else "fine"
        self.cut_off = self.cut_off or kind.endswith("cut off")
        if kind == "fine":
            return self._apply(key, data, if_generation)
        if kind == "unavailable":
            raise StoreUnavailableError("429")
        if kind == "answer lost, then conflict":
            self._apply(key, data, if_generation)
            raise ConflictError("says a client that wrote it itself")
        if kind == "answer lost":
            try:
                self._apply(key, data, if_generation)
            except ConflictError:
                pass
        if kind.startswith("late"):
            self.late.append((bytes(data), if_generation))
        raise OutcomeUnknownError(kind)

    def _apply(self, key: str, data: Buffer, if_generation: str | None) -> str:
        generation = self._bucket.put(key, data, if_generation=if_generation)
        self._landed(decode(bytes(data)))
        return generation

    def arrive(self) -> None:
        for data, if_generation in self.late:
            try:
                self._apply(RECORD_KEY, data, if_generation)
            except ConflictError:
                pass
        self.late.clear()


class LeaseMachine(RuleBasedStateMachine):
    """Three who would own a run, each with a clock of its own; and three who lease items on one machine."""

    calls = 0

    def __init__(self) -> None:
        super().__init__()
        self.bucket = MemoryStore()
        self.head: RunRecord | None = None
        self.wires = [Wire(self.bucket, self.landed) for _ in range(3)]
        self.clocks = [ManualClock(), ManualClock(), ManualClock()]
        self.ledgers: list[RecordOwner | None] = [None, None, None]
        self.saves = 0
        self.acked: CheckpointRecord | None = None
        self.host = ManualClock()
        self.folder = tempfile.mkdtemp(prefix="stayfast-hl-", dir=PLACE)
        self.queues = [self._open() for _ in range(3)]
        self.queues[0].enqueue([(f"k{number}", "1") for number in range(6)])
        self.expires = [0.0, 0.0, 0.0]
        self.held: list[list[Lease]] = [[], [], []]
        self.generation: dict[str, int] = {}
        self.done: set[str] = set()

    def _open(self) -> SqliteQueue:
        queue = SqliteQueue(f"{self.folder}/q.db", clock=self.host, policy=RetryPolicy(max_deliveries=10_000))
        queue.connection.execute("PRAGMA synchronous=OFF")
        return queue

    # -- the run's head

    def landed(self, head: RunRecord) -> None:
        before, self.head = self.head, head
        if before is not None and head.attempt < before.attempt:
            raise Lost(f"attempt {head.attempt} wrote HEAD after attempt {before.attempt}")
        if before is not None and before.newest is not None and before.newest not in head.checkpoints:
            raise Lost(f"{before.newest.name} was committed and is gone")

    @rule(owner=OWNERS, faults=st.lists(st.sampled_from(FAULTS), max_size=3))
    def claim(self, owner: int, faults: list[str]) -> None:
        type(self).calls += 1
        wire = self.wires[owner]
        wire.next = faults
        ledger = RecordOwner(wire, "run", clock=self.clocks[owner])
        try:
            ledger.claim(AttemptRecord(attempt=0, started_at=ledger.timestamp()))
        except StayfastError:
            return
        finally:
            wire.next, wire.cut_off = [], False
        assert self.head is not None
        assert self.head.attempt == ledger.head.attempt, "claimed, and the head says otherwise"
        assert self.acked is None or self.acked in ledger.head.checkpoints, "a new owner does not know what was saved"
        self.ledgers[owner] = ledger

    @rule(owner=OWNERS, faults=st.lists(st.sampled_from(FAULTS), max_size=3), renews=st.booleans())
    def commit(self, owner: int, faults: list[str], renews: bool) -> None:
        """Commit a checkpoint, or only write the ledger row, as a heartbeat would."""
        type(self).calls += 1
        ledger, wire = self.ledgers[owner], self.wires[owner]
        if ledger is None:
            return
        self.saves += 1
        mine = CheckpointRecord(self.saves, ledger.head.attempt, ledger.timestamp(), inventory_sha256=f"{self.saves:x}")
        wire.next = faults
        try:
            if renews:
                ledger.update_attempt(useful_seconds=float(self.saves))
            else:
                ledger.commit(mine, keep=lambda rows: rows[:3])
        except SupersededError:
            assert self.head is not None
            assert self.head.attempt > ledger.head.attempt, "superseded by nobody"
            self.ledgers[owner] = None
            return
        except StayfastError:
            return
        finally:
            wire.next, wire.cut_off = [], False
        assert self.head is not None
        assert self.head.attempt == ledger.head.attempt, "a stale owner wrote"
        if not renews:
            assert self.head.newest == mine, "acknowledged, and not there"
            self.acked = mine

    @rule(owner=OWNERS)
    def what_was_late_arrives(self, owner: int) -> None:
        type(self).calls += 1
        self.wires[owner].arrive()

    @rule(owner=OWNERS, seconds=st.sampled_from((-600.0, 600.0)))
    def a_clock_jumps(self, owner: int, seconds: float) -> None:
        type(self).calls += 1
        self.clocks[owner].jump_wall(seconds)
        self.host.jump_wall(seconds)

    @invariant()
    def what_was_acknowledged_stays(self) -> None:
        if self.acked is not None:
            head = decode(self.bucket.get(RECORD_KEY).data)
            assert head.newest is not None
            assert head.newest.step >= self.acked.step, "an acknowledged save is gone"

    # -- leases of items

    @rule(owner=OWNERS, limit=st.integers(1, 3))
    def lease(self, owner: int, limit: int) -> None:
        type(self).calls += 1
        now = self.host.monotonic()
        try:
            leases = self.queues[owner].claim(limit)
        except LeaseLostError:
            assert self.expires[owner] <= now, "declared dead before its lease was over"
            self.held[owner], self.expires[owner] = [], 0.0
            return
        for item in leases:
            assert item.key not in self.done
            for other in range(3):
                if other != owner and any(held.key == item.key for held in self.held[other]):
                    assert self.expires[other] <= now, f"{item.key} was taken from an owner whose lease is good"
                    self.held[other] = [held for held in self.held[other] if held.key != item.key]
            assert item.generation > self.generation.get(item.key, 0), "generations only grow"
            self.generation[item.key] = item.generation
        self.held[owner] += leases
        self.expires[owner] = now + LEASE_SECONDS

    @rule(owner=OWNERS)
    def renew(self, owner: int) -> None:
        type(self).calls += 1
        queue = self.queues[owner]
        handles = queue.handles(self.held[owner])
        if handles and not queue.renew(handles):
            self.expires[owner] = self.host.monotonic() + LEASE_SECONDS

    @rule(owner=OWNERS, finish=st.booleans())
    def settle(self, owner: int, finish: bool) -> None:
        type(self).calls += 1
        leases, self.held[owner] = self.held[owner], []
        if not finish:
            self.queues[owner].release(leases)
            return
        for item in self.queues[owner].complete(leases):
            assert self.generation[item.key] == item.generation, "a lease that went to another was acknowledged"
            assert item.key not in self.done, "acknowledged twice"
            self.done.add(item.key)

    @rule(number=st.integers(6, 40))
    def more_items(self, number: int) -> None:
        type(self).calls += 1
        self.queues[0].enqueue([(f"k{number}", "1")])

    @rule(seconds=st.sampled_from((4.0, 8.0, LEASE_SECONDS + 1)))
    def time_passes(self, seconds: float) -> None:
        type(self).calls += 1
        self.host.advance(seconds)

    @rule(owner=OWNERS)
    def an_owner_dies(self, owner: int) -> None:
        """The kernel drops its lock: others need not wait for the lease."""
        type(self).calls += 1
        self.queues[owner]._proof.close()
        self.queues[owner].connection.close()
        self.expires[owner] = 0.0
        self.held[owner] = []
        self.queues[owner] = self._open()

    def teardown(self) -> None:
        for queue in self.queues:
            queue.close()
        shutil.rmtree(self.folder, ignore_errors=True)
