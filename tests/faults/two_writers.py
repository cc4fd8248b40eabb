"""Two attempts of one run on a bucket whose answers get lost: the product's own generators, a model of the bucket.

A writer claims the run, puts parts, commits, and does what a caller may do with each outcome: delete its parts when it
is certain that they were not committed, and nothing when it is not. ``World.check`` says what must hold after that.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from stayfast.errors import (
    ConflictError,
    KeyMissingError,
    OutcomeUnknownError,
    StoreError,
    StoreUnavailableError,
    SupersededError,
)
from stayfast.runtime.run_record import commit_protocol
from stayfast.runtime.run_record.commit_protocol import Delete, Effect, Get, OwnedRecord, Put, Sleep, claim, commit
from stayfast.runtime.run_record.record import RECORD_KEY, AttemptRecord, CheckpointRecord, RunRecord
from stayfast.storage.stores.protocol import ABSENT, Blob

LOST = ("fine", "answer lost", "answer lost, then conflict", "request lost")
"""``answer lost, then conflict`` is a client that retried behind our back."""
ALL = (*LOST, "late")
"""``late``: no answer, and the request arrives when the schedule says, perhaps after its writer has gone."""


class TokenCodec:
    """Stands in for the JSON of HEAD while schedules are explored: every write has its own token, so it is exact."""

    def __init__(self) -> None:
        self._heads: dict[bytes, RunRecord] = {}

    def encode(self, head: RunRecord) -> bytes:
        data = f"{head.token}/{len(self._heads)}".encode()  # also where tokens repeat, as in a planted bug
        self._heads[data] = head
        return data

    def decode(self, data: bytes, **_: Any) -> RunRecord:
        return self._heads[data]

    def forget(self) -> None:
        """Between two schedules; a million of them must fit into memory."""
        self._heads.clear()


Commit = Callable[[OwnedRecord, RunRecord, Callable[[], str]], Any]


@dataclass
class Bucket:
    """One bucket: objects with generations, everything that HEAD ever was, and writes still on their way."""

    objects: dict[str, tuple[bytes, str]] = field(default_factory=dict)
    heads: list[RunRecord] = field(default_factory=list)
    late: list[Put] = field(default_factory=list)
    counter: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    def apply(self, put: Put) -> str:
        now = self.objects.get(put.key)
        if put.if_generation is not None and put.if_generation != (ABSENT if now is None else now[1]):
            raise ConflictError(f"{put.key} is elsewhere")
        generation = str(next(self.counter))
        self.objects[put.key] = (put.data, generation)
        if put.key == RECORD_KEY:
            self.heads.append(commit_protocol.decode(put.data))
        return generation

    def get(self, key: str) -> Blob:
        if key not in self.objects:
            raise KeyMissingError(f"no {key}")
        return Blob(*self.objects[key])


def part_of(checkpoint: CheckpointRecord) -> str:
    return f"checkpoints/{checkpoint.name}/part"


@dataclass
class Writer:
    """One attempt as a generator of effects, and what it believes in the end."""

    name: str
    commits: int
    commit: Commit = commit
    believes: list[tuple[str, CheckpointRecord]] = field(default_factory=list)
    tokens: Iterator[int] = field(default_factory=itertools.count)
    end: str = "running"

    def token(self) -> str:
        return f"{self.name}{next(self.tokens)}"

    def life(self) -> Any:
        try:
            held: OwnedRecord = yield from claim("run", AttemptRecord(0, "2026-11-15T20:00:00.000Z"), self.token)
        except OutcomeUnknownError:
            self.end = "claim unknown"
            return
        except StoreError:
            self.end = "claim failed"
            return
        for number in range(self.commits):
            step = held.head.next_step + number
            mine = CheckpointRecord(step, held.head.attempt, "2026-11-15T20:00:00.000Z", inventory_sha256=self.token())
            yield Put(part_of(mine), b"part", ABSENT)
            try:
                held = yield from self.commit(held, self._next(held.head, mine), self.token)
            except SupersededError as error:
                self.believes.append(("committed" if error.landed else "superseded", mine))
                if not error.landed:
                    yield Delete(part_of(mine))
                self.end = "superseded"
                return
            except OutcomeUnknownError:
                self.believes.append(("unknown", mine))
                self.end = "unknown"
                return
            except StoreError:  # certainly nothing written
                self.believes.append(("failed", mine))
                yield Delete(part_of(mine))
                self.end = "failed"
                return
            self.believes.append(("committed", mine))
        self.end = "done"

    @staticmethod
    def _next(head: RunRecord, mine: CheckpointRecord) -> RunRecord:
        return replace(head, checkpoints=(mine, *head.checkpoints))


@dataclass
class World:
    """Writers, the bucket, and the one who chooses: ``pick(bound)`` decides who moves and what gets lost."""

    pick: Callable[[int], int]
    writers: list[Writer]
    faults_left: int
    kinds: tuple[str, ...] = LOST
    unreadable: bool = False
    """Whether reads may fail too."""
    bucket: Bucket = field(default_factory=Bucket)
    injected: int = 0

    def run(self) -> None:
        """Until every writer has ended and nothing is on its way."""
        lives = [(writer, writer.life()) for writer in self.writers]
        waiting: list[tuple[Any, Effect]] = []
        for _, life in lives:
            self._push(waiting, life, lambda life=life: next(life))
        while waiting or self.bucket.late:
            choice = self.pick(len(waiting) + len(self.bucket.late))
            if choice >= len(waiting):
                self._deliver(choice - len(waiting))
                continue
            life, effect = waiting.pop(choice)
            try:
                answer = self._perform(effect)
            except StoreError as error:
                self._push(waiting, life, lambda life=life, error=error: life.throw(error))
            else:
                self._push(waiting, life, lambda life=life, answer=answer: life.send(answer))

    def _push(self, waiting: list[tuple[Any, Effect]], life: Any, step: Callable[[], Effect]) -> None:
        """Sleeping, and writing or deleting one's own parts, is nobody else's business: it needs no schedule."""
        try:
            effect = step()
            while isinstance(effect, Sleep) or getattr(effect, "key", RECORD_KEY) != RECORD_KEY:
                effect = life.send(None if isinstance(effect, Sleep) else self._perform(effect))
        except StopIteration:
            return
        waiting.insert(0, (life, effect))

    def _deliver(self, number: int) -> None:
        put = self.bucket.late.pop(number)
        try:
            self.bucket.apply(put)
        except ConflictError:
            pass

    def _perform(self, effect: Effect) -> Any:
        match effect:
            case Get(key):
                if self.unreadable and self._fault(2):
                    raise StoreUnavailableError("the read failed")
                return self.bucket.get(key)
            case Put():
                return self._put(effect)
            case Delete(key):
                self.bucket.objects.pop(key, None)
                return None
        raise AssertionError(effect)

    def _fault(self, kinds: int) -> int:
        if not self.faults_left:
            return 0
        kind = self.pick(kinds)
        self.faults_left -= bool(kind)
        self.injected += bool(kind)
        return kind

    def _put(self, put: Put) -> str:
        if put.key != RECORD_KEY:
            return self.bucket.apply(put)
        match self.kinds[self._fault(len(self.kinds))]:
            case "fine":
                return self.bucket.apply(put)
            case "answer lost":
                try:
                    self.bucket.apply(put)
                except ConflictError:
                    pass
            case "answer lost, then conflict":
                self.bucket.apply(put)
                raise ConflictError("says a client that had already written it")
            case "late":
                self.bucket.late.append(put)
        raise OutcomeUnknownError("no answer")

    # -- what must hold

    def check(self) -> None:
        """Everything that suite F promises, after all writers have ended."""
        heads = self.bucket.heads
        assert all(before.attempt <= after.attempt for before, after in itertools.pairwise(heads)), "a stale commit"
        assert len({head.token for head in heads}) == len(heads), "one write was applied twice"
        ever = {row for head in heads for row in head.checkpoints}
        last = heads[-1] if heads else None
        for writer in self.writers:
            for belief, mine in writer.believes:
                if belief == "committed":
                    assert mine in (last.checkpoints if last else ()), f"{writer.name}: committed is not true"
                if belief in ("superseded", "failed"):
                    assert mine not in ever, f"{writer.name}: its own commit was called {belief}"
        self._check_parts(last)
        self._check_next(last)

    def _check_parts(self, last: RunRecord | None) -> None:
        for row in last.checkpoints if last else ():
            assert part_of(row) in self.bucket.objects, f"the committed checkpoint {row.name} lost its parts"

    def _check_next(self, last: RunRecord | None) -> None:
        """The next attempt converges, without faults, on top of everything that is true."""
        after = Writer("next", commits=1)
        World(pick=lambda bound: 0, writers=[after], faults_left=0, bucket=self.bucket).run()
        assert after.end == "done", after.end
        final = self.bucket.heads[-1]
        assert final.attempt == (last.attempt if last else 0) + 1
        assert last is None or final.checkpoints[1:] == last.checkpoints
        self._check_parts(final)
