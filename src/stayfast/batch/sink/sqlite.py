"""Results in a table of a SQLite file."""

from __future__ import annotations

import contextlib
import json
import os
import re
import sqlite3
import threading
from collections.abc import Iterator, Sequence

from stayfast.batch.sink.protocol import Payload, Receipt, Result
from stayfast.clock import Clock, SystemClock, to_rfc3339
from stayfast.errors import SinkError, SinkGoneError, SinkMissingError, SinkUnavailableError, UrlError
from stayfast.storage.database import sqlite
from stayfast.storage.network.urls import parse_sqlite_url

_PAGE = 5000
_ROWS = 200
_COLUMNS = ["key", "payload", "generation", "recorded_at"]
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}\Z")


def check_table(name: str) -> str:
    """The name of a table if it is a plain one, and not one of ours."""
    if not _NAME.match(name) or name.lower().startswith(("stayfast_", "sqlite_", "pg_")):
        raise UrlError(
            f"{name[:80]!r} is not a table name",
            help="use up to 63 letters, digits and _, not starting with a digit, stayfast_, sqlite_ or pg_",
        )
    return name


class SqliteSink:
    """One row per key."""

    example = "sqlite:///path.db?table=t, sqlite://./here.db?table=t"

    @classmethod
    def open_url(cls, url: str, *, create: bool) -> SqliteSink:
        """The sink behind ``sqlite:///path.db?table=t``."""
        path, options = parse_sqlite_url(url, ("table",))
        return cls(path, options.get("table", "results"), create=create)

    def __init__(self, path: str, table: str = "results", *, clock: Clock | None = None, create: bool = True) -> None:
        self.table = check_table(table)
        self.url = f"sqlite://{path}?table={table}"
        self._clock = clock or SystemClock()
        self._lock = threading.RLock()
        if not create and os.path.isdir(os.path.dirname(path)) and not os.path.exists(path):
            raise SinkMissingError(f"there is no file {path}", help="check the path; `stayfast work` creates it")
        with self._errors():
            self._connection = sqlite.connect(path, readonly=not create)
            self._ensure_table(create)
        self.database: str | None = sqlite.file_identity(path)
        self._file = sqlite.OpenFile(path, SinkGoneError)
        self._into = f'INSERT INTO "{table}" (key, payload, generation, recorded_at) VALUES '
        self._conflict = (
            " ON CONFLICT (key) DO NOTHING",
            f""" ON CONFLICT (key) DO UPDATE SET payload=excluded.payload, generation=excluded.generation,
            recorded_at=excluded.recorded_at WHERE excluded.generation > "{table}".generation""",
        )

    def _ensure_table(self, create: bool) -> None:
        columns = [row[1] for row in self._connection.execute(f'PRAGMA table_info("{self.table}")')]
        if not columns and create:
            self._connection.execute(
                f'CREATE TABLE IF NOT EXISTS "{self.table}" (key TEXT PRIMARY KEY NOT NULL, payload NOT NULL, '
                "generation INTEGER NOT NULL, recorded_at TEXT NOT NULL) WITHOUT ROWID"
            )
        elif not columns:
            raise SinkMissingError(
                f"there is no table {self.table!r} in {self.url.split('?')[0]}",
                help="check ?table=; `stayfast work` creates it",
            )
        elif columns != _COLUMNS:
            raise UrlError(
                f"the table {self.table!r} in {self.url.split('?')[0]} has the columns {', '.join(columns)}, "
                f"not {', '.join(_COLUMNS)}",
                help="name another table with ?table=",
            )

    def record(self, key: str, payload: Payload, generation: int = 0, *, replace: bool = False) -> Receipt:
        with self._lock, self._errors():
            now = to_rfc3339(self._clock.wall())
            written = self._write(self._connection, [Result(key, payload, generation)], now, replace) > 0
            self._file.check()
            find = f'SELECT generation FROM "{self.table}" WHERE key=?'
            return Receipt(key, self._connection.execute(find, (key,)).fetchone()[0], written)

    def record_all(
        self, results: Sequence[Result], *, replace: bool = False, transaction: sqlite3.Connection | None = None
    ) -> None:
        if not results:
            return
        now = to_rfc3339(self._clock.wall())
        if transaction is not None:  # the queue's own: errors are its to translate
            self._write(transaction, results, now, replace)
            return
        with self._lock, self._errors():
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                self._write(self._connection, results, now, replace)
                self._connection.execute("COMMIT")
                self._file.check()
            except BaseException:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise

    def _write(self, connection: sqlite3.Connection, results: Sequence[Result], now: str, replace: bool) -> int:
        """Many rows per statement, for the same reason as in the queue: one step, not one per row."""
        count = 0
        for start in range(0, len(results), _ROWS):
            part = results[start : start + _ROWS]
            values: list[object] = []
            for row in part:
                values += row
                values.append(now)
            marks = ",".join(["(?,?,?,?)"] * len(part))
            count += connection.execute(self._into + marks + self._conflict[replace], values).rowcount
        return count

    def missing(self, keys: Sequence[str]) -> list[str]:
        query = f'SELECT key FROM "{self.table}" WHERE key IN (SELECT value FROM json_each(?))'
        with self._lock, self._errors():
            found = {row[0] for row in self._connection.execute(query, (json.dumps(list(keys)),))}
        return [key for key in keys if key not in found]

    def get(self, key: str) -> Payload | None:
        with self._lock, self._errors():
            row = self._connection.execute(f'SELECT payload FROM "{self.table}" WHERE key=?', (key,)).fetchone()
        return None if row is None else row[0]

    def keys(self) -> Iterator[str]:
        page = f'SELECT key FROM "{self.table}" WHERE key > ? ORDER BY key LIMIT ?'
        after = ""
        while True:
            with self._lock, self._errors():
                rows = self._connection.execute(page, (after, _PAGE)).fetchall()
            for (key,) in rows:
                yield key
            if len(rows) < _PAGE:
                return
            after = rows[-1][0]

    def close(self) -> None:
        self._connection.close()

    def _errors(self) -> contextlib.AbstractContextManager[None]:
        return sqlite.translate_errors(self.url, SinkUnavailableError, SinkError)
