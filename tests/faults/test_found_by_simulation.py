"""Defects that the simulator or the machines found in the product, each by the shortest story that shows it."""

from __future__ import annotations

import fcntl
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from faults import subject
from faults.fragile_disk import FragileDisk
from faults.memory_fs import Crash
from stayfast.batch.queue.sqlite import SqliteQueue
from stayfast.clock import ManualClock
from stayfast.errors import OutcomeUnknownError, QueueUnavailableError, StoreUnavailableError
from stayfast.filesystem import Buffer
from stayfast.runtime.checkpoint.cleanup import delete_unreferenced
from stayfast.runtime.run_record.commit_protocol import run_protocol
from stayfast.runtime.run_record.record import RECORD_KEY
from stayfast.storage.stores.file import FileStore
from stayfast.storage.stores.memory import MemoryStore
from stayfast.storage.stores.protocol import Blob, Entry

EVEN, ODD = b"even" * 1024, b"odd " * 1024


class MoodyStore(MemoryStore):
    """Loses the answers to commits, or lists nothing new."""

    lose_commits = False
    stale = False
    lose_inventories = 0

    def get(self, key: str, *, offset: int = 0, length: int | None = None) -> Blob:
        if self.lose_commits and key == RECORD_KEY:
            raise StoreUnavailableError("unreachable")
        return super().get(key, offset=offset, length=length)

    def put(self, key: str, data: Buffer, *, if_generation: str | None = None) -> str:
        generation = super().put(key, data, if_generation=if_generation)
        if self.lose_commits and key == RECORD_KEY:
            raise OutcomeUnknownError("no answer")
        if self.lose_inventories and key.endswith("inventory.json"):
            self.lose_inventories -= 1
            self.delete(key)
            super().put(key, b"of an earlier, failed save")
            raise OutcomeUnknownError("no answer")
        return generation

    def keys(self, prefix: str = "") -> Iterator[Entry]:
        return iter(()) if self.stale else super().keys(prefix)


def state(flip: bytes, step: int) -> dict[str, object]:
    return {"frozen": subject.FROZEN, "flip": flip, "leaf": b"%d" % step}


def test_a_save_after_an_unknown_commit_refers_to_nothing_that_may_be_pruned() -> None:
    """The commit of step 1 is there although nobody heard of it, so step 0 is not listed any more and its parts may go;
    step 2 has the content of step 0 again and must not refer to them."""
    store = MoodyStore()
    attempt = subject.Attempt(store, keep=1, inline=True)
    attempt.save(0, state(EVEN, 0))
    store.lose_commits = True
    with pytest.raises(OutcomeUnknownError):
        attempt.save(1, state(ODD, 1))
    store.lose_commits = False
    run_protocol(delete_unreferenced(None), store, ManualClock())
    attempt.save(2, state(EVEN, 2))
    assert subject.restore_all(store) == [(2, state(EVEN, 2))]
    attempt.save(3, state(EVEN, 3))
    attempt.prune()
    kept = [entry.key for entry in store.keys("checkpoints/") if entry.key.endswith(".bin")]
    assert sum("000000000003" in key for key in kept) == 1, "once it is certain again, unchanged parts are referenced"
    assert subject.restore_all(store) == [(3, state(EVEN, 3))]


def test_a_late_listing_does_not_make_a_checkpoint_look_damaged() -> None:
    store = MoodyStore()
    attempt = subject.Attempt(store, keep=1, inline=True)
    store.lose_inventories = 1
    attempt.save(0, state(EVEN, 0))
    store.stale = True
    assert subject.restore_all(store) == [(0, state(EVEN, 0))]


@pytest.mark.parametrize("seed", range(8))
def test_a_prune_makes_durable_what_it_has_read(seed: int) -> None:
    """The owner dies between the rename and the sync of the directory. Whoever prunes sees the new head, and must not
    delete what the old one needs before the new one is certain to survive a power cut."""
    disk = FragileDisk()
    clock = ManualClock()
    attempt = subject.Attempt(FileStore("/data/run", fs=disk, clock=clock), keep=1, inline=True, clock=clock)
    attempt.save(0, state(EVEN, 0))
    disk.die_after_naming = "/data/run/HEAD.json"
    with pytest.raises(Crash):
        attempt.save(1, state(ODD, 1))
    disk.die_after_naming = ""
    run_protocol(delete_unreferenced(None), FileStore("/data/run", fs=disk, clock=clock), clock)
    disk.cut(random.Random(seed))
    found = subject.restore_all(FileStore("/data/run", fs=disk, clock=clock))
    assert found == [(1, state(ODD, 1))]


class LateStore(MoodyStore):
    """A commit that stays on the wire until the next one is sent."""

    def __init__(self) -> None:
        super().__init__()
        self.late: list[tuple[bytes, str | None]] = []
        self.hold_back = False

    def put(self, key: str, data: Buffer, *, if_generation: str | None = None) -> str:
        if key == RECORD_KEY and self.hold_back:
            self.late.append((bytes(data), if_generation))
            self.hold_back, self.lose_commits = False, True
            raise OutcomeUnknownError("no answer")
        if key == RECORD_KEY and self.lose_commits:
            raise OutcomeUnknownError("no answer")
        for old, generation in self.late if key == RECORD_KEY else ():
            MemoryStore.put(self, RECORD_KEY, old, if_generation=generation)
            self.late = []
        return super().put(key, data, if_generation=if_generation)


def test_nobody_is_superseded_by_a_late_write_of_his_own() -> None:
    store = LateStore()
    attempt = subject.Attempt(store, inline=True)
    attempt.save(0, state(EVEN, 0))
    store.hold_back = True
    with pytest.raises(OutcomeUnknownError):
        attempt.save(1, state(ODD, 1))
    store.lose_commits = False
    attempt.save(2, state(EVEN, 2))  # step 1 arrives just before it
    assert [step for step, _ in subject.restore_all(store)] == [2, 1]


class WaitingConnection:
    """The heartbeat's statement waits for the lock while another owner's transaction stands still."""

    def __init__(self, real: Any, meanwhile: Callable[[], None]) -> None:
        self._real, self._meanwhile = real, [meanwhile]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def execute(self, statement: str, values: Any = ()) -> Any:
        if "SET expires=" in statement and self._meanwhile:
            self._meanwhile.pop()()
        return self._real.execute(statement, values)


def test_a_renewal_that_had_to_wait_does_not_shorten_the_lease(tmp_path: Path) -> None:
    """The heartbeat asked for time before it waited. What it asked for was written over what the other owner had given
    back for the wait, and a living worker lost its items a few seconds after it had renewed them."""
    clock = ManualClock()
    living, frozen, third = (SqliteQueue(str(tmp_path / "q.db"), clock=clock, lease_seconds=15.0) for _ in range(3))
    living.enqueue([("k", "1")])
    assert living.claim(1)
    clock.advance(5.0)

    def stands_still() -> None:
        with frozen.batch():
            clock.advance(11.0)

    living.connection = WaitingConnection(living.connection, stands_still)
    assert living.renew(living.handles([])) == []
    clock.advance(9.0)  # from the renewal; 20 since it was asked for
    assert third.claim(1) == []
    clock.advance(5.9)
    assert third.claim(1) == []
    clock.advance(0.2)
    assert third.claim(1)
    for queue in (living, frozen, third):
        queue.close()


def test_a_lock_on_the_whole_file_of_owners_is_told_and_waited_for(tmp_path: Path) -> None:
    """A number that is held is passed over, but not for ever, with the database locked."""
    queue = SqliteQueue(str(tmp_path / "q.db"))
    queue.enqueue([("a", "1")])
    with open(tmp_path / "q.db-owners", "r+b") as file:
        fcntl.lockf(file, fcntl.LOCK_EX)
        with pytest.raises(QueueUnavailableError, match=r"another program has locked .*q\.db-owners; end it"):
            queue.claim(1)
    assert [lease.key for lease in queue.claim(1)] == ["a"]
    queue.close()


def test_a_registration_rolled_back_does_not_bring_down_who_gets_its_number(tmp_path: Path) -> None:
    """SQLite gives the number to the next one before the byte that proves the first one's life is let go."""
    one, two = (SqliteQueue(str(tmp_path / "q.db")) for _ in range(2))
    one.enqueue([("a", "1"), ("b", "2")])
    given: list[str] = []
    drop = one._proof.release

    def late(owner: int) -> None:
        given.extend(lease.key for lease in two.claim(1))
        drop(owner)

    one._proof.release = late  # type: ignore[method-assign]
    with pytest.raises(RuntimeError, match="full"), one.batch():
        one.claim(1)
        raise RuntimeError("the disk is full")
    one._proof.release = drop  # type: ignore[method-assign]
    assert given == ["a"]
    assert [lease.key for lease in one.claim(2)] == ["b"]  # and the second one's item is its own
    assert one.handles([]) != two.handles([])
    for queue in (one, two):
        queue.close()
