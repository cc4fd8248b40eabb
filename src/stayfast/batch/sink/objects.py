"""Results as one object per key in any store: a directory or a bucket.

The object's name is the key, with every byte that names may not hold written as ``=XX``; a key too long for a name is
stored under its digest. The object is one line of JSON (key, generation, recorded_at, kind, token), then the payload.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
import sqlite3
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from stayfast.batch.sink.protocol import Payload, Receipt, Result
from stayfast.clock import Clock, SystemClock, to_rfc3339
from stayfast.errors import (
    ConflictError,
    KeyMissingError,
    OutcomeUnknownError,
    SinkError,
    SinkUnavailableError,
    StoreError,
    StoreUnavailableError,
)
from stayfast.storage.stores.protocol import ABSENT, Store

PREFIX = "results/"
_UNSAFE = re.compile(rb"[^A-Za-z0-9._-]")
_LONGEST = 200
_THREADS = 16
_TRIES = 5


def object_name(key: str) -> str:
    """Where the result of a key is stored."""
    raw = key.encode()
    name = _UNSAFE.sub(lambda found: b"=%02X" % found.group()[0], raw).decode()
    if len(name) > _LONGEST:
        return f"{PREFIX}=-{hashlib.sha256(raw).hexdigest()}"
    if name.startswith("."):
        name = "=2E" + name[1:]
    return PREFIX + name


class ObjectSink:
    """One object per key; the store's create-only put makes the first writer win."""

    database: str | None = None

    def __init__(self, store: Store, *, clock: Clock | None = None) -> None:
        self.url = store.url
        self._store = store
        self._clock = clock or SystemClock()
        self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="stayfast-sink")

    def record(self, key: str, payload: Payload, generation: int = 0, *, replace: bool = False) -> Receipt:
        name, data = object_name(key), self._encode(key, payload, generation)
        condition = ABSENT
        for _ in range(_TRIES):
            try:
                self._store.put(name, data, if_generation=condition)
                return Receipt(key, generation, written=True)
            except ConflictError:
                found = self._read(name)
                if found is None:
                    condition = ABSENT
                    continue
                header, _, condition = found
                if not replace or generation <= header["generation"]:
                    # A lost answer makes our own write look like a conflict: the bytes tell.
                    return Receipt(key, header["generation"], written=header == json.loads(data.partition(b"\n")[0]))
            except (OutcomeUnknownError, StoreUnavailableError):
                continue  # the same conditional write may be sent again
            except StoreError as error:
                raise SinkError(f"cannot record {key!r}: {error}") from error
        raise SinkUnavailableError(f"{self.url} kept failing while {key!r} was recorded", help="it is tried again")

    def record_all(self, results: Sequence[Result], *, replace: bool = False, transaction: Any = None) -> None:
        assert transaction is None, "objects cannot join a transaction"
        list(self._pool.map(lambda row: self.record(*row, replace=replace), results))

    def missing(self, keys: Sequence[str]) -> list[str]:
        found = list(self._pool.map(self._exists, keys))
        return [key for key, there in zip(keys, found, strict=True) if not there]

    def get(self, key: str) -> Payload | None:
        found = self._read(object_name(key))
        if found is None:
            return None
        header, body, _ = found
        return body.decode() if header["kind"] == "json" else body

    def keys(self) -> Iterator[str]:
        """Listings come in the order of names, not of keys: sorted on disk, so that memory stays bounded."""
        with tempfile.TemporaryDirectory(prefix="stayfast-") as directory:
            spool = sqlite3.connect(os.path.join(directory, "keys.db"), isolation_level=None)
            spool.execute("PRAGMA synchronous=OFF")
            spool.execute("CREATE TABLE found (key TEXT PRIMARY KEY) WITHOUT ROWID")
            spool.execute("BEGIN")
            spool.executemany("INSERT OR IGNORE INTO found VALUES (?)", ((key,) for key in self._listed()))
            spool.execute("COMMIT")
            try:
                for (key,) in spool.execute("SELECT key FROM found ORDER BY key"):
                    yield key
            finally:
                spool.close()

    def close(self) -> None:
        self._pool.shutdown()
        self._store.close()

    # -- inside

    def _listed(self) -> Iterator[str]:
        for entry in self._store.keys(PREFIX):
            name = entry.key[len(PREFIX) :]
            if name.startswith("=-"):
                found = self._read(entry.key)
                if found is not None:
                    yield found[0]["key"]
            else:
                yield re.sub(rb"=([0-9A-F]{2})", lambda hit: bytes([int(hit[1], 16)]), name.encode()).decode()

    def _exists(self, key: str) -> bool:
        try:
            self._store.get(object_name(key), length=1)
        except KeyMissingError:
            return False
        except StoreError as error:
            raise SinkUnavailableError(f"cannot look up {key!r}: {error}") from error
        return True

    def _encode(self, key: str, payload: Payload, generation: int) -> bytes:
        header = {
            "key": key,
            "generation": generation,
            "recorded_at": to_rfc3339(self._clock.wall()),
            "kind": "json" if isinstance(payload, str) else "bytes",
            "token": secrets.token_hex(8),  # tells our own write from an equal one of somebody else
        }
        body = payload.encode() if isinstance(payload, str) else payload
        return json.dumps(header).encode() + b"\n" + body

    def _read(self, name: str) -> tuple[dict[str, Any], bytes, str] | None:
        try:
            blob = self._store.get(name)
        except KeyMissingError:
            return None
        except StoreError as error:
            raise SinkUnavailableError(f"cannot read {name} in {self.url}: {error}") from error
        head, _, body = blob.data.partition(b"\n")
        try:
            header = json.loads(head)
            if not isinstance(header["key"], str) or not isinstance(header["generation"], int):
                raise ValueError("fields of the wrong kind")
        except (ValueError, KeyError, TypeError) as error:
            raise SinkError(
                f"{name} in {self.url} is not a result: {error}", help="remove it, or use a fresh URL"
            ) from None
        return header, body, blob.generation
