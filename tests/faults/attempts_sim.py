"""Suite G, simulated: attempts of one run that overlap, stop for any length of time, and disagree about the time.

The claims, commits and garbage collections are the product's own generators. A seeded scheduler decides before every
single effect who moves next, so an attempt that is not chosen for long is a process that was stopped, and one that is
chosen after another has claimed is one that woke up too late. Answers get lost.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any
from unittest import mock

from faults.tiers import Lost
from faults.two_writers import TokenCodec
from stayfast.clock import ManualClock, to_rfc3339
from stayfast.errors import (
    ConflictError,
    KeyMissingError,
    OutcomeUnknownError,
    StoreError,
    StoreUnavailableError,
    SupersededError,
)
from stayfast.runtime.checkpoint import cleanup
from stayfast.runtime.checkpoint import writer as persist
from stayfast.runtime.run_record import commit_protocol, owner
from stayfast.runtime.run_record.commit_protocol import Delete, Effect, Get, Keys, Put, Sleep
from stayfast.runtime.run_record.record import RECORD_KEY, AttemptRecord, CheckpointRecord, RunRecord
from stayfast.storage.stores.protocol import ABSENT, Blob, Entry

KEEP = 2
SKEW_SECONDS = 600.0
NOW = 1_700_000_000.0


class _Witness:
    """A store that only remembers how the product creates parts: the simulated attempts do the same."""

    asked: str | None = "never asked"

    def put(self, key: str, data: bytes, *, if_generation: str | None = None) -> str:
        self.asked = if_generation
        return key


class Tokens:
    """What ``secrets.token_hex`` gives while schedules run: from the schedule's seed. And how parts are created."""

    rng = random.Random()
    part_precondition: str | None = None

    def look(self) -> None:
        witness: Any = _Witness()
        persist.create_once(witness, ManualClock(), "part", ".bin", b"")
        self.part_precondition = witness.asked

    def __call__(self, count: int = 16) -> str:
        return f"{self.rng.getrandbits(4 * count):x}"


TOKENS = Tokens()


@dataclass(frozen=True)
class FakePart:
    key: str


@dataclass(frozen=True)
class FakeInventory:
    parts: tuple[FakePart, ...]


@dataclass
class Bucket:
    """Objects with generations; every write of HEAD is judged as it lands."""

    rng: random.Random
    loss: float
    objects: dict[str, tuple[bytes, str]] = field(default_factory=dict)
    counter: int = 0
    head: RunRecord | None = None
    faults: int = 0
    effects: int = 0

    def perform(self, effect: Effect) -> Any:
        self.effects += 1
        match effect:
            case Get(key):
                if self._lost():
                    raise StoreUnavailableError("the read failed")
                if key not in self.objects:
                    raise KeyMissingError(key)
                return Blob(*self.objects[key])
            case Put():
                return self._put(effect)
            case Keys(prefix):
                return [Entry(key, 1) for key in sorted(self.objects) if key.startswith(prefix)]
            case Delete(key):
                self.objects.pop(key, None)
                self.check(f"after {key} was deleted")
                return None
            case Sleep():
                return None

    def _lost(self) -> bool:
        lost = self.rng.random() < self.loss
        self.faults += lost
        return lost

    def _put(self, put: Put) -> str:
        lost = self._lost()
        if lost and self.rng.random() < 0.5:
            raise OutcomeUnknownError("the request was lost")
        now = self.objects.get(put.key)
        if put.if_generation is not None and put.if_generation != (ABSENT if now is None else now[1]):
            raise ConflictError(put.key)
        self.counter += 1
        self.objects[put.key] = (put.data, str(self.counter))
        if put.key == RECORD_KEY:
            before, self.head = self.head, commit_protocol.decode(put.data)
            if before is not None and self.head.attempt < before.attempt:
                raise Lost(f"attempt {self.head.attempt} wrote HEAD after attempt {before.attempt} had")
            if before is not None and before.newest and before.newest not in self.head.checkpoints[: KEEP + 1]:
                raise Lost(f"{before.newest.name} was committed and dropped by attempt {self.head.attempt}")
            self.check("after a commit")
        if lost and put.key == RECORD_KEY and self.rng.random() < 0.3:
            raise ConflictError("says a client that sent it again by itself")
        if lost:
            raise OutcomeUnknownError("the answer was lost")
        return str(self.counter)

    def check(self, when: str) -> None:
        """What HEAD lists is whole, and holds its own attempt's bytes."""
        for row in self.head.checkpoints if self.head else ():
            for key in keys_of(row):
                data = self.objects.get(key)
                if data is None:
                    raise Lost(f"{key} of a committed checkpoint is missing {when}")
                if data[0] != (row.inventory_sha256 or "").encode():
                    raise Lost(f"{key} holds bytes of another attempt {when}")


def keys_of(row: CheckpointRecord) -> list[str]:
    folder = f"checkpoints/{row.name}"
    return [f"{folder}/part-00000.bin", f"{folder}/inventory.json"]


@dataclass
class Writer:
    """One attempt: claims, saves a few times, prunes now and then; its clock is its own."""

    name: str
    rng: random.Random
    saves: int
    skew_seconds: float
    outcome: str = "running"
    committed: list[CheckpointRecord] = field(default_factory=list)

    def life(self) -> Any:
        at = to_rfc3339(NOW + self.skew_seconds)
        try:
            held = yield from commit_protocol.claim("run", AttemptRecord(0, at), owner._token)
            for number in range(self.saves):
                step = held.head.next_step + (number % 2)
                mine = CheckpointRecord(
                    step, held.head.attempt, at, 1, inventory_sha256=f"{self.rng.getrandbits(64):x}{self.name}"
                )
                held = yield from self._save(held, mine)
                self.committed.append(mine)
                if self.rng.random() < 0.5:
                    yield from cleanup.delete_unreferenced(held.head.attempt, ())
        except SupersededError:
            self.outcome = "superseded"
        except OutcomeUnknownError:
            self.outcome = "unknown"
        except StoreError:
            self.outcome = "failed"
        else:
            self.outcome = "done"

    def _save(self, held: commit_protocol.OwnedRecord, mine: CheckpointRecord) -> Any:
        assert mine.inventory_sha256
        for key in keys_of(mine):
            try:
                yield Put(key, mine.inventory_sha256.encode(), TOKENS.part_precondition)
            except OutcomeUnknownError:
                try:
                    yield Put(key, mine.inventory_sha256.encode(), TOKENS.part_precondition)
                except ConflictError:
                    pass  # ours: nobody else writes under this name
        kept = (mine, *(row for row in held.head.checkpoints if row.step != mine.step))[:KEEP]
        try:
            return (yield from commit_protocol.commit(held, replace(held.head, checkpoints=kept), owner._token))
        except OutcomeUnknownError:
            raise  # delete nothing
        except SupersededError as error:
            if not error.landed:
                yield from self._delete(mine)
            raise
        except StoreError:
            yield from self._delete(mine)
            raise

    def _delete(self, mine: CheckpointRecord) -> Any:
        for key in keys_of(mine):
            yield Delete(key)


@dataclass
class Report:
    schedules: int = 0
    faults: int = 0
    effects: int = 0
    superseded: int = 0
    done: int = 0
    unknown: int = 0


def run(seed: int, count: int, deadline_seconds: float | None = None) -> Report:
    """``count`` schedules, each from its own seed."""
    report = Report()
    began = time.process_time()
    TOKENS.look()
    with fast() as codec:
        while report.schedules < count:
            if deadline_seconds is not None and time.process_time() - began > deadline_seconds:
                break
            try:
                one_schedule(random.Random(f"{seed}/{report.schedules}"), report)
            except Lost as error:
                raise Lost(f"seed {seed}, schedule {report.schedules}: {error}") from None
            report.schedules += 1
            codec.forget()
    return report


def one_schedule(rng: random.Random, report: Report) -> None:
    """Two or three attempts that overlap anyhow, then one alone that must converge."""
    TOKENS.rng = rng
    bucket = Bucket(rng, rng.choice((0.0, 0.02, 0.1)))
    writers = [_writer(rng, name) for name in "abc"[: rng.choice((2, 2, 2, 3))]]
    _interleave(rng, bucket, writers)
    bucket.loss = 0.0
    last = _writer(rng, "z", saves=1)
    _interleave(rng, bucket, [last])
    if last.outcome != "done":
        raise Lost(f"faults are over and the next attempt ended {last.outcome}")
    for writer in writers:
        report.superseded += writer.outcome == "superseded"
        report.done += writer.outcome == "done"
        report.unknown += writer.outcome == "unknown"
    report.faults += bucket.faults
    report.effects += bucket.effects


def _writer(rng: random.Random, name: str, saves: int | None = None) -> Writer:
    skew = rng.uniform(-SKEW_SECONDS, SKEW_SECONDS)
    return Writer(name, rng, saves or rng.choice((1, 1, 2)), skew)


def _interleave(rng: random.Random, bucket: Bucket, writers: list[Writer]) -> None:
    """One effect at a time; a favourite moves mostly, so that others sleep long and wake at bad moments."""
    lives = [writer.life() for writer in writers]
    waiting: list[tuple[Any, Effect]] = []
    for life in lives:
        waiting.append((life, next(life)))
    favourite = 0
    while waiting:
        if rng.random() < 0.15:
            favourite = rng.randrange(len(waiting))
        life, effect = waiting[favourite % len(waiting)]
        try:
            try:
                answer = bucket.perform(effect)
            except StoreError as error:
                following = life.throw(error)
            else:
                following = life.send(answer)
        except StopIteration:
            waiting.pop(favourite % len(waiting))
        else:
            waiting[favourite % len(waiting)] = (life, following)


@contextmanager
def fast() -> Iterator[TokenCodec]:
    """HEAD and inventories by token instead of JSON: exact, because every write has its own."""
    codec = TokenCodec()

    def inventory(data: bytes, *, where: str) -> FakeInventory:
        return FakeInventory((FakePart(where.replace("inventory.json", "part-00000.bin")),))

    with (
        mock.patch("secrets.token_hex", TOKENS),
        mock.patch.object(commit_protocol, "encode", codec.encode),
        mock.patch.object(commit_protocol, "decode", codec.decode),
        mock.patch.object(cleanup, "matches_record", lambda data, row: data == (row.inventory_sha256 or "").encode()),
        mock.patch.object(cleanup.inventory_format, "decode", inventory),
    ):
        yield codec
