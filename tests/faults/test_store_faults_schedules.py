"""Suite F, first half: every schedule of two writers with at most two lost answers, on the product's generators."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from faults.choices import Choices
from faults.counts import record
from faults.two_writers import ALL, LOST, Commit, TokenCodec, World, Writer
from stayfast.errors import ConflictError, OutcomeUnknownError, SupersededError
from stayfast.runtime.run_record import commit_protocol
from stayfast.runtime.run_record.commit_protocol import OwnedRecord, Put, commit
from stayfast.runtime.run_record.record import RECORD_KEY

pytestmark = pytest.mark.faults
LEAST_SCHEDULES = 20_000


def explore(make: Callable[[Choices], World], *, stop_at: int | None = None) -> tuple[int, int, list[str]]:
    """Schedules run, faults injected, and the schedules in which something did not hold."""
    choices = Choices()
    schedules = injected = 0
    broken: list[str] = []
    while choices.advance():
        world = make(choices)
        try:
            world.run()
            world.check()
        except AssertionError as error:
            broken.append(f"{choices}: {error}")
            if stop_at and len(broken) >= stop_at:
                break
        schedules += 1
        injected += world.injected
    return schedules, injected, broken


@pytest.fixture(autouse=True)
def fast_codec(monkeypatch: pytest.MonkeyPatch) -> None:
    codec = TokenCodec()
    monkeypatch.setattr(commit_protocol, "encode", codec.encode)
    monkeypatch.setattr(commit_protocol, "decode", codec.decode)


def two(choices: Choices, *, faults: int, how: Commit = commit, kinds: tuple[str, ...] = LOST, **more: Any) -> World:
    writers = [Writer("a", 1, how), Writer("b", 1, how)]
    return World(pick=choices.pick, writers=writers, faults_left=faults, kinds=kinds, **more)


def test_all_schedules_of_two_writers_with_two_lost_answers() -> None:
    schedules, injected, broken = explore(lambda choices: two(choices, faults=2))
    print(f"{schedules} schedules, {injected} lost answers")
    assert not broken, broken[:3]
    assert schedules >= LEAST_SCHEDULES, "void: too few schedules"
    record("F", schedules=schedules, schedule_faults=injected)


@pytest.mark.parametrize("how", [{"kinds": ALL}, {"kinds": LOST, "unreadable": True}], ids=["late", "unreadable"])
def test_all_schedules_with_one_late_write_or_failed_read(how: dict[str, Any]) -> None:
    schedules, injected, broken = explore(lambda choices: two(choices, faults=1, **how))
    assert not broken, broken[:3]
    assert schedules >= 1_000, "void: too few schedules"
    record("F", schedules=schedules, schedule_faults=injected)


def test_all_schedules_of_one_writer_with_three_faults() -> None:
    def make(choices: Choices) -> World:
        return World(pick=choices.pick, writers=[Writer("a", 2)], faults_left=3, kinds=ALL, unreadable=True)

    schedules, injected, broken = explore(make)
    assert not broken, broken[:3]
    assert schedules >= 1_000, "void: too few schedules"
    record("F", schedules=schedules, schedule_faults=injected)


# -- who tests the test: each of these mistakes must be found


def conflict_is_conflict(held: OwnedRecord, new: Any, token: Callable[[], str]) -> Any:
    """What every client library suggests: 412 means that somebody else won."""
    try:
        written = yield Put(
            RECORD_KEY, commit_protocol.encode(commit_protocol.replace(new, token=token())), held.generation
        )
    except ConflictError:
        raise SupersededError("somebody else won") from None
    return OwnedRecord(new, written)


def lost_is_failed(held: OwnedRecord, new: Any, token: Callable[[], str]) -> Any:
    """A time-out taken for a failure."""
    try:
        written = yield Put(
            RECORD_KEY, commit_protocol.encode(commit_protocol.replace(new, token=token())), held.generation
        )
    except (ConflictError, OutcomeUnknownError):
        raise SupersededError("it did not work") from None
    return OwnedRecord(new, written)


def lost_is_done(held: OwnedRecord, new: Any, token: Callable[[], str]) -> Any:
    """A time-out taken for success."""
    try:
        written = yield Put(
            RECORD_KEY, commit_protocol.encode(commit_protocol.replace(new, token=token())), held.generation
        )
    except OutcomeUnknownError:
        return OwnedRecord(new, held.generation)
    except ConflictError:
        raise SupersededError("somebody else won") from None
    return OwnedRecord(new, written)


def no_precondition(held: OwnedRecord, new: Any, token: Callable[[], str]) -> Any:
    """A generation that is not in the precondition."""
    written = yield Put(RECORD_KEY, commit_protocol.encode(commit_protocol.replace(new, token=token())), None)
    return OwnedRecord(new, written)


def never_landed(held: OwnedRecord, new: Any, token: Callable[[], str]) -> Any:
    """A superseded attempt that does not look whether its commit is in the other's head."""
    try:
        return (yield from commit(held, new, token))
    except SupersededError as error:
        raise SupersededError(error.message) from None


@pytest.mark.parametrize("mistake", [conflict_is_conflict, lost_is_failed, lost_is_done, no_precondition, never_landed])
def test_planted_mistakes_are_found(mistake: Commit) -> None:
    _, _, broken = explore(lambda choices: two(choices, faults=2, how=mistake), stop_at=1)
    assert broken, f"{mistake.__name__} went unnoticed"
