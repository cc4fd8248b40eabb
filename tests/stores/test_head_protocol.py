"""Claim and commit on a real store: damaged records, refusals after lost answers, and what a commit may not say."""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from stayfast.clock import ManualClock
from stayfast.errors import (
    AccessDeniedError,
    ConflictError,
    CorruptError,
    FormatError,
    KeyMissingError,
    OutcomeUnknownError,
    StoreError,
    StoreUnavailableError,
    SupersededError,
)
from stayfast.model.exit_codes import Outcome
from stayfast.runtime.run_record.commit_protocol import OwnedRecord, Put, Sleep, claim, commit, read_head, run_protocol
from stayfast.runtime.run_record.record import (
    MAX_ATTEMPT_RECORDS,
    RECORD_KEY,
    AttemptRecord,
    CheckpointRecord,
    RunRecord,
    decode,
    encode,
)
from stayfast.storage.stores.memory import MemoryStore

ROW = AttemptRecord(0, "2026-11-15T20:00:00.000Z")


def tokens(name: str) -> Callable[[], str]:
    numbers = itertools.count()
    return lambda: f"{name}{next(numbers)}"


def signed(body: dict[str, Any]) -> bytes:
    """A record whose checksum is right, whatever it says."""
    digest = hashlib.sha256(json.dumps(body, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
    return json.dumps({**body, "checksum": digest}).encode()


def good_body() -> dict[str, Any]:
    head = RunRecord("run", 1, "t", (CheckpointRecord(3, 1, "2026-11-15T20:00:00.000Z"),), (replace(ROW, attempt=1),))
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


@pytest.mark.parametrize("version", [None, 0, 2, "1"])
def test_a_record_of_another_format_is_not_read(version: object) -> None:
    with pytest.raises(FormatError):
        decode(signed({**good_body(), "format": version}))


def test_every_rank_of_a_checkpoint_has_a_folder_and_an_inventory_of_its_own() -> None:
    whole = CheckpointRecord(7, 2, "2026-11-15T20:00:00.000Z", 10, "sha-0", (("sha-1", 11), ("sha-2", 12)))
    assert [(row.folder, row.inventory_sha256, row.size) for row in whole.ranks] == [
        ("000000000007-000002", "sha-0", 10),
        ("000000000007-000002/rank-00001", "sha-1", 11),
        ("000000000007-000002/rank-00002", "sha-2", 12),
    ]


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


def claimed() -> tuple[MemoryStore, OwnedRecord, RunRecord]:
    store = MemoryStore()
    held = run_protocol(claim("run", ROW, tokens("a")), store, ManualClock())
    mine = CheckpointRecord(0, 1, "2026-11-15T20:00:00.000Z")
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
    assert effect.key == RECORD_KEY
    assert effect.if_generation == held.generation


@pytest.mark.parametrize("landed", [True, False])
def test_a_superseded_attempt_learns_whether_its_commit_landed(landed: bool) -> None:
    store, held, new = claimed()
    protocol = commit(held, new, tokens("b"))
    put = next(protocol)
    assert isinstance(put, Put)
    if landed:
        store.put(put.key, put.data, if_generation=put.if_generation)
    run_protocol(claim("run", ROW, tokens("c")), store, ManualClock())
    protocol.throw(OutcomeUnknownError("the answer was lost"))
    with pytest.raises(SupersededError) as caught:
        protocol.send(store.get(RECORD_KEY))
    assert caught.value.landed is landed
    head = run_protocol(read_head(), store, ManualClock())
    assert head is not None
    assert bool(head.head.checkpoints) is landed


def test_a_lost_answer_is_not_forgotten_over_an_outage() -> None:
    """The head was unchanged when it was looked at, but the lost request may arrive yet: that is not "not written"."""
    store, held, new = claimed()
    answers = [OutcomeUnknownError("?"), store.get(RECORD_KEY), *[StoreUnavailableError("429")] * 7]
    with pytest.raises(OutcomeUnknownError):
        held_after(commit(held, new, tokens("b")), answers)


def test_a_head_that_was_taken_away_is_not_written_again() -> None:
    _, held, new = claimed()
    with pytest.raises(SupersededError) as caught:
        held_after(commit(held, new, tokens("b")), [ConflictError("absent"), KeyMissingError("no HEAD.json")])
    assert not caught.value.landed


def test_the_same_step_of_a_newer_attempt_is_not_ours() -> None:
    store, held, new = claimed()
    rival = run_protocol(claim("run", ROW, tokens("c")), store, ManualClock())
    theirs = CheckpointRecord(0, 2, "2026-11-15T20:00:01.000Z")
    run_protocol(commit(rival, replace(rival.head, checkpoints=(theirs,)), tokens("c")), store, ManualClock())
    with pytest.raises(SupersededError) as caught:
        run_protocol(commit(held, new, tokens("b")), store, ManualClock())
    assert not caught.value.landed


def test_a_ledger_row_that_came_too_late_is_not_taken_for_a_checkpoint() -> None:
    """The newest checkpoint stands in the other head, but it was there before this write."""
    store, held, new = claimed()
    held = run_protocol(commit(held, new, tokens("b")), store, ManualClock())
    run_protocol(claim("run", ROW, tokens("c")), store, ManualClock())
    with pytest.raises(SupersededError) as caught:
        run_protocol(commit(held, held.head.with_attempt(useful_seconds=1.0), tokens("b")), store, ManualClock())
    assert not caught.value.landed
    assert "committed before" not in str(caught.value)


def test_attempts_are_counted_on_when_their_rows_are_folded() -> None:
    """A number that comes twice would let an attempt commit for another, and share its folders."""
    rows = tuple(replace(ROW, attempt=number) for number in range(1, MAX_ATTEMPT_RECORDS + 51))
    store = MemoryStore()
    store.put(RECORD_KEY, encode(RunRecord("run", len(rows), "t", attempts=rows)))
    held = run_protocol(claim("run", ROW, tokens("a")), store, ManualClock())
    assert held.head.attempt == len(rows) + 1
    assert held.head.current_attempt.attempt == len(rows) + 1
    stored = run_protocol(read_head(), store, ManualClock())
    assert stored is not None
    assert len(stored.head.attempts) == MAX_ATTEMPT_RECORDS
    assert stored.head.current_attempt == held.head.current_attempt
    assert stored.head.folded["attempts"] == 51


def test_whoever_loses_the_race_for_a_run_goes_after_the_winner() -> None:
    store = MemoryStore()
    first = claim("run", ROW, tokens("a"))
    next(first)
    put = first.throw(KeyMissingError("no HEAD.json"))
    winner = run_protocol(claim("run", ROW, tokens("b")), store, ManualClock())
    assert isinstance(put, Put)
    with pytest.raises(ConflictError) as refused:
        store.put(put.key, put.data, if_generation=put.if_generation)
    first.throw(refused.value)
    first.send(store.get(RECORD_KEY))
    put = first.send(store.get(RECORD_KEY))
    assert isinstance(put, Put)
    with pytest.raises(StopIteration) as ended:
        first.send(store.put(put.key, put.data, if_generation=put.if_generation))
    assert ended.value.value.head.attempt == winner.head.attempt + 1


def test_a_claim_carries_over_what_the_run_has_reached() -> None:
    store, held, new = claimed()
    ended = replace(new, finished=True, total_steps=1).with_attempt(last_step=0, outcome=Outcome.FINISHED)
    run_protocol(commit(held, ended, tokens("b")), store, ManualClock())
    head = run_protocol(claim("run", ROW, tokens("c")), store, ManualClock()).head
    assert (head.finished, head.total_steps, head.checkpoints) == (True, 1, new.checkpoints)
    assert [row.outcome for row in head.attempts] == [Outcome.FINISHED, None]
    assert (head.current_attempt.first_step, head.current_attempt.last_step) == (1, 0), "nothing done yet"
    head = run_protocol(claim("run", ROW, tokens("d")), store, ManualClock()).head
    assert [row.outcome for row in head.attempts] == [Outcome.FINISHED, Outcome.LOST, None], "it never said goodbye"


def test_a_damaged_head_is_never_taken_for_a_new_run() -> None:
    store, _, _ = claimed()
    store.put(RECORD_KEY, store.get(RECORD_KEY).data[:-20])
    before = store.get(RECORD_KEY)
    with pytest.raises(CorruptError):
        run_protocol(claim("run", ROW, tokens("b")), store, ManualClock())
    assert store.get(RECORD_KEY) == before
