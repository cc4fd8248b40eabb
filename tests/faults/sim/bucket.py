"""A bucket behind a bad network: requests and answers get lost, arrive late or twice, and a process may be cut off."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from faults.sim.schedule import Process, Scheduler
from stayfast.errors import ConflictError, KeyMissingError, OutcomeUnknownError, StoreFullError, StoreUnavailableError
from stayfast.filesystem import Buffer
from stayfast.storage.stores.protocol import ABSENT, Blob, Entry

PUT = ("request lost", "answer lost", "answer lost, then conflict", "late", "late and twice", "503 after apply", "429")
GET = ("reset", "torn read")
KEYS = ("stale list", "503")
DELETE = ("request lost", "answer lost")
Seen = Callable[[str, str, str], None]
"""Told ``put`` or ``delete``, the key, and the process that asked for it."""


@dataclass
class Late:
    """A write on its way."""

    due: float
    key: str
    data: bytes
    if_generation: str | None
    writer: str


@dataclass
class Bucket:
    """What is stored, strongly consistent; and what is still on the wire."""

    scheduler: Scheduler
    seen: Seen = lambda what, key, writer: None
    objects: dict[str, tuple[bytes, str]] = field(default_factory=dict)
    late: list[Late] = field(default_factory=list)
    counter: int = 0
    full_until: float = 0.0

    def get(self, key: str) -> Blob:
        found = self.objects.get(key)
        if found is None:
            raise KeyMissingError(f"there is no {key}")
        return Blob(*found)

    def put(self, key: str, data: bytes, if_generation: str | None, writer: str) -> str:
        now = self.objects.get(key)
        if if_generation is not None and if_generation != (ABSENT if now is None else now[1]):
            raise ConflictError(f"{key} is at generation {ABSENT if now is None else now[1]}, not {if_generation}")
        self.counter += 1
        self.objects[key] = (data, str(self.counter))
        self.seen("put", key, writer)
        return str(self.counter)

    def delete(self, key: str, writer: str) -> None:
        if self.objects.pop(key, None) is not None:
            self.seen("delete", key, writer)

    def deliver(self, *, all_of_it: bool = False) -> None:
        """What was late arrives when its time has come; the preconditions are judged then."""
        due = [late for late in self.late if all_of_it or late.due <= self.scheduler.now]
        self.late = [late for late in self.late if not (all_of_it or late.due <= self.scheduler.now)]
        for late in due:
            self.scheduler.log(f"arrives late: put {late.key}")
            self._try(late.key, late.data, late.if_generation, late.writer)

    def _try(self, key: str, data: bytes, if_generation: str | None, writer: str) -> None:
        try:
            self.put(key, data, if_generation, writer)
        except ConflictError:
            pass


class ProcessStore:
    """``Store`` for one process: each request is a point of the schedule, and may go wrong on either way."""

    def __init__(self, bucket: Bucket, scheduler: Scheduler, process: Process, rate: float) -> None:
        self.url = "sim://bucket/run"
        self._bucket, self._scheduler, self._process, self._rate = bucket, scheduler, process, rate
        self._listed: list[Entry] = []

    def _enter(self, what: str, kinds: tuple[str, ...]) -> str:
        self._scheduler.point(what)
        self._bucket.deliver()
        if self._scheduler.now < self._process.cut_off_until:
            return kinds[self._bucket.counter % len(kinds)] if "answer lost" in kinds else "cut off"
        return self._scheduler.fault(self._rate, kinds)

    def get(self, key: str, *, offset: int = 0, length: int | None = None) -> Blob:
        kind = self._enter(f"get {key}", GET)
        if kind:
            raise StoreUnavailableError(f"{kind} while reading {key}")
        blob = self._bucket.get(key)
        return Blob(blob.data[offset : None if length is None else offset + length], blob.generation)

    def read_into(self, key: str, buffer: memoryview, *, offset: int = 0) -> int:
        kind = self._enter(f"read {key}", GET)
        if kind:
            buffer[: len(buffer) // 2] = b"\xff" * (len(buffer) // 2)
            raise StoreUnavailableError(f"{kind} while reading {key}")
        data = self._bucket.get(key).data[offset : offset + len(buffer)]
        buffer.cast("B")[: len(data)] = data
        return len(data)

    def put(self, key: str, data: Buffer, *, if_generation: str | None = None) -> str:
        copy, bucket, name = bytes(data), self._bucket, self._process.name
        kind = self._enter(f"put {key} if {if_generation}", PUT)
        if not kind:
            if self._scheduler.now < bucket.full_until:
                raise StoreFullError(f"no quota for {key}")
            return bucket.put(key, copy, if_generation, name)
        if kind in ("429", "cut off"):
            raise StoreUnavailableError(f"{kind}: {key}")
        if kind == "answer lost, then conflict":
            bucket.put(key, copy, if_generation, name)
            raise ConflictError(f"{key} exists, says a client that wrote it itself")
        if kind in ("answer lost", "503 after apply"):
            bucket._try(key, copy, if_generation, name)
        if kind.startswith("late"):
            for _ in range(2 if "twice" in kind else 1):
                due = self._scheduler.now + self._scheduler.detail.choice((0.05, 1.0, 10.0, 100.0))
                bucket.late.append(Late(due, key, copy, if_generation, name))
        raise OutcomeUnknownError(f"{kind}: {key}")

    def keys(self, prefix: str = "") -> Iterator[Entry]:
        kind = self._enter(f"list {prefix}", KEYS)
        if kind in ("503", "cut off"):
            raise StoreUnavailableError(f"{kind} for a listing")
        now = [Entry(key, len(value[0])) for key, value in sorted(self._bucket.objects.items())]
        rows, self._listed = (self._listed if kind else now), now
        return iter([row for row in rows if row.key.startswith(prefix)])

    def delete(self, key: str) -> None:
        kind = self._enter(f"delete {key}", DELETE)
        if kind != "request lost" and kind != "cut off":
            self._bucket.delete(key, self._process.name)
        if kind:
            raise StoreUnavailableError(f"{kind} while deleting {key}")

    def close(self) -> None:
        """Nothing to give back."""
