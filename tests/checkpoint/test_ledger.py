"""The run's ledger, rule by rule: what a commit replaces, what an unknown outcome leaves, and who may write."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from stayfast.clock import ManualClock
from stayfast.errors import (
    KeyMissingError,
    NoProgressError,
    OutcomeUnknownError,
    StoreUnavailableError,
    SupersededError,
)
from stayfast.model.exit_codes import Outcome
from stayfast.runtime.run_record.owner import RecordOwner, check_progress
from stayfast.runtime.run_record.record import RECORD_KEY, AttemptRecord, CheckpointRecord, RunRecord, decode
from stayfast.storage.stores.memory import MemoryStore

ROW = AttemptRecord(0, "2026-11-16T10:00:00.000Z")


class Unsteady(MemoryStore):
    """A store whose next calls go wrong as a test says."""

    def __init__(self) -> None:
        super().__init__()
        self.before_put: list[Callable[[], None]] = []
        self.lose_answers = False
        self.unreadable = False

    def put(self, key: str, data: Any, *, if_generation: str | None = None) -> str:
        if self.before_put:
            self.before_put.pop(0)()
        written = super().put(key, data, if_generation=if_generation)
        if self.lose_answers:
            raise OutcomeUnknownError("the answer was lost")
        return written

    def get(self, key: str, *, offset: int = 0, length: int | None = None) -> Any:
        if self.unreadable:
            raise StoreUnavailableError("down")
        return super().get(key, offset=offset, length=length)


def claimed(store: MemoryStore) -> RecordOwner:
    ledger = RecordOwner(store, "run", clock=ManualClock())
    ledger.claim(ROW)
    return ledger


def saved(step: int, attempt: int = 1) -> CheckpointRecord:
    return CheckpointRecord(step, attempt, "2026-11-16T10:00:00.000Z", 1, f"{attempt}-{step}")


def stored(store: MemoryStore) -> RunRecord:
    return decode(store.get(RECORD_KEY).data)


def test_a_commit_replaces_the_same_step_of_an_older_attempt() -> None:
    store = MemoryStore()
    first = claimed(store)
    first.commit(saved(3))
    first.commit(saved(5))
    claimed(store).commit(saved(5, 2))
    assert stored(store).checkpoints == (saved(5, 2), saved(3)), "one checkpoint per step, the newest first"
    assert stored(store).current_attempt.last_step == 5


def test_a_run_that_goes_on_is_not_finished_any_more() -> None:
    store = MemoryStore()
    ledger = claimed(store)
    ledger.commit(saved(5), finished=True)
    assert stored(store).finished
    ledger.update_attempt(useful_seconds=1.0)
    assert stored(store).finished, "a row changes nothing else"
    ledger.commit(saved(6))
    assert not stored(store).finished
    ledger.update_attempt(finished=True)
    ledger.update_attempt(finished=False, total_steps=9)
    assert (stored(store).finished, stored(store).total_steps) == (False, 9)


def test_the_preferred_checkpoint_goes_first_and_none_is_dropped() -> None:
    store = MemoryStore()
    ledger = claimed(store)
    for step in (1, 2, 3):
        ledger.commit(saved(step))
    ledger.resume_from(saved(2))
    assert [item.step for item in stored(store).checkpoints] == [2, 3, 1]


def of_unknown_outcome() -> tuple[Unsteady, RecordOwner]:
    """A ledger whose first commit happened, though nobody was told."""
    store = Unsteady()
    ledger = claimed(store)
    store.lose_answers = store.unreadable = True
    with pytest.raises(OutcomeUnknownError):
        ledger.commit(saved(1))
    store.lose_answers = store.unreadable = False
    return store, ledger


def test_a_write_of_unknown_outcome_that_happened_is_gone_on_from() -> None:
    store, ledger = of_unknown_outcome()
    ledger.commit(saved(2))
    assert [item.step for item in stored(store).checkpoints] == [2, 1]


def test_after_an_unknown_outcome_the_head_of_a_newer_attempt_is_left_alone() -> None:
    store, ledger = of_unknown_outcome()
    claimed(store)
    before = store.get(RECORD_KEY)
    for _ in range(2):
        with pytest.raises(SupersededError):
            ledger.commit(saved(2))
    assert store.get(RECORD_KEY) == before


def test_a_write_that_arrives_late_is_followed_by_the_next() -> None:
    """Its answer was lost and it was nowhere to be seen; it arrives while the next one is under way."""
    store = Unsteady()
    ledger = claimed(store)
    late: list[tuple[Any, str | None]] = []
    plain = store.put

    def swallow(key: str, data: Any, *, if_generation: str | None = None) -> str:
        late.append((data, if_generation))
        raise OutcomeUnknownError("the answer was lost")

    store.put = swallow  # type: ignore[method-assign]
    with pytest.raises(OutcomeUnknownError):
        ledger.commit(saved(1))
    store.put = plain  # type: ignore[method-assign]
    store.before_put = [lambda: MemoryStore.put(store, RECORD_KEY, late[0][0], if_generation=late[0][1])]
    ledger.commit(saved(2))
    assert [item.step for item in stored(store).checkpoints] == [2, 1]


def test_who_owns_the_run_is_asked_without_guessing() -> None:
    store = Unsteady()
    ledger = claimed(store)
    ledger.check_owner()
    store.unreadable = True
    ledger.check_owner()  # what cannot be read says nothing
    store.unreadable = False
    rival = claimed(store)
    with pytest.raises(SupersededError):
        ledger.check_owner()
    rival.check_owner()
    store.delete(RECORD_KEY)
    rival.check_owner()
    with pytest.raises(KeyMissingError):
        store.get(RECORD_KEY)


def test_threads_take_turns() -> None:
    """The loop's thread, the saver's and the stall watch all write: nobody may be taken for a late self."""
    store = Unsteady()
    ledger = claimed(store)
    store.before_put = [lambda: time.sleep(0.002)] * 40
    errors: list[BaseException] = []

    def write(number: int) -> None:
        try:
            for step in range(10):
                ledger.commit(saved(100 * number + step))
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert len(stored(store).checkpoints) == 40


def rows(*what: str) -> tuple[AttemptRecord, ...]:
    kinds = {
        "failed": {"outcome": Outcome.FAILED},
        "stalled": {"outcome": Outcome.LOST, "stalled": True},
        "preempted": {"outcome": Outcome.INTERRUPTED},
        "committed": {"outcome": Outcome.FAILED, "last_step": 0},
        "now": {},
    }
    return tuple(replace(ROW, attempt=number, **kinds[kind]) for number, kind in enumerate(what, 1))


@pytest.mark.parametrize(
    ("history", "is_stuck"),
    [
        (("failed", "failed", "now"), False),
        (("failed", "failed", "failed", "now"), True),
        (("failed", "stalled", "preempted", "stalled", "now"), True),
        (("preempted",) * 9 + ("now",), False),
        (("failed", "failed", "committed", "failed", "failed", "now"), False),
        (("committed", "failed", "failed", "failed", "now"), True),
        (("failed", "failed", "failed"), False),
    ],
)
def test_what_counts_as_no_progress(history: tuple[str, ...], is_stuck: bool) -> None:
    """A commit of a single step is progress; the attempt that asks does not count itself."""
    head = RunRecord("run", len(history), "t", attempts=rows(*history))
    if not is_stuck:
        check_progress(head, 3)
        return
    with pytest.raises(NoProgressError):
        check_progress(head, 3)
