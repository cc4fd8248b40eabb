"""A store that loses requests and answers, by seed, and counts what it did. Wraps any real store."""

from __future__ import annotations

import collections
import random
from collections.abc import Iterator

from stayfast.errors import ConflictError, OutcomeUnknownError, StoreUnavailableError
from stayfast.filesystem import Buffer
from stayfast.storage.stores.protocol import Blob, Entry, Store

PUT_FAULTS = ("request lost", "answer lost", "answer lost, then conflict", "409", "429", "503 after apply", "late")
GET_FAULTS = ("reset", "stall", "torn read", "429")


class FaultStore:
    """``rate`` of all calls go wrong; ``calm()`` ends that and lets late writes arrive."""

    def __init__(self, inner: Store, seed: int, *, rate: float) -> None:
        self.inner = inner
        self.url = inner.url
        self.random = random.Random(seed)
        self.rate = rate
        self.injected: collections.Counter[str] = collections.Counter()
        self._late: list[tuple[str, bytes, str | None]] = []
        self._listed: list[Entry] = []

    def calm(self) -> None:
        self.rate = 0.0
        while self._late:
            self._arrive()

    def _fault(self, *kinds: str) -> str:
        if self._late and self.random.random() < 0.3:
            self._arrive()
        if self.random.random() >= self.rate:
            return ""
        kind = self.random.choice(kinds)
        self.injected[kind] += 1
        return kind

    def _arrive(self) -> None:
        key, data, if_generation = self._late.pop(self.random.randrange(len(self._late)))
        self._apply(key, data, if_generation)

    def _apply(self, key: str, data: bytes, if_generation: str | None) -> None:
        try:
            self.inner.put(key, data, if_generation=if_generation)
        except ConflictError:
            pass

    def get(self, key: str, *, offset: int = 0, length: int | None = None) -> Blob:
        kind = self._fault(*GET_FAULTS)
        if kind:
            raise StoreUnavailableError(f"{kind} while reading {key}")
        return self.inner.get(key, offset=offset, length=length)

    def read_into(self, key: str, buffer: memoryview, *, offset: int = 0) -> int:
        kind = self._fault(*GET_FAULTS)
        if kind:
            buffer[: len(buffer) // 2] = b"\xff" * (len(buffer) // 2)
            raise StoreUnavailableError(f"{kind} while reading {key}")
        return self.inner.read_into(key, buffer, offset=offset)

    def put(self, key: str, data: Buffer, *, if_generation: str | None = None) -> str:
        kind = self._fault(*PUT_FAULTS)
        if not kind:
            return self.inner.put(key, data, if_generation=if_generation)
        if kind == "429":
            raise StoreUnavailableError(f"429 for {key}")
        if kind == "answer lost, then conflict":
            self.inner.put(key, data, if_generation=if_generation)
            raise ConflictError(f"{key} exists, says a client that wrote it itself")
        if kind in ("answer lost", "503 after apply"):
            self._apply(key, bytes(data), if_generation)
        if kind == "late":
            self._late.append((key, bytes(data), if_generation))
        raise OutcomeUnknownError(f"{kind}: {key}")

    def keys(self, prefix: str = "") -> Iterator[Entry]:
        kind = self._fault("stale list", "503")
        if kind == "503":
            raise StoreUnavailableError("503 for a listing")
        now = list(self.inner.keys())
        rows, self._listed = (self._listed if kind else now), now
        return iter([row for row in rows if row.key.startswith(prefix)])

    def delete(self, key: str) -> None:
        kind = self._fault("reset", "answer lost")
        if kind == "answer lost":
            self.inner.delete(key)
        if kind:
            raise StoreUnavailableError(f"{kind} while deleting {key}")
        self.inner.delete(key)

    def close(self) -> None:
        self.inner.close()
