"""Claim and commit: the two conditional replaces of ``HEAD.json`` that everything else rests on.

Each write carries a fresh random token. Whatever the answer to a write was — conflict, time-out, dropped connection —
the truth is read back: my token means it happened, another's means I am superseded (and says whether my commit is in
it: an answer can be lost just before another attempt takes over), unreadable means *unknown*, and then nothing is
deleted and nothing is assumed. (All official clients report one's own commit as a conflict when the
answer to the first try was lost.)

Protocols are generators: they yield the effects they want performed and receive the results. So the real driver and the
simulator run the very same code: ``run_protocol`` performs each effect on a store and a clock; a test can answer any of
them with a lost answer, a conflict or a delay, in every order there is.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from stayfast.backoff import Backoff
from stayfast.clock import Clock
from stayfast.errors import (
    CheckpointError,
    ConflictError,
    KeyMissingError,
    OutcomeUnknownError,
    StayfastError,
    StoreError,
    StoreUnavailableError,
    SupersededError,
)
from stayfast.model.exit_codes import Outcome
from stayfast.runtime.run_record.record import RECORD_KEY, AttemptRecord, CheckpointRecord, RunRecord, decode, encode
from stayfast.storage.stores.protocol import ABSENT, Blob, Entry, Store

FIRST_PAUSE_SECONDS = 0.05
LONGEST_PAUSE_SECONDS = 2.0
TRIES = 8


@dataclass(frozen=True, slots=True)
class Get:
    """Read a whole object; answered with a ``Blob``."""

    key: str


@dataclass(frozen=True, slots=True)
class Put:
    """Write an object; answered with its new generation."""

    key: str
    data: bytes
    if_generation: str | None


@dataclass(frozen=True, slots=True)
class Keys:
    """List; answered with a list of ``Entry``."""

    prefix: str


@dataclass(frozen=True, slots=True)
class Delete:
    """Remove an object; answered with None."""

    key: str


@dataclass(frozen=True, slots=True)
class Sleep:
    """Wait; answered with None."""

    seconds: float


Effect = Get | Put | Keys | Delete | Sleep
EffectResult = Blob | str | list[Entry] | None
T = TypeVar("T")
EffectGenerator = Generator[Effect, Any, T]
"""A protocol yields effects, is sent their answers or thrown their ``StoreError``, and returns a ``T``."""


def perform_effect(effect: Effect, store: Store, clock: Clock) -> EffectResult:
    """Do one effect for real."""
    match effect:
        case Get(key):
            return store.get(key)
        case Put(key, data, if_generation):
            return store.put(key, data, if_generation=if_generation)
        case Keys(prefix):
            return list(store.keys(prefix))
        case Delete(key):
            store.delete(key)
            return None
        case Sleep(seconds):
            clock.sleep(seconds)
            return None


def run_protocol(protocol: EffectGenerator[T], store: Store, clock: Clock) -> T:
    """Run a protocol to its end on a real store."""
    try:
        effect = next(protocol)
        while True:
            try:
                answer = perform_effect(effect, store, clock)
            except StoreError as error:
                effect = protocol.throw(error)
            else:
                effect = protocol.send(answer)
    except StopIteration as stop:
        result: T = stop.value
        return result


@dataclass(frozen=True, slots=True)
class OwnedRecord:
    """A head we own, at the generation that the next commit must still find."""

    head: RunRecord
    generation: str


class OwnStaleWriteError(OutcomeUnknownError):
    """This write was not applied, because an older one of our own was: nobody took over, look again and repeat it."""


def read_head() -> EffectGenerator[OwnedRecord | None]:
    """The run's head, or None when the run has never been claimed."""
    pauses = Backoff(FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS).pauses()
    for attempt in range(TRIES):
        try:
            blob: Blob = yield Get(RECORD_KEY)
        except KeyMissingError:
            return None
        except StoreUnavailableError:
            if attempt == TRIES - 1:
                raise
            yield Sleep(next(pauses))
        else:
            return OwnedRecord(decode(blob.data), blob.generation)
    raise AssertionError("unreachable: the last try returns or raises")


def claim(run: str, row: AttemptRecord, token: Callable[[], str]) -> EffectGenerator[OwnedRecord]:
    """Become the owner: attempt + 1, conditional on what was read; after losing a race, go after the winner."""
    for _ in range(TRIES):
        held = yield from read_head()
        new = _record_after_claim(held, run, row, token())
        outcome = yield from _replace(new, ABSENT if held is None else held.generation)
        if isinstance(outcome, OwnedRecord):
            return outcome
    raise OutcomeUnknownError(
        f"{RECORD_KEY} kept changing while this attempt tried to claim the run",
        help="look for other writers of this run",
    )


def _record_after_claim(held: OwnedRecord | None, run: str, row: AttemptRecord, token: str) -> RunRecord:
    if held is None:
        return RunRecord(run=run, attempt=1, token=token, attempts=(replace(row, attempt=1),))
    head = held.head
    attempts = head.attempts
    if attempts and attempts[-1].outcome is None:  # it never said goodbye: killed
        last = replace(attempts[-1], outcome=Outcome.LOST, cause=attempts[-1].cause or "unknown")
        attempts = (*attempts[:-1], last)
    number = head.attempt + 1
    mine = replace(row, attempt=number, first_step=head.next_step, last_step=head.next_step - 1)
    return replace(head, attempt=number, token=token, attempts=(*attempts, mine))


def commit(held: OwnedRecord, new: RunRecord, token: Callable[[], str]) -> EffectGenerator[OwnedRecord]:
    """Replace the head we own by ``new``; ``SupersededError`` when somebody else owns it by now."""
    assert new.attempt == held.head.attempt, "a commit never changes the owner"
    outcome = yield from _replace(replace(new, token=token()), held.generation)
    if isinstance(outcome, OwnedRecord):
        return outcome
    if outcome.head is not None and outcome.head.attempt == new.attempt:
        raise OwnStaleWriteError("an earlier write of this attempt, whose answer was lost, arrived only now")
    newest = new.newest
    landed = newest is not None and newest != held.head.newest and outcome.has(newest)
    raise SupersededError(
        "another attempt of this run took over while this one was saving"
        + (f"; the checkpoint of step {newest.step} was committed before" if newest and landed else ""),
        landed=landed,
    )


@dataclass(frozen=True, slots=True)
class _ForeignRecord:
    """Somebody else's head is there, and ours can never be applied any more; None when the head is gone."""

    head: RunRecord | None

    def has(self, checkpoint: CheckpointRecord) -> bool:
        """Whether the other head was built on ours: our answer was lost, then we were superseded."""
        return self.head is not None and checkpoint in self.head.checkpoints


def _replace(new: RunRecord, generation: str) -> EffectGenerator[OwnedRecord | _ForeignRecord]:
    """Write the head once, and find out for certain what became of it.

    Once an answer was lost, no later error can mean "nothing was written": the first request may still be on its way.
    """
    data = encode(new)
    pauses = Backoff(FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS).pauses()
    lost: StoreError | None = None
    trouble: StayfastError | None = None
    for _ in range(TRIES):
        try:
            written: str = yield Put(RECORD_KEY, data, generation)
            return OwnedRecord(new, written)
        except (ConflictError, OutcomeUnknownError) as error:
            if isinstance(error, OutcomeUnknownError):
                lost = error
            try:
                certain = yield from _read_back(new.token, generation)
            except (StoreError, CheckpointError) as unreadable:  # unknown; the same conditional write is harmless
                lost, trouble = lost or error, unreadable
            else:
                if certain is not None:
                    return certain
        except StoreUnavailableError as error:
            trouble = error  # this one was certainly not applied: the same write may be sent again
        except StoreError:
            if lost is None:
                raise
            break
        yield Sleep(next(pauses))
    if lost is None and isinstance(trouble, StoreUnavailableError):
        raise trouble
    raise OutcomeUnknownError(
        f"{RECORD_KEY} could not be written or read back for certain ({trouble or lost})",
        help="nothing was deleted; the next attempt resumes from the last certain state",
    ) from (trouble or lost)


def _read_back(token: str, generation: str) -> EffectGenerator[OwnedRecord | _ForeignRecord | None]:
    """What is there now: ours, another's, or None when nothing changed, so that the write may be sent again."""
    held = yield from read_head()
    if held is None:
        return None if generation == ABSENT else _ForeignRecord(None)
    if held.head.token == token:
        return held
    return None if held.generation == generation else _ForeignRecord(held.head)
