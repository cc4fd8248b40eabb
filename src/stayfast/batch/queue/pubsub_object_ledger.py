"""The ledger as objects in a store: one small object per key, replaced only under its generation."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from stayfast.batch.queue.protocol import storable_text
from stayfast.batch.queue.pubsub_ledger import Row
from stayfast.batch.queue.validation import check_same_payload
from stayfast.errors import (
    ConflictError,
    KeyMissingError,
    OutcomeUnknownError,
    QueueError,
    QueueUnavailableError,
    StoreError,
    UrlError,
)
from stayfast.storage.stores.protocol import ABSENT, Store

_TRIES = 8
_LONGEST = 240


class ObjectLedger:
    """``ledger/<queue>/<key in hexadecimal>``: hexadecimal, so that a listing is in key order."""

    def __init__(self, store: Store, queue: str) -> None:
        self._store, self._queue = store, queue
        self._prefix = f"ledger/{queue}/"

    def _name(self, key: str) -> str:
        text = key.encode().hex()
        if len(text) > _LONGEST:
            help_ = f"use at most {_LONGEST // 2} bytes, or a sink in a database"
            raise UrlError(f"the key {key[:40]!r}… is too long for a ledger in a store", help=help_)
        return self._prefix + text

    def add(self, rows: Sequence[tuple[str, str]], *, replace: bool) -> list[tuple[str, str]]:
        wanted: dict[str, str] = {}
        for key, payload in rows:
            fresh = {"key": key, "payload": payload, "published": 0, "failures": 0, "dead": 0, "reason": ""}
            row = self._change(key, lambda old, new=fresh: new if old is None or replace else old)
            check_same_payload(key, self._queue, row["payload"], payload)
            if not row["published"]:
                wanted[key] = payload
        return list(wanted.items())

    def mark_published(self, keys: Sequence[str]) -> None:
        for key in keys:
            self._change(key, lambda old: {**(old or {}), "published": 1})

    def fail(self, key: str, reason: str, *, most: int, final: bool) -> tuple[int, bool]:
        def count(old: dict[str, Any] | None) -> dict[str, Any]:
            old = old or {"key": key, "payload": "null", "published": 1, "failures": 0}
            failures = old["failures"] + 1
            dead = int(final or failures >= most or bool(old.get("dead")))
            return {**old, "failures": failures, "reason": storable_text(reason), "dead": dead}

        row = self._change(key, count)
        return row["failures"], bool(row["dead"])

    def page(self, after: str, limit: int = 5000) -> list[Row]:
        found: list[Row] = []
        start = self._name(after) if after else ""
        for entry in self._store.keys(self._prefix):  # in key order: what follows the page is on the next one
            if len(found) >= limit:
                break
            row = self._read(entry.key)[0] if entry.key > start else None
            if row is not None:
                found.append(_row(row))
        return found

    def payload(self, key: str) -> str | None:
        row = self._read(self._name(key))[0]
        return None if row is None else row["payload"]

    def retry(self, keys: Sequence[str] | None) -> list[tuple[str, str]]:
        if keys is None:
            keys = [row.key for row in self.page("", 1 << 30) if row.dead]
        revived = []
        for key in keys:
            row = self._read(self._name(key))[0]
            if row is not None and row["dead"]:
                self._change(key, lambda old: {**(old or {}), "dead": 0, "failures": 0, "reason": "", "published": 0})
                revived.append((key, row["payload"]))
        return revived

    def close(self) -> None:
        self._store.close()

    def _change(self, key: str, change: Any) -> dict[str, Any]:
        """Read, change, write under the generation that was read; after losing a race, once more."""
        name = self._name(key)
        for _ in range(_TRIES):
            old, generation = self._read(name)
            new: dict[str, Any] = change(old)
            if new == old:
                return new
            try:
                self._store.put(name, json.dumps(new).encode(), if_generation=generation)
                return new
            except (ConflictError, OutcomeUnknownError):
                continue
            except StoreError as error:
                raise QueueUnavailableError(f"the ledger cannot be written: {error}") from error
        raise QueueUnavailableError(f"{name} in {self._store.url} kept changing", help="it is tried again")

    def _read(self, name: str) -> tuple[dict[str, Any] | None, str]:
        try:
            blob = self._store.get(name)
        except KeyMissingError:
            return None, ABSENT
        except StoreError as error:
            raise QueueUnavailableError(f"the ledger cannot be read: {error}") from error
        try:
            row: dict[str, Any] = json.loads(blob.data)
            _row(row)
        except (ValueError, KeyError, TypeError) as error:
            raise QueueError(
                f"{name} in {self._store.url} is not an entry of a ledger: {error!r}",
                help="remove it, and enqueue again",
            ) from None
        return row, blob.generation


def _row(row: dict[str, Any]) -> Row:
    return Row(row["key"], row["payload"], bool(row["published"]), row["failures"], bool(row["dead"]), row["reason"])
