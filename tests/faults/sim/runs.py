"""The life of a run: trainers that overlap, readers, prunes from outside; and what must hold at every instant."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from faults import subject
from faults.sim.schedule import Process, Scheduler, SimClock
from faults.tiers import Lost
from stayfast.clock import Clock
from stayfast.errors import CorruptError, OutcomeUnknownError, StayfastError, StoreError, SupersededError
from stayfast.model.exit_codes import Outcome
from stayfast.runtime.checkpoint import inventory as inventory_format
from stayfast.runtime.checkpoint.cleanup import delete_unreferenced
from stayfast.runtime.checkpoint.inventory import digest_named
from stayfast.runtime.checkpoint.policies import KeepLast, apply_retention
from stayfast.runtime.checkpoint.reader import matches_record
from stayfast.runtime.run_record import commit_protocol
from stayfast.runtime.run_record.commit_protocol import read_head, run_protocol
from stayfast.runtime.run_record.owner import RecordOwner
from stayfast.runtime.run_record.record import RECORD_KEY, AttemptRecord, CheckpointRecord, RunRecord
from stayfast.storage.stores.protocol import Store

State = dict[str, Any]
Read = Callable[[str], bytes | None]
FLIPS = (b"even" * 1024, b"odd " * 1024)  # one part of exactly this content, which comes back


class Oracle:
    """Knows every state that was ever saved, and looks at each write of HEAD and each delete as it lands."""

    def __init__(self, read: Read, exists: Callable[[str], bool]) -> None:
        self.read, self.exists = read, exists
        self.states: dict[str, tuple[int, int, State]] = {}  # by sha256 of the inventory: step, attempt, state
        self.head: RunRecord | None = None
        self.needs: dict[str, set[str]] = {}  # the keys of every listed checkpoint, by sha256
        self.needed: set[str] = set()
        self.owners: dict[int, str] = {}  # who claimed which attempt
        self.landed: dict[str, int] = {}  # when each save first stood at the top of HEAD
        self.acked = -1  # of the newest acknowledged save, when that was
        self.claimed = 0  # the newest acknowledged attempt
        self._good: set[str] = set()  # parts whose bytes were looked at
        self._known: dict[str, tuple[str, inventory_format.Inventory]] = {}

    def saving(self, sha256: str, step: int, attempt: int, state: State) -> None:
        self.states[sha256] = (step, attempt, state)

    def acknowledged(self, sha256: str) -> None:
        step, attempt, _ = self.states[sha256]
        if sha256 not in self.landed or self.newest_landed() < self.landed[sha256]:
            raise Lost(f"step {step} of attempt {attempt} was acknowledged and HEAD does not say so")
        self.acked = max(self.acked, self.landed[sha256])

    def newest_landed(self) -> int:
        """When the save at the top of HEAD came there."""
        newest = self.head.newest if self.head else None
        return -1 if newest is None else self.landed[newest.inventory_sha256 or ""]

    # -- told by the world

    def named(self, key: str, writer: str) -> None:
        if key == RECORD_KEY:
            data = self.read(key)
            assert data is not None
            self.head_landed(commit_protocol.decode(data), writer)

    def gone(self, key: str) -> None:
        if key == RECORD_KEY:
            raise Lost("HEAD was deleted")
        if key in self.needed:
            self.look()  # one of two equal inventories may go: the answer to a put was lost and it was sent again

    def head_landed(self, head: RunRecord, writer: str) -> None:
        before, self.head = self.head, head
        if before is not None:
            if head.attempt < before.attempt:
                raise Lost(f"attempt {head.attempt} wrote HEAD after attempt {before.attempt} had")
            if before.newest and (head.newest is None or head.newest.step < before.newest.step):
                raise Lost(f"HEAD went back from step {before.newest.step} to {head.newest}")
            if before.newest and head.newest != before.newest and head.newest and head.newest.attempt != head.attempt:
                raise Lost(f"attempt {head.attempt} lists {head.newest.name} as its own")
        if self.owners.setdefault(head.attempt, writer) != writer:
            raise Lost(f"{writer} wrote HEAD of attempt {head.attempt}, which {self.owners[head.attempt]} claimed")
        if head.newest:
            self.landed.setdefault(head.newest.inventory_sha256 or "", len(self.landed))
        self.look()

    def look(self) -> None:
        """Everything that HEAD lists is there, whole, and what was saved."""
        self.needs = (
            {row.inventory_sha256 or "": self._keys_of(row) for row in self.head.checkpoints} if self.head else {}
        )
        self.needed = set().union(*self.needs.values())

    def _keys_of(self, row: CheckpointRecord) -> set[str]:
        sha256 = row.inventory_sha256 or ""
        if sha256 not in self.states:
            raise Lost(f"HEAD lists {row.name}, which nobody saved")
        known = self._known.get(sha256)
        if known is None or not self.exists(known[0]):
            known = self._known[sha256] = self._inventory(row)
        for part in known[1].parts:
            if not self.exists(part.key):
                raise Lost(f"HEAD lists {row.name}, and {part.key} is not there")
            if part.key not in self._good:
                data = self.read(part.key) or b""
                if len(data) != part.length or digest_named(known[1].algorithm)(data) != part.chunks[0]:
                    raise Lost(f"HEAD lists {row.name}, and {part.key} is not what was saved")
                self._good.add(part.key)
        return {known[0], *(part.key for part in known[1].parts)}

    def _inventory(self, row: CheckpointRecord) -> tuple[str, inventory_format.Inventory]:
        stem = f"checkpoints/{row.folder}/inventory"
        for name in (f"{stem}.json", *(f"{stem}.{number}.json" for number in range(1, 20))):
            data = self.read(name)
            if data is not None and matches_record(data, row):
                return name, inventory_format.decode(data, where=name)
        raise Lost(f"HEAD lists {row.name}, and its inventory is not there")

    def power_came_back(self) -> None:
        """HEAD is the newest acknowledged one or newer, and all of it is there."""
        self._good.clear()
        self._known.clear()
        data = self.read(RECORD_KEY)
        self.head = None if data is None else commit_protocol.decode(data)
        if self.newest_landed() < self.acked:
            raise Lost(f"save {self.acked} was acknowledged; after the power cut HEAD has {self.newest_landed()}")
        if (self.head.attempt if self.head else 0) < self.claimed:
            raise Lost(f"attempt {self.claimed} had claimed the run; after the power cut it is {self.head}")
        last = self.head.attempt if self.head else 0
        self.owners = {attempt: name for attempt, name in self.owners.items() if attempt <= last}
        self.look()

    def check_restored(self, row: CheckpointRecord, state: State, at_least: int) -> None:
        step, attempt, saved = self.states[row.inventory_sha256 or ""]
        if (row.step, row.attempt) != (step, attempt) or state != saved:
            raise Lost(f"{row.name} was restored with other bytes than were saved")
        if step < at_least:
            raise Lost(f"step {step} was restored although {at_least} was committed")


class Owner:
    """One attempt of a run: claims, restores, saves and prunes as ``stayfast.run`` does, and tells the oracle."""

    def __init__(self, store: Store, clock: Clock, oracle: Oracle, keep: int) -> None:
        self.store, self.clock, self.oracle = store, clock, oracle
        self.keep = KeepLast(keep)
        self.ledger = RecordOwner(store, "run", clock=clock)

    def claim(self) -> None:
        self.ledger.claim(AttemptRecord(attempt=0, started_at=self.ledger.timestamp()))
        self.number = self.ledger.head.attempt
        self.oracle.claimed = max(self.oracle.claimed, self.number)
        self.engine = subject.make_engine(self.store, self.clock, inline=True)

    def restore(self) -> int:
        """The step to go on after; -1 when there is nothing yet."""
        head = self.ledger.head
        found = self.engine.restore_newest(head, reread=self.reread)
        if found is None:
            if head.newest is not None:
                raise Lost("there are checkpoints and nothing was restored")
            return -1
        assert head.newest is not None
        self.oracle.check_restored(found[0], found[1], head.newest.step)
        if found[0] != head.newest:
            self.ledger.resume_from(found[0])
        return found[0].step

    def reread(self) -> RunRecord | None:
        held = run_protocol(read_head(), self.store, self.clock)
        return None if held is None else held.head

    def save(self, step: int, state: State) -> str:
        """Acknowledged once this returns."""
        snapshot = self.engine.snapshot(step, state)
        try:
            persisted = self.engine.persist(snapshot, self.number)
        except BaseException as error:
            snapshot.release()
            if isinstance(error, Exception):
                self.ledger.check_owner()
            raise
        self.oracle.saving(persisted.inventory_sha256, step, self.number, state)
        row = CheckpointRecord(step, self.number, self.ledger.timestamp(), persisted.size, persisted.inventory_sha256)
        self.ledger.commit(row, keep=lambda rows: apply_retention(self.keep, rows))
        self.engine.mark_committed(persisted)
        self.oracle.acknowledged(persisted.inventory_sha256)
        return persisted.inventory_sha256

    def prune(self) -> None:
        run_protocol(delete_unreferenced(self.number, self.engine.unfinished_folders), self.store, self.clock)

    def check_superseded(self) -> None:
        """To be asked when told so: somebody else must have claimed the run."""
        head = self.oracle.head
        if head is None or head.attempt <= self.number:
            raise Lost(f"attempt {self.number} was told that it is superseded, and nobody else has claimed the run")


def make_state(rng: random.Random, step: int, attempt: int) -> State:
    """Two parts that never change, one that changes back and forth, one that is always new."""
    return {
        "frozen": subject.FROZEN,
        "flip": rng.choice(FLIPS),
        "leaf": b"%d/%d:" % (step, attempt) + rng.randbytes(64),
    }


class Trainer(Owner):
    """An attempt that saves in its loop until it is done, superseded, or dead."""

    def __init__(self, scheduler: Scheduler, process: Process, store: Store, oracle: Oracle, keep: int) -> None:
        super().__init__(store, SimClock(scheduler, process), oracle, keep)
        self.scheduler, self.process = scheduler, process
        self.rng = scheduler.order
        self.finished = False
        self.end = "running"

    def live(self, saves: int) -> None:
        try:
            self._live(saves)
        except SupersededError:
            self.end = "superseded"
            self.check_superseded()
        except StayfastError as error:
            self.end = type(error).__name__
            if isinstance(error, CorruptError):
                raise Lost(f"{self.process.name}: {error}") from error
        self.scheduler.log(f"ends: {self.end}")

    def _live(self, saves: int) -> None:
        self.claim()
        step = self.restore()
        for _ in range(saves):
            step += self.rng.choice((0, 1, 1, 1)) if step >= 0 and self.number > 1 else 1
            self._save(step)
            if self.rng.random() < 0.3:
                self.clock.sleep(self.rng.choice((0.1, 5.0)))
        self.ledger.update_attempt(outcome=Outcome.FINISHED, ended_at=self.ledger.timestamp())
        self.end, self.finished = "finished", True

    def _save(self, step: int) -> None:
        """A failed save is not acknowledged and the loop goes on; a superseded attempt leaves."""
        try:
            self.save(step, make_state(self.rng, step, self.number))
        except SupersededError:
            raise
        except StoreError as error:
            self.scheduler.log(f"save of step {step} failed: {type(error).__name__}")
            return
        self.scheduler.log(f"saved step {step}")
        if self.rng.random() < 0.7:
            try:
                self.prune()
            except StoreError as error:
                self.scheduler.log(f"pruning stopped: {type(error).__name__}")


def read_from_outside(process: Process, scheduler: Scheduler, store: Store, oracle: Oracle) -> None:
    """Somebody who owns nothing restores the newest: he gets it, or a newer one, whatever is pruned meanwhile."""
    clock = SimClock(scheduler, process)

    def reread() -> RunRecord | None:
        held = run_protocol(read_head(), store, clock)
        return None if held is None else held.head

    try:
        head = reread()
        if head is None or head.newest is None:
            return
        engine = subject.make_engine(store, clock, inline=True)
        found = engine.restore_newest(head, reread=reread)
    except CorruptError as error:
        raise Lost(f"{process.name}: a part vanished under a restore: {error}") from error
    except StoreError as error:
        scheduler.log(f"reading failed: {type(error).__name__}")
        return
    if found is None:
        raise Lost("there are checkpoints and nothing was restored")
    oracle.check_restored(found[0], found[1], head.newest.step)
    scheduler.log(f"restored step {found[0].step}")


def prune_from_outside(process: Process, scheduler: Scheduler, store: Store) -> None:
    """``stayfast checkpoints prune``."""
    try:
        run_protocol(delete_unreferenced(None), store, SimClock(scheduler, process))
    except (StoreError, OutcomeUnknownError) as error:
        scheduler.log(f"pruning failed: {type(error).__name__}")
