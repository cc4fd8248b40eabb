"""The ledger of a Pub/Sub queue: which keys were ever enqueued, kept beside the results.

Pub/Sub cannot say whether it is drained, how deep it is, or whether a key came before; an empty pull proves nothing. So
every key is written here first, create-only, and published after; what is missing from the sink and not marked dead
here is still to be done.
"""

from __future__ import annotations

import contextlib
import sqlite3
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol

from stayfast.batch.queue.protocol import DeadItem, Depth, storable_text
from stayfast.batch.queue.validation import check_same_payload
from stayfast.errors import QueueError, QueueGoneError, QueueUnavailableError, UrlError
from stayfast.storage.database import sqlite
from stayfast.storage.network.urls import parse_sqlite_url, parse_url, redacted_url

_PAGE = 5000


class Row(NamedTuple):
    """What the ledger knows about a key."""

    key: str
    payload: str
    published: bool
    failures: int
    dead: bool
    reason: str


class KeyLedger(Protocol):
    """The books of one queue."""

    def add(self, rows: Sequence[tuple[str, str]], *, replace: bool) -> list[tuple[str, str]]:
        """Write keys, once each; returns those that still have to be published."""

    def mark_published(self, keys: Sequence[str]) -> None:
        """Pub/Sub has them."""

    def fail(self, key: str, reason: str, *, most: int, final: bool) -> tuple[int, bool]:
        """Count a failure; returns how many there are now, and whether the key is dead."""

    def page(self, after: str, limit: int = _PAGE) -> list[Row]:
        """The next rows in key order."""

    def payload(self, key: str) -> str | None:
        """What was enqueued under the key; None for a key that never was."""

    def retry(self, keys: Sequence[str] | None) -> list[tuple[str, str]]:
        """Dead keys back to life; returns what has to be published again."""

    def close(self) -> None:
        """Give back connections."""


def open_ledger(sink: str, queue: str) -> KeyLedger:
    """The ledger in the sink's own database."""
    scheme = parse_url(sink).scheme
    if scheme == "sqlite":
        path, _ = parse_sqlite_url(sink, ("table",))
        return SqlLedger(_SqliteConnection(path), queue)
    if scheme in ("postgresql", "postgres"):
        return SqlLedger(_PostgresConnection(sink), queue)
    from stayfast.batch.queue.pubsub_object_ledger import ObjectLedger
    from stayfast.storage.stores.open_store import STORES, open_store

    if STORES.find(scheme) is None:
        raise UrlError(
            f"the sink URL {redacted_url(sink)!r} has no known scheme",
            help="use sqlite:///…, postgresql://… or a store",
        )
    return ObjectLedger(open_store(sink), queue)


def dead_items(ledger: KeyLedger) -> Iterator[DeadItem]:
    """The dead ones."""
    for row in all_rows(ledger):
        if row.dead:
            yield DeadItem(row.key, row.payload, row.failures, row.reason)


def all_rows(ledger: KeyLedger, after: str = "") -> Iterator[Row]:
    """All of it, streaming."""
    while True:
        found = ledger.page(after)
        yield from found
        if len(found) < _PAGE:
            return
        after = found[-1].key


Missing = Callable[[Sequence[str]], list[str]]


def ledger_depth(ledger: KeyLedger, missing: Missing, *, most: int | None = None) -> Depth | None:
    """How many keys are in which state; ``missing`` asks the sink. Nothing when there are more than ``most``."""
    total = dead = open_count = 0
    page: list[str] = []
    few = None if most is None else ledger.page("", most + 1)
    if few is not None and most is not None and len(few) > most:
        return None
    for row in all_rows(ledger) if few is None else few:
        total += 1
        dead += row.dead
        page += [] if row.dead else [row.key]
        if len(page) >= _PAGE:
            open_count += len(missing(page))
            page = []
    open_count += len(missing(page)) if page else 0
    return Depth(ready=open_count, delayed=0, leased=0, done=total - dead - open_count, dead=dead)


class _SqlConnection(Protocol):
    """A database that runs statements written with ``?`` marks."""

    def transaction(self) -> contextlib.AbstractContextManager[Any]: ...

    def close(self) -> None: ...


_TABLE = """
CREATE TABLE IF NOT EXISTS stayfast_ledger (
  queue TEXT NOT NULL, key TEXT {collate} NOT NULL, payload TEXT NOT NULL, published INTEGER NOT NULL DEFAULT 0,
  failures INTEGER NOT NULL DEFAULT 0, dead INTEGER NOT NULL DEFAULT 0, reason TEXT, PRIMARY KEY (queue, key))
"""


class SqlLedger:
    """One row per key."""

    def __init__(self, books: _SqlConnection, queue: str) -> None:
        self._books, self._queue = books, queue

    def add(self, rows: Sequence[tuple[str, str]], *, replace: bool) -> list[tuple[str, str]]:
        insert = "INSERT INTO stayfast_ledger (queue, key, payload) VALUES (?, ?, ?) ON CONFLICT (queue, key) DO " + (
            "UPDATE SET payload=excluded.payload, published=0, failures=0, dead=0, reason=NULL"
            if replace
            else "NOTHING"
        )
        find = "SELECT payload, published FROM stayfast_ledger WHERE queue=? AND key=?"
        wanted: dict[str, str] = {}
        with self._books.transaction() as run:
            for key, payload in rows:
                run(insert, (self._queue, key, payload))
                stored, published = run(find, (self._queue, key)).fetchone()
                check_same_payload(key, self._queue, stored, payload)
                if not published:
                    wanted[key] = payload
        return list(wanted.items())

    def mark_published(self, keys: Sequence[str]) -> None:
        with self._books.transaction() as run:
            for key in keys:
                run("UPDATE stayfast_ledger SET published=1 WHERE queue=? AND key=?", (self._queue, key))

    def fail(self, key: str, reason: str, *, most: int, final: bool) -> tuple[int, bool]:
        update = (
            "UPDATE stayfast_ledger SET failures=failures+1, reason=?, dead=CASE WHEN dead=1 OR failures+1 >= ? "
            "THEN 1 ELSE 0 END WHERE queue=? AND key=? RETURNING failures, dead"
        )
        with self._books.transaction() as run:
            row = run(update, (storable_text(reason), 1 if final else most, self._queue, key)).fetchone()
        return (most, True) if row is None else (row[0], bool(row[1]))

    def page(self, after: str, limit: int = _PAGE) -> list[Row]:
        query = (
            "SELECT key, payload, published, failures, dead, reason FROM stayfast_ledger "
            "WHERE queue=? AND key > ? ORDER BY key LIMIT ?"
        )
        with self._books.transaction() as run:
            found = run(query, (self._queue, after, limit)).fetchall()
        return [
            Row(key, payload, bool(p), failures, bool(d), reason or "")
            for key, payload, p, failures, d, reason in found
        ]

    def payload(self, key: str) -> str | None:
        query = "SELECT payload FROM stayfast_ledger WHERE queue=? AND key=?"
        with self._books.transaction() as run:
            row = run(query, (self._queue, key)).fetchone()
        return None if row is None else row[0]

    def retry(self, keys: Sequence[str] | None) -> list[tuple[str, str]]:
        update = (
            "UPDATE stayfast_ledger SET dead=0, failures=0, reason=NULL, published=0 WHERE queue=? AND dead=1{} "
            "RETURNING key, payload"
        )
        with self._books.transaction() as run:
            if keys is None:
                return [tuple(row) for row in run(update.format(""), (self._queue,)).fetchall()]
            found = [run(update.format(" AND key=?"), (self._queue, key)).fetchone() for key in keys]
        return [tuple(row) for row in found if row is not None]

    def close(self) -> None:
        self._books.close()


class _SqliteConnection:
    def __init__(self, path: str) -> None:
        self._place = f"sqlite://{path}"
        self._lock = threading.RLock()
        with self._errors():
            self._connection = sqlite.connect(path)
            self._connection.execute(_TABLE.format(collate="") + " WITHOUT ROWID")
        self._file = sqlite.OpenFile(path, QueueGoneError)

    @contextlib.contextmanager
    def transaction(self) -> Iterator[Any]:
        with self._lock, self._errors():
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield self._connection.execute
                self._connection.execute("COMMIT")
                self._file.check()
            except BaseException:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise

    def close(self) -> None:
        with contextlib.suppress(sqlite3.Error):
            self._connection.close()

    def _errors(self) -> contextlib.AbstractContextManager[None]:
        return sqlite.translate_errors(self._place, QueueUnavailableError, QueueError)


class _PostgresConnection:
    def __init__(self, url: str) -> None:
        from stayfast.storage.database.postgres import PostgresDatabase

        self._database = PostgresDatabase(url, QueueUnavailableError, QueueGoneError, QueueError)
        with self._database.transaction() as cursor:
            cursor.execute("SELECT pg_advisory_xact_lock(4606106)")
            cursor.execute(_TABLE.format(collate='COLLATE "C"'))

    @contextlib.contextmanager
    def transaction(self) -> Iterator[Any]:
        with self._database.transaction() as cursor:
            yield lambda statement, values: cursor.execute(statement.replace("?", "%s"), values)

    def close(self) -> None:
        self._database.close()
