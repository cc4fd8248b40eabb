"""A store in memory: for tests, simulations and trying things out. Same promises, except surviving the process."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator

from stayfast.errors import ConflictError, KeyMissingError
from stayfast.filesystem import Buffer
from stayfast.storage.stores.protocol import ABSENT, Blob, Entry, check_key, check_prefix


class MemoryStore:
    """Objects in a dictionary; two stores opened with the same URL are the same place."""

    example = "memory://name"
    enforces_preconditions = True
    _places: dict[str, tuple[dict[str, tuple[bytes, str]], Iterator[int], threading.Lock]] = {}

    def __init__(self, url: str = "") -> None:
        self.url = url or f"memory://{id(self):x}"
        fresh: tuple[dict[str, tuple[bytes, str]], Iterator[int], threading.Lock] = (
            {},
            itertools.count(1),
            threading.Lock(),
        )
        self._objects, self._counter, self._lock = self._places.setdefault(url, fresh) if url else fresh

    @classmethod
    def open_url(cls, url: str) -> MemoryStore:
        """The store of this name in this process."""
        return cls(url)

    def get(self, key: str, *, offset: int = 0, length: int | None = None) -> Blob:
        with self._lock:
            found = self._objects.get(check_key(key))
        if found is None:
            raise KeyMissingError(f"there is no {key} in {self.url}")
        data, generation = found
        end = len(data) if length is None else offset + length
        return Blob(data[offset:end], generation)

    def read_into(self, key: str, buffer: memoryview, *, offset: int = 0) -> int:
        data = self.get(key, offset=offset, length=len(buffer)).data
        buffer.cast("B")[: len(data)] = data
        return len(data)

    def put(self, key: str, data: Buffer, *, if_generation: str | None = None) -> str:
        check_key(key)
        with self._lock:
            now = self._objects.get(key)
            current = ABSENT if now is None else now[1]
            if if_generation is not None and current != if_generation:
                raise ConflictError(f"{key} in {self.url} is at generation {current}, not {if_generation}")
            generation = str(next(self._counter))
            self._objects[key] = (bytes(data), generation)
            return generation

    def keys(self, prefix: str = "") -> Iterator[Entry]:
        check_prefix(prefix)
        with self._lock:
            found = sorted((key, len(value[0])) for key, value in self._objects.items() if key.startswith(prefix))
        return iter([Entry(key, size) for key, size in found])

    def delete(self, key: str) -> None:
        with self._lock:
            self._objects.pop(check_key(key), None)

    def remove_leftovers(self) -> int:
        return 0

    def close(self) -> None:
        """Nothing to give back."""
