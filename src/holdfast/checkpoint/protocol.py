"""Claim and commit: the two conditional replaces of ``HEAD.json`` that everything else rests on.

Each write carries a fresh random token. Whatever the answer to a write was — conflict, time-out, dropped connection —
the truth is read back: my token means it happened, another's means I am superseded, unreadable means *unknown*, and
then nothing is deleted and nothing is assumed. (All official clients report one's own commit as a conflict when the
answer to the first try was lost.)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from holdfast.checkpoint.effects import Get, Protocol, Put, Sleep
from holdfast.checkpoint.head import HEAD_KEY, AttemptRow, Head, decode, encode
from holdfast.errors import (
    ConflictError,
    KeyMissingError,
    OutcomeUnknownError,
    StoreUnavailableError,
    SupersededError,
)
from holdfast.model.exits import Outcome
from holdfast.stores.base import ABSENT, Blob

FIRST_PAUSE_SECONDS = 0.05
LONGEST_PAUSE_SECONDS = 2.0
TRIES = 8


@dataclass(frozen=True, slots=True)
class Held:
    """A head we own, at the generation that the next commit must still find."""

    head: Head
    generation: str


def read_head() -> Protocol[Held | None]:
    """The run's head, or None when the run has never been claimed."""
    pause = FIRST_PAUSE_SECONDS
    for attempt in range(TRIES):
        try:
            blob: Blob = yield Get(HEAD_KEY)
        except KeyMissingError:
            return None
        except StoreUnavailableError:
            if attempt == TRIES - 1:
                raise
            yield Sleep(pause)
            pause = min(LONGEST_PAUSE_SECONDS, pause * 2)
        else:
            return Held(decode(blob.data), blob.generation)
    raise AssertionError("unreachable: the last try returns or raises")


def claim(run: str, row: AttemptRow, token: Callable[[], str]) -> Protocol[Held]:
    """Become the owner: attempt + 1, conditional on what was read; after losing a race, go after the winner."""
    for _ in range(TRIES):
        held = yield from read_head()
        new = _claimed(held, run, row, token())
        outcome = yield from _replace(new, ABSENT if held is None else held.generation)
        if outcome is not None:
            return outcome
    raise OutcomeUnknownError(
        f"{HEAD_KEY} kept changing while this attempt tried to claim the run", help="look for other writers of this run"
    )


def _claimed(held: Held | None, run: str, row: AttemptRow, token: str) -> Head:
    if held is None:
        return Head(run=run, attempt=1, token=token, attempts=(replace(row, attempt=1),))
    head = held.head
    attempts = head.attempts
    if attempts and attempts[-1].outcome is None:  # it never said goodbye: killed
        last = replace(attempts[-1], outcome=Outcome.LOST, cause=attempts[-1].cause or "unknown")
        attempts = (*attempts[:-1], last)
    number = head.attempt + 1
    mine = replace(row, attempt=number, first_step=head.next_step, last_step=head.next_step - 1)
    return replace(head, attempt=number, token=token, attempts=(*attempts, mine))


def commit(held: Held, new: Head, token: Callable[[], str]) -> Protocol[Held]:
    """Replace the head we own by ``new``; ``SupersededError`` when somebody else owns it by now."""
    assert new.attempt == held.head.attempt, "a commit never changes the owner"
    outcome = yield from _replace(replace(new, token=token()), held.generation)
    if outcome is None:
        raise SupersededError("another attempt of this run took over while this one was saving")
    return outcome


def _replace(new: Head, generation: str) -> Protocol[Held | None]:
    """Write the head once it is certain what became of the write; None when somebody else's is there."""
    data = encode(new)
    pause = FIRST_PAUSE_SECONDS
    for _ in range(TRIES):
        try:
            written: str = yield Put(HEAD_KEY, data, generation)
            return Held(new, written)
        except (ConflictError, OutcomeUnknownError):
            certain = yield from _read_back(new.token, generation)
            if isinstance(certain, Held):
                return certain
            if certain == "another":
                return None
        except StoreUnavailableError:
            pass  # certainly not applied: the same write may be sent again
        yield Sleep(pause)
        pause = min(LONGEST_PAUSE_SECONDS, pause * 2)
    raise OutcomeUnknownError(
        f"{HEAD_KEY} could not be written or read back for certain",
        help="nothing was deleted; the next attempt resumes from the last certain state",
    )


def _read_back(token: str, generation: str) -> Protocol[Held | str]:
    """What is there now: ours (``Held``), ``"another"``, or ``"unchanged"`` so that the write may be sent again."""
    try:
        held = yield from read_head()
    except StoreUnavailableError:
        return "unchanged"  # unreadable: unknown. Sending the same conditional write again is harmless.
    if held is None:
        return "unchanged" if generation == ABSENT else "another"
    if held.head.token == token:
        return held
    return "unchanged" if held.generation == generation else "another"
