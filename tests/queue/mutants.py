"""Planted bugs: what somebody might write one day, each to be found by some suite. Applied in test processes only."""

from __future__ import annotations

from typing import Any

from holdfast.queue import postgres_schema, sqlite_schema
from holdfast.queue.sqlite import SqliteQueue
from holdfast.runtime.pump import Pump
from holdfast.stores import sqlite


def plant(name: str) -> None:
    """Change the code of this process."""
    {
        "ack before store": _ack_before_store,
        "autocommit between record and ack": _autocommit,
        "no fence": _no_fence,
        "lease by local clock": _lease_by_local_clock,
        "synchronous=NORMAL": _synchronous_normal,
    }[name]()


def _ack_before_store() -> None:
    """The queue hears that it is done before the sink has it."""
    original = Pump._cycle

    def cycle(self: Any) -> Any:
        record_all, held = self._sink.record_all, []
        if self._fused:
            return original(self)
        self._sink.record_all = lambda results, **options: held.append((results, options))
        try:
            result = original(self)
        finally:
            self._sink.record_all = record_all
        for results, options in held:
            record_all(results, **options)
        return result

    Pump._cycle = cycle  # type: ignore[method-assign]


def _autocommit() -> None:
    """Queue and sink share a database, and yet each statement commits by itself, the acknowledgement first."""
    complete, record_all = SqliteQueue.complete, None

    def eager(self: Any, leases: Any) -> Any:
        kept = complete(self, leases)
        if self.connection.in_transaction:
            self.connection.execute("COMMIT")
            self.connection.execute("BEGIN IMMEDIATE")
        return kept

    del record_all
    SqliteQueue.complete = eager  # type: ignore[method-assign]


def _no_fence() -> None:
    """Whoever comes last is believed: neither owner nor generation is asked."""
    for name in ("COMPLETE", "RELEASE"):
        statement = getattr(sqlite_schema, name)
        setattr(
            sqlite_schema, name, statement.replace("AND generation=? AND holder=?", "AND ? IS NOT NULL AND ? IS NOT 0")
        )
        statement = getattr(postgres_schema, name)
        strict = "AND item.generation=mine.generation AND item.holder=%s RETURNING item.id, item.generation"
        loose = "AND %s IS NOT NULL RETURNING mine.id, mine.generation"
        assert strict in statement
        setattr(postgres_schema, name, statement.replace(strict, loose))


def _lease_by_local_clock() -> None:
    """Leases are written and judged by the wall clock of whoever looks."""
    SqliteQueue._now = lambda self: self._clock.wall()  # type: ignore[method-assign]


def _synchronous_normal() -> None:
    """The usual advice for WAL."""
    original = sqlite.connect

    def connect(path: str, *, readonly: bool = False) -> Any:
        connection = original(path, readonly=readonly)
        connection.execute("PRAGMA synchronous=NORMAL")
        return connection

    sqlite.connect = connect  # type: ignore[assignment]
