"""PostgreSQL connections that queues and sinks share: opened one way, found gone, and opened again."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterable, Iterator
from typing import Any

from stayfast.errors import MissingExtraError, StayfastError, UrlError
from stayfast.randomness import keep_apart
from stayfast.storage.network.urls import parse_postgres_url, url_without_user

_IDLE_SECONDS = 10.0
_WHEN_GONE = "restore it, or enqueue again, and check with `stayfast audit`"


class PostgresDatabase:
    """One connection, opened when needed and again after it broke; used by one thread at a time.

    A transaction whose client falls silent is ended by the server after ``idle_seconds``: a machine that vanished, or a
    thread that waits for an interpreter somebody else will not let go of, must not keep its locks.
    """

    def __init__(
        self,
        url: str,
        unavailable: type[StayfastError],
        gone: type[StayfastError],
        broken: type[StayfastError],
        *,
        idle_seconds: float = _IDLE_SECONDS,
    ) -> None:
        try:
            import psycopg
        except ImportError as error:
            raise MissingExtraError(
                f"postgresql:// needs an extra that is not installed ({error})",
                help="run: pip install 'stayfast[postgres]'",
            ) from error
        keep_apart("psycopg")
        self._psycopg = psycopg
        self._conninfo, self.options = parse_postgres_url(url)
        self.url = url_without_user(url)
        self._unavailable, self._gone, self._broken = unavailable, gone, broken
        self._connection: Any = None
        self._was_connected = False
        # A worker's statements look up a few rows by index. Their plans are made once, when a table may still be small
        # enough to be read as a whole, and kept while it grows: so that is not offered. Where it is the only way, its
        # feigned price would make the server compile the statement, every time.
        self._settings = (
            f"SET idle_in_transaction_session_timeout={max(1, int(idle_seconds * 1000))}; "
            "SET enable_seqscan=off; SET jit=off"
        )
        self._depth = 0
        self.lock = threading.RLock()

    @contextlib.contextmanager
    def transaction(self) -> Iterator[Any]:
        """A cursor inside a transaction; nested ones join the outer."""
        with self.lock, self._errors():
            if self._depth:
                yield self._connection.cursor()
                return
            connection = self._connect()
            self._depth = 1
            try:
                with connection.cursor() as cursor:
                    cursor.execute("BEGIN")
                    yield cursor
                    cursor.execute("COMMIT")
            except BaseException:
                self._rollback()
                raise
            finally:
                self._depth = 0

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction is open, so that a statement now would be a part of it."""
        return self._depth > 0

    def execute(self, query: str, values: Any) -> Any:
        """One statement, committed by the server without another word from here; inside a transaction, a part of it."""
        with self.lock, self._errors():
            connection = self._connection if self._depth else self._connect()
            return connection.execute(query, values)

    def _rollback(self) -> None:
        """Roll back; a connection that cannot even do that is thrown away."""
        try:
            self._connection.rollback()
        except self._psycopg.Error:
            self.close()

    def _connect(self) -> Any:
        if self._connection is None or self._connection.closed or self._connection.broken:
            # prepared statements are kept: every statement of a worker runs thousands of times
            self._connection = self._psycopg.connect(self._conninfo, autocommit=True, prepare_threshold=2)
            self._connection.execute(self._settings)
            self._was_connected = True
        return self._connection

    def identity(self) -> str:
        """The same string for the same database, whatever URL leads to it."""
        with self.transaction() as cursor:
            cursor.execute(
                "SELECT oid::text, datname, pg_postmaster_start_time()::text FROM pg_database "
                "WHERE datname=current_database()"
            )
            return "postgresql:" + ":".join(cursor.fetchone())

    def close(self) -> None:
        """Give back the connection; the next transaction opens another."""
        with self.lock:
            connection, self._connection = self._connection, None
            if connection is not None:
                with contextlib.suppress(self._psycopg.Error):
                    connection.close()

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        errors = self._psycopg.errors
        try:
            yield
        except (errors.InvalidPassword, errors.InvalidAuthorizationSpecification, errors.InvalidCatalogName) as error:
            raise UrlError(f"{self.url} refuses us: {_first_line(error)}", help="check user and database") from error
        except (
            errors.SerializationFailure,
            errors.DeadlockDetected,
            errors.DiskFull,
            errors.TooManyConnections,
            errors.IdleInTransactionSessionTimeout,
            errors.ReadOnlySqlTransaction,  # a failover is under way
        ) as error:
            raise self._unavailable(f"{self.url} is not available: {_first_line(error)}") from error
        except errors.InsufficientPrivilege as error:
            raise UrlError(
                f"{self.url} refuses us: {_first_line(error)}", help="grant it, or use another URL"
            ) from error
        except (errors.UndefinedTable, errors.InvalidSchemaName) as error:
            raise self._gone(_lost(self.url, error), help=_WHEN_GONE) from error
        except (self._psycopg.OperationalError, self._psycopg.InterfaceError) as error:
            if _says_absent(error):
                if self._was_connected:
                    raise self._gone(_lost(self.url, error), help=_WHEN_GONE) from error
                raise UrlError(f"{self.url} refuses us: {_first_line(error)}", help="check the database") from error
            raise self._unavailable(f"{self.url} is not available: {_first_line(error)}", help="tried again") from error
        except self._psycopg.Error as error:
            raise self._broken(f"{self.url} cannot be used: {_first_line(error)}") from error


def _says_absent(error: BaseException) -> bool:
    """The driver has no code for a connection that is refused because the database does not exist."""
    text = str(error)
    return "FATAL" in text and 'database "' in text and "does not exist" in text


def _lost(url: str, error: BaseException) -> str:
    return f"{url} was removed or replaced while it was in use: {_first_line(error)}"


def int_array_literal(values: Iterable[int]) -> str:
    """An array of integers as the server reads it: the driver's own way takes each by itself and costs ten times."""
    return "{" + ",".join(map(str, values)) + "}"


def _first_line(error: BaseException) -> str:
    return next(iter(str(error).strip().splitlines()), type(error).__name__)


def migrate(cursor: Any, part: str, version: int, steps: dict[int, str]) -> None:
    """Bring one part of the database to its schema version; one migrator at a time, a newer schema is left alone."""
    cursor.execute("SELECT to_regclass('stayfast_schema') IS NOT NULL")
    if cursor.fetchone()[0]:
        cursor.execute("SELECT version FROM stayfast_schema WHERE part=%s", (part,))
        row = cursor.fetchone()
        if row is not None and row[0] == version:
            return
    cursor.execute("SELECT pg_advisory_xact_lock(4606104)")
    cursor.execute("CREATE TABLE IF NOT EXISTS stayfast_schema (part text PRIMARY KEY, version int NOT NULL)")
    cursor.execute("SELECT version FROM stayfast_schema WHERE part=%s", (part,))
    row = cursor.fetchone()
    found = 0 if row is None else row[0]
    if found > version:
        raise UrlError(
            f"{part} has schema version {found}, and this stayfast knows versions up to {version}",
            help="upgrade stayfast on this machine",
        )
    for step in range(found + 1, version + 1):
        cursor.execute(steps[step])
    cursor.execute(
        "INSERT INTO stayfast_schema VALUES (%s, %s) ON CONFLICT (part) DO UPDATE SET version=excluded.version",
        (part, version),
    )
