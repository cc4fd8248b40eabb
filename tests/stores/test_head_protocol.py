"""Claim and commit on a real store: damaged records, refusals after lost answers, and what a commit may not say."""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from holdfast.checkpoint.effects import Put, Sleep, drive
from holdfast.checkpoint.head import HEAD_KEY, AttemptRow, Committed, Head, decode, encode
from holdfast.checkpoint.protocol import Held, claim, commit, read_head
from holdfast.clock import ManualClock
from holdfast.errors import (
    AccessDeniedError,
    CorruptError,
    OutcomeUnknownError,
    StoreError,
    StoreUnavailableError,
    SupersededError,
)
from holdfast.stores.memory import MemoryStore

ROW = AttemptRow(0, "2026-11-15T20:00:00.000Z")


def tokens(name: str) -> Callable[[], str]:
    numbers = itertools.count()
    return lambda: f"{name}{next(numbers)}"


def signed(body: dict[str, Any]) -> bytes:
    """A record whose checksum is right, whatever it says."""
    digest = hashlib.sha256(json.dumps(body, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
    return json.dumps({**body, "checksum": digest}).encode()


def good_body() -> dict[str, Any]:
    head = Head("run", 1, "t", (Committed(3, 1, "2026-11-15T20:00:00.000Z"),), (replace(ROW, attempt=1),))
    body: dict[str, Any] = json.loads(encode(head))
    body.pop("checksum")
    return body


@pytest.mark.parametrize(
    "damage",
    [
        {"checkpoints": [None]},
        {"checkpoints": [{"step": "3", "attempt": 1, "committed_at": "x"}]},
        {"checkpoints": [{"step": -3, "attempt": 1, "committed_at": "x"}]},
        {"checkpoints": [{"step": True, "attempt": 1, "committed_at": "x"}]},
        {"checkpoints": 5},
        {"attempts": [[]]},
        {"attempts": [{"attempt": "1", "started_at": "x"}]},
        {"attempts": [{"attempt": 1, "started_at": "x", "outcome": "eaten"}]},
        {"attempt": "1"},
        {"attempt": 0},
        {"token": None},
        {"total_steps": "many"},
        {"finished": 1},
    ],
)
def test_records_with_a_right_checksum_and_wrong_fields(damage: dict[str, Any]) -> None:
    assert decode(signed(good_body())).next_step == 4
    with pytest.raises(CorruptError):
        decode(signed({**good_body(), **damage}))


def test_every_bit_flip_of_a_record_is_noticed() -> None:
    data = encode(decode(signed(good_body())))
    accepted = 0
    for bit in range(len(data) * 8):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        try:
            accepted += decode(bytes(flipped)) != decode(data)
        except (CorruptError, StoreError):
            continue
    assert accepted == 0


def held_after(protocol: Any, answers: list[Any]) -> Any:
    """Feed a protocol its answers by hand: values are sent, errors thrown, sleeps skipped."""
    effect = next(protocol)
    for answer in answers:
        while isinstance(effect, Sleep):
            effect = protocol.send(None)
        effect = protocol.throw(answer) if isinstance(answer, Exception) else protocol.send(answer)
    while isinstance(effect, Sleep):
        effect = protocol.send(None)
    return effect


def claimed() -> tuple[MemoryStore, Held, Head]:
    store = MemoryStore()
    held = drive(claim("run", ROW, tokens("a")), store, ManualClock())
    mine = Committed(0, 1, "2026-11-15T20:00:00.000Z")
    return store, held, replace(held.head, checkpoints=(mine,))


def test_a_refusal_after_a_lost_answer_stays_unknown() -> None:
    """The first request may have been applied: "not allowed" to the second says nothing about it."""
    _, held, new = claimed()
    unreadable = [StoreUnavailableError("down")] * 8
    with pytest.raises(OutcomeUnknownError):
        held_after(
            commit(held, new, tokens("b")), [OutcomeUnknownError("?"), *unreadable, AccessDeniedError("expired")]
        )


def test_a_refusal_of_the_first_request_is_passed_on() -> None:
    _, held, new = claimed()
    with pytest.raises(AccessDeniedError):
        held_after(commit(held, new, tokens("b")), [AccessDeniedError("expired")])


def test_certainly_unwritten_is_said_as_such() -> None:
    _, held, new = claimed()
    with pytest.raises(StoreUnavailableError):
        held_after(commit(held, new, tokens("b")), [StoreUnavailableError("429")] * 8)


def test_a_conflict_that_cannot_be_read_back_is_unknown() -> None:
    _, held, new = claimed()
    protocol = commit(held, new, tokens("b"))
    effect = held_after(protocol, [StoreUnavailableError("429"), OutcomeUnknownError("?"), CorruptError("torn")])
    assert isinstance(effect, Put), "the same conditional write is sent again"
    assert effect.key == HEAD_KEY
    assert effect.if_generation == held.generation


@pytest.mark.parametrize("landed", [True, False])
def test_a_superseded_attempt_learns_whether_its_commit_landed(landed: bool) -> None:
    store, held, new = claimed()
    protocol = commit(held, new, tokens("b"))
    put = next(protocol)
    assert isinstance(put, Put)
    if landed:
        store.put(put.key, put.data, if_generation=put.if_generation)
    drive(claim("run", ROW, tokens("c")), store, ManualClock())
    protocol.throw(OutcomeUnknownError("the answer was lost"))
    with pytest.raises(SupersededError) as caught:
        protocol.send(store.get(HEAD_KEY))
    assert caught.value.landed is landed
    head = drive(read_head(), store, ManualClock())
    assert head is not None
    assert bool(head.head.checkpoints) is landed
