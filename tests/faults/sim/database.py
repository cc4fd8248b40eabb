"""SQLite itself, on a file in memory, with its write lock and its errors on the schedule.

The statements and their atomicity are SQLite's own; what is simulated is who waits for whom, a process that dies in a
transaction (SQLite rolls it back), and errors before a statement or after a commit. Power cuts are not: SQLite does not
write through our seam, and has a suite of real ones.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from typing import Any

from faults.sim.schedule import Killed, Process, Scheduler, Task

BUSY_SECONDS = 20.0
FAULTS = ("database is locked", "disk I/O error")
WRITES = ("UPDATE", "INSERT", "DELETE", "REPLACE")


class Database:
    """Who holds the write lock of one file."""

    def __init__(self, scheduler: Scheduler, path: str, committed: Callable[[], None]) -> None:
        self.scheduler, self.path, self.committed = scheduler, path, committed
        self.holder: Connection | None = None
        self.waiting: list[Task] = []

    def take(self, connection: Connection) -> None:
        until = self.scheduler.now + BUSY_SECONDS
        while self.holder is not None and self.holder is not connection:
            if self.scheduler.now >= until:
                raise sqlite3.OperationalError("database is locked")
            self.waiting.append(self.scheduler.current)
            self.scheduler.point("waits for the database", ready_at=until)
        self.holder = connection

    def free(self, connection: Connection) -> None:
        if self.holder is connection:
            self.holder = None
            for task in self.waiting:
                task.wake_at = 0.0
            self.waiting.clear()


class Connection:
    """A ``sqlite3.Connection`` of one process."""

    def __init__(self, real: sqlite3.Connection, database: Database, process: Process, rate: float) -> None:
        self._real, self._database, self._process, self._rate = real, database, process, rate
        self._scheduler = database.scheduler
        process.on_death.append(self.die)

    def die(self) -> None:
        """The kernel closes what the dead had open; SQLite drops what was not committed."""
        self._real.close()
        self._database.free(self)

    @property
    def in_transaction(self) -> bool:
        if not self._process.alive:
            raise Killed
        return self._real.in_transaction

    def execute(self, statement: str, values: Any = ()) -> sqlite3.Cursor:
        return self._run(statement, lambda: self._real.execute(statement, values))

    def executemany(self, statement: str, rows: Any) -> sqlite3.Cursor:
        return self._run(statement, lambda: self._real.executemany(statement, rows))

    def _run(self, statement: str, action: Callable[[], sqlite3.Cursor]) -> sqlite3.Cursor:
        word = statement.split(None, 1)[0]
        self._scheduler.point(" ".join(statement.split())[:60])
        if word == "ROLLBACK":
            found = action()
            self._database.free(self)
            return found
        kind = self._scheduler.fault(self._rate, (*FAULTS, "answer lost") if word == "COMMIT" else FAULTS)
        if kind and kind != "answer lost":
            raise sqlite3.OperationalError(kind)
        if word == "BEGIN":
            self._database.take(self)
            return action()
        if word == "COMMIT":
            found = action()
            self._database.free(self)
            self._database.committed()
            if kind:
                raise sqlite3.OperationalError("disk I/O error")
            return found
        if word in WRITES and not self._real.in_transaction:
            self._database.take(self)
            try:
                found = action()
            finally:
                self._database.free(self)
            self._database.committed()
            return found
        return action()

    def close(self) -> None:
        self._scheduler.point("close")
        self.die()
