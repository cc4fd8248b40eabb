"""Results in a table of a PostgreSQL database.

JSON results are text in ``payload``; results that are bytes go into ``payload_bytes``, and ``payload`` is NULL then.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from stayfast.batch.sink.protocol import Payload, Receipt, Result
from stayfast.batch.sink.sqlite import check_table
from stayfast.errors import SinkError, SinkGoneError, SinkMissingError, SinkUnavailableError, UrlError
from stayfast.storage.database.postgres import PostgresDatabase, int_array_literal

_PAGE = 5000
_COLUMNS = ["key", "payload", "payload_bytes", "generation", "recorded_at"]


class PostgresSink:
    """One row per key."""

    example = "postgresql://…?table=t"

    @classmethod
    def open_url(cls, url: str, *, create: bool) -> PostgresSink:
        """The sink behind ``postgresql://…?table=t``."""
        return cls(url, create=create)

    def __init__(self, url: str, *, create: bool = True) -> None:
        self._database = PostgresDatabase(url, SinkUnavailableError, SinkGoneError, SinkError)
        if "queue" in self._database.options:
            raise UrlError(f"the sink URL {self._database.url!r} names a queue", help="?queue= belongs to the queue")
        table = check_table(self._database.options.get("table", "results"))
        self.table = f'"{table}"'
        self.url = self._database.url
        with self._database.transaction() as cursor:
            self._ensure_table(cursor, table, create)
        self.database: str | None = self._database.identity()
        self._insert = (
            f"INSERT INTO {self.table} (key, payload, payload_bytes, generation, recorded_at) "
            "SELECT key, payload, payload_bytes, generation, now() "
            "FROM unnest(%s::text[], %s::text[], %s::bytea[], %s::bigint[]) "
            "AS new (key, payload, payload_bytes, generation) ORDER BY key ON CONFLICT (key) DO "
        )
        self._conflict = (
            "NOTHING",
            f"""UPDATE SET payload=excluded.payload, payload_bytes=excluded.payload_bytes,
            generation=excluded.generation, recorded_at=excluded.recorded_at
            WHERE excluded.generation > {self.table}.generation""",
        )

    def _ensure_table(self, cursor: Any, table: str, create: bool) -> None:
        if create:
            cursor.execute("SELECT to_regclass(%s) IS NOT NULL", (self.table,))
            if not cursor.fetchone()[0]:
                cursor.execute("SELECT pg_advisory_xact_lock(4606105)")
                cursor.execute(
                    f'CREATE TABLE IF NOT EXISTS {self.table} (key text COLLATE "C" PRIMARY KEY, payload text, '
                    "payload_bytes bytea, generation bigint NOT NULL, recorded_at timestamptz NOT NULL)"
                )
        cursor.execute(
            "SELECT attname FROM pg_attribute WHERE attrelid=to_regclass(%s) AND attnum > 0 AND NOT attisdropped "
            "ORDER BY attnum",
            (self.table,),
        )
        columns = [row[0] for row in cursor.fetchall()]
        if not columns:
            raise SinkMissingError(
                f"there is no table {table!r} in {self.url}", help="check ?table=; `stayfast work` creates it"
            )
        if columns != _COLUMNS:
            raise UrlError(
                f"the table {table!r} in {self.url} has the columns {', '.join(columns)}, not {', '.join(_COLUMNS)}",
                help="name another table with ?table=",
            )

    def record(self, key: str, payload: Payload, generation: int = 0, *, replace: bool = False) -> Receipt:
        with self._database.transaction() as cursor:
            written = self._write(cursor, [Result(key, payload, generation)], replace) > 0
            cursor.execute(f"SELECT generation FROM {self.table} WHERE key=%s", (key,))
            return Receipt(key, cursor.fetchone()[0], written)

    def record_all(self, results: Sequence[Result], *, replace: bool = False, transaction: Any = None) -> None:
        if not results:
            return
        if transaction is not None:
            self._write(transaction, results, replace)
            return
        with self._database.transaction() as cursor:
            self._write(cursor, results, replace)

    def _write(self, cursor: Any, results: Sequence[Result], replace: bool) -> int:
        if replace:  # one statement cannot update a row twice: the highest generation of each key counts
            results = list({row[0]: row for row in sorted(results, key=lambda row: row[2])}.values())
        texts = [payload if isinstance(payload, str) else None for _, payload, _ in results]
        raw = None  # hardly anybody has any; a column that is left out is NULL
        if None in texts:
            raw = [payload if isinstance(payload, bytes) else None for _, payload, _ in results]
        values = ([row[0] for row in results], texts, raw, int_array_literal(row[2] for row in results))
        count: int = cursor.execute(self._insert + self._conflict[replace], values).rowcount
        return count

    def missing(self, keys: Sequence[str]) -> list[str]:
        query = f"SELECT key FROM {self.table} WHERE key=ANY(%s::text[])"
        found = {row[0] for row in self._database.execute(query, (list(keys),)).fetchall()}
        return [key for key in keys if key not in found]

    def get(self, key: str) -> Payload | None:
        query = f"SELECT payload, payload_bytes FROM {self.table} WHERE key=%s"
        row = self._database.execute(query, (key,)).fetchone()
        if row is None:
            return None
        text: Payload = row[0] if row[0] is not None else bytes(row[1])
        return text

    def keys(self) -> Iterator[str]:
        after = ""
        while True:
            with self._database.transaction() as cursor:
                cursor.execute(f"SELECT key FROM {self.table} WHERE key > %s ORDER BY key LIMIT %s", (after, _PAGE))
                rows = cursor.fetchall()
            for (key,) in rows:
                yield key
            if len(rows) < _PAGE:
                return
            after = rows[-1][0]

    def close(self) -> None:
        self._database.close()
