"""Suite G with real processes and real signals."""

from __future__ import annotations

import random

import pytest

from faults import fresh, subject
from faults.tiers import account, goal, seed_for
from stayfast.errors import OutcomeUnknownError, StoreFullError, StoreUnavailableError, SupersededError
from stayfast.filesystem import Buffer
from stayfast.runtime.run_record.record import RECORD_KEY
from stayfast.storage.stores.memory import MemoryStore
from stayfast.storage.stores.protocol import Blob

pytestmark = pytest.mark.faults


def test_a_stopped_attempt_wakes_up_superseded() -> None:
    seed = seed_for("G")
    report = fresh.call("faults.overlaps:run", seed, goal("G"))
    print(report)
    assert report["superseded"] > report["stopped"] / 2
    account("G", report["stopped"], superseded=report["superseded"], held_the_lock=report["held_the_lock"])


def test_an_attempt_is_not_superseded_by_its_own_lost_answer() -> None:
    """The answer to a commit got lost and could not be read back; the next save finds its own head and goes on."""
    store = FlakyStore()
    attempt = subject.Attempt(store, inline=True)
    attempt.save(0, subject.make_state(random.Random(0), 0))
    store.lose_answers = True
    with pytest.raises(OutcomeUnknownError):
        attempt.save(1, subject.make_state(random.Random(1), 1))
    store.lose_answers = False
    attempt.save(2, subject.make_state(random.Random(2), 2))
    assert [step for step, _ in subject.restore_all(store)] == [2, 1]


def test_a_pruned_attempt_is_superseded_not_broken() -> None:
    store = FlakyStore()
    old = subject.Attempt(store, inline=True)
    subject.Attempt(store, inline=True)
    store.full = True
    with pytest.raises(SupersededError):
        old.save(0, subject.make_state(random.Random(0), 0))


class FlakyStore(MemoryStore):
    """Applies a commit and says nothing, as a broken connection does; or has no room."""

    lose_answers = False
    full = False

    def get(self, key: str, *, offset: int = 0, length: int | None = None) -> Blob:
        if self.lose_answers:
            raise StoreUnavailableError("unreachable")
        return super().get(key, offset=offset, length=length)

    def put(self, key: str, data: Buffer, *, if_generation: str | None = None) -> str:
        if self.full:
            raise StoreFullError("full")
        generation = super().put(key, data, if_generation=if_generation)
        if self.lose_answers and key == RECORD_KEY:
            raise OutcomeUnknownError("no answer")
        return generation
