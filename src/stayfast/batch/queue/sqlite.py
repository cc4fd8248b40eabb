"""The embedded queue: many processes of one machine on one SQLite file.

Leases are judged by the machine's monotonic clock, which all its processes share and nobody can set; together with the
boot id it stays right across restarts. Whoever claims also sweeps: owners whose lease ran out, or whose lock the kernel
has dropped because they died, lose their items on the spot.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import sqlite3
import threading
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from stayfast.batch.queue import sqlite_schema as sql
from stayfast.batch.queue.owner_lock import OwnerLock, boot_id
from stayfast.batch.queue.protocol import (
    LONGEST_BACKOFF_SECONDS,
    Lease,
    RemainingWork,
    RetryPolicy,
)
from stayfast.batch.queue.sql_queue import SqlQueue
from stayfast.batch.queue.validation import check_name, check_same_payload
from stayfast.clock import Clock, SystemClock
from stayfast.errors import QueueError, QueueGoneError, QueueUnavailableError, UrlError
from stayfast.storage.database import sqlite
from stayfast.storage.network.urls import parse_sqlite_url

LEASE_SECONDS = 15.0
_NUMBERS_TRIED = 100
_SWEEP_SECONDS = 0.25
_SLOW_SECONDS = 1.0  # a transaction that takes longer than this stood still


class SqliteQueue(SqlQueue):
    """A queue in a SQLite file."""

    _entries_page, _dead_page = sql.ENTRIES, sql.DEAD_ITEMS
    example = "sqlite:///path.db?queue=name, sqlite://./here.db?queue=name"

    @classmethod
    def open_url(cls, url: str, *, sink: str | None, policy: RetryPolicy | None, create: bool) -> SqliteQueue:  # noqa: ARG003
        """The queue behind ``sqlite:///path.db?queue=name``."""
        path, options = parse_sqlite_url(url, ("queue",))
        return cls(path, options.get("queue", "default"), policy=policy, create=create)

    def __init__(
        self,
        path: str,
        name: str = "default",
        *,
        clock: Clock | None = None,
        policy: RetryPolicy | None = None,
        lease_seconds: float = LEASE_SECONDS,
        create: bool = True,
    ) -> None:
        self.name = check_name(name)
        self.url = f"sqlite://{path}?queue={name}"
        self.lease_seconds = lease_seconds
        self._clock = clock or SystemClock()
        self._policy = policy or RetryPolicy()
        self._lock = threading.RLock()
        self._depth = 0  # of nested batches
        self._began = 0.0  # when the outermost was asked for
        self._boot = boot_id()
        self._next_sweep = 0.0
        with self._errors():
            self.connection = sqlite.connect(path, readonly=not create)
            if not create and not sqlite.schema_version(self.connection, "queue"):
                raise UrlError(f"there is no queue in {path}", help="check the path; `stayfast enqueue` makes one")
            sqlite.migrate(self.connection, "queue", sql.VERSION, sql.STEPS)
            self._queue = self._find_queue(create)
        self.database: str | None = sqlite.file_identity(path)
        self._file = sqlite.OpenFile(path, QueueGoneError)
        self._proof = OwnerLock(path + "-owners")

    def _find_queue(self, create: bool) -> int:
        find = "SELECT id FROM stayfast_queue WHERE name=?"
        row = self.connection.execute(find, (self.name,)).fetchone()
        if row is None and create:
            self.connection.execute("INSERT OR IGNORE INTO stayfast_queue (name) VALUES (?)", (self.name,))
            row = self.connection.execute(find, (self.name,)).fetchone()
        if row is None:
            names = [name for (name,) in self.connection.execute("SELECT name FROM stayfast_queue ORDER BY name")]
            known = f"it has {', '.join(names[:10])}" if names else "it has none"
            raise UrlError(f"there is no queue {self.name!r} in {self.url.split('?')[0]}", help=known)
        return int(row[0])

    # -- filling

    def _add(self, rows: list[tuple[str, str]], replace: bool) -> int:
        with self.batch():
            count = self.connection.executemany(
                sql.REPLACE if replace else sql.ADD, [(self._queue, key, payload) for key, payload in rows]
            ).rowcount
            if count < len(rows):
                self._refuse_changed(rows)
            return count

    def _refuse_changed(self, rows: list[tuple[str, str]]) -> None:
        """Keys that were there already are fine when they carry the same payload."""
        find = "SELECT payload FROM stayfast_item WHERE queue=? AND key=?"
        for key, payload in rows:
            stored = self.connection.execute(find, (self._queue, key)).fetchone()[0]
            check_same_payload(key, self.name, stored, payload)

    # -- working

    @contextlib.contextmanager
    def batch(self) -> Iterator[sqlite3.Connection]:
        with self._lock, self._errors():
            if self._depth:
                yield self.connection
                return
            self._began = self._now()  # before the lock is ours: the interpreter may be gone before we hear of it
            self.connection.execute("BEGIN IMMEDIATE")
            self._depth = 1
            registered = self._owner
            try:
                yield self.connection
                self._extend_leases_by_stall()
                self.connection.execute("COMMIT")
                self._file.check()
            except BaseException:
                if self.connection.in_transaction:
                    self.connection.execute("ROLLBACK")
                    with contextlib.suppress(sqlite3.Error):
                        self._extend_leases_by_stall()  # the time that we took was rolled back with the rest
                if registered is None and self._owner is not None:  # the registration was rolled back with the rest
                    self._proof.release(self._owner)
                    self._owner = None
                raise
            finally:
                self._depth = 0

    def _extend_leases_by_stall(self) -> None:
        """A transaction that stood still, the interpreter being elsewhere, kept every heartbeat from the file.

        So everybody gets back the time that we took, before we judge them and before others can; who died meanwhile is
        known by its lock, not by its lease.
        """
        while (held := self._now() - self._began) > _SLOW_SECONDS:
            self._began += held
            self.connection.execute("UPDATE stayfast_owner SET expires=expires+?", (held,))

    def claim(self, limit: int) -> list[Lease]:
        with self.batch():
            owner = self._ensure_owner()
            self._sweep(forced=False)
            leases = self._take(owner, limit)
            if len(leases) < limit and self._sweep(forced=True):
                leases += self._take(owner, limit - len(leases))
            return leases

    def _take(self, owner: int, limit: int) -> list[Lease]:
        row = self.connection.execute(sql.NEXT, (self._queue, limit)).fetchone()
        ids, keys, payloads, failures = map(json.loads, row)
        if not ids:
            return []
        generation = self.connection.execute(sql.GENERATION, (self._queue,)).fetchone()[0]
        self.connection.execute(sql.CLAIM, (owner, generation, row[0]))
        return list(map(Lease, ids, keys, payloads, itertools.repeat(generation), failures))

    def complete(self, leases: Sequence[Lease]) -> list[Lease]:
        if not leases:
            return []
        with self.batch():
            if self._settle(sql.COMPLETE, leases) == len(leases):
                return list(leases)
            found = self.connection.execute
            return [item for item in leases if found(sql.COMPLETED, (item.id, item.generation)).fetchone()]

    def _count_failure(
        self, transaction: sqlite3.Connection, lease: Lease, reason: str, delay_seconds: float | None
    ) -> int:
        state = sql.DEAD if delay_seconds is None else sql.DELAYED
        due = None if delay_seconds is None else self._clock.wall() + delay_seconds
        row = (state, due, reason, lease.id, lease.generation, self._owner)
        return transaction.execute(sql.FAIL, row).rowcount

    def release(self, leases: Sequence[Lease]) -> int:
        """Each claim's items in a statement of their own: no transaction is open between them, see ``_catch_up``."""
        if not leases:
            return 0
        with self._lock, self._errors():
            return self._settle(sql.RELEASE, leases)

    def _settle(self, statement: str, leases: Sequence[Lease]) -> int:
        """Run it for all leases that are still ours, claim by claim; returns how many were."""
        claims: dict[int, list[int]] = {}
        for lease in leases:
            claims.setdefault(lease.generation, []).append(lease.id)
        count = 0
        for generation, ids in claims.items():
            count += self.connection.execute(statement, (json.dumps(ids), generation, self._owner)).rowcount
        return count

    def release_all_except(self, leases: Sequence[Lease]) -> None:
        if self._owner is not None:
            ids = json.dumps([lease.id for lease in leases])
            with self._lock, self._errors():
                self.connection.execute(sql.RELEASE_OTHERS, (self._queue, self._owner, ids))

    # -- leases

    def renew(self, handles: Sequence[str]) -> list[str]:
        if not handles:
            return []
        owners = [int(handle) for handle in handles]
        with self._lock, self._errors():
            if self._extend(owners) == len(set(owners)):
                return []
            find = "SELECT id FROM stayfast_owner WHERE id IN (SELECT value FROM json_each(?))"
            kept = {row[0] for row in self.connection.execute(find, (json.dumps(owners),))}
        return [handle for handle in handles if int(handle) not in kept]

    def _extend(self, owners: list[int]) -> int:
        """A lease runs from now, and not from when we began to wait for a lock that somebody held for long."""
        while True:
            asked = self._now()
            count = self.connection.execute(sql.RENEW, (asked + self.lease_seconds, json.dumps(owners))).rowcount
            if self._now() - asked <= _SLOW_SECONDS:
                return count

    def record_crash(self, handles: Sequence[str], reason: str) -> int:
        due = self._clock.wall() + self._policy.delay_seconds(1)
        count = 0
        with self.batch():
            for handle in handles:
                row = (self._queue, int(handle), self._policy.max_failures, reason, due)
                count += self.connection.execute(sql.RECORD_CRASH, row).rowcount
                self.connection.execute("DELETE FROM stayfast_owner WHERE id=?", (int(handle),))
        return count

    def _now(self) -> float:
        return self._clock.monotonic()

    def _ensure_owner(self) -> int:
        """Every claim renews, and proves under the write lock that nobody has declared us dead."""
        if self._owner is None:
            self._owner = self._register()
            return self._owner
        if self._extend([self._owner]):
            return self._owner
        lost, self._owner = self._owner, None
        self._proof.release(lost)
        raise self._lease_lost(lost)

    def _register(self) -> int:
        """A number of our own.

        One whose registration was just rolled back may hold its byte for an instant longer than SQLite keeps its number
        from us: then the next number is ours. Who holds many of them holds the file, and is none of us.
        """
        self._proof.reopen_if_replaced(None)
        new = "INSERT INTO stayfast_owner (queue, boot, expires) VALUES (?, ?, ?) RETURNING id"
        for _ in range(_NUMBERS_TRIED):
            row = (self._queue, self._boot, self._now() + self.lease_seconds)
            owner = int(self.connection.execute(new, row).fetchone()[0])
            if self._proof.acquire(owner):
                return owner
            self.connection.execute("DELETE FROM stayfast_owner WHERE id=?", (owner,))
        raise QueueUnavailableError(
            f"another program has locked {self._proof.path}", help="end it, a backup perhaps; work goes on then"
        )

    def _sweep(self, *, forced: bool) -> int:
        """Free the items of dead owners and those whose back-off is over; returns how many became ready or died."""
        self._extend_leases_by_stall()
        now = self._now()
        if not forced and now < self._next_sweep:
            return 0
        self._next_sweep = now + _SWEEP_SECONDS
        self._proof.reopen_if_replaced(self._owner)
        count = 0
        owners = self.connection.execute(
            "SELECT id, boot, expires FROM stayfast_owner WHERE queue=? AND id IS NOT ?", (self._queue, self._owner)
        ).fetchall()
        for owner, boot, expires in owners:
            if boot != self._boot or expires <= now or not self._proof.is_alive(owner):
                count += self._expire(owner)
        wall = self._clock.wall()
        late = wall + 2 * LONGEST_BACKOFF_SECONDS  # nobody waits that long: the wall clock was set back
        return count + self.connection.execute(sql.MAKE_DELAYED_READY, (self._queue, wall, late)).rowcount

    def _expire(self, owner: int) -> int:
        limit = self._policy.max_deliveries
        row = (self._queue, owner, limit, self._expired_reason())
        count = self.connection.execute(sql.RELEASE_EXPIRED, row).rowcount
        self.connection.execute("DELETE FROM stayfast_owner WHERE id=?", (owner,))
        return count

    def remaining(self) -> RemainingWork:
        with self.batch():
            self._sweep(forced=True)
            ready = self.connection.execute(
                "SELECT 1 FROM stayfast_item WHERE queue=? AND holder=0 AND due IS NULL LIMIT 1", (self._queue,)
            ).fetchone()
            due = self.connection.execute(
                "SELECT min(due) FROM stayfast_item WHERE queue=? AND holder=-1", (self._queue,)
            ).fetchone()[0]
            leased = self.connection.execute(
                "SELECT 1 FROM stayfast_item WHERE queue=? AND holder>0 AND holder IS NOT ? LIMIT 1",
                (self._queue, self._owner),
            ).fetchone()
        delayed = None if due is None else max(0.0, due - self._clock.wall())
        return RemainingWork(claimable=ready is not None, delayed_seconds=delayed, leased=leased is not None)

    # -- looking

    def _count(self) -> tuple[list[tuple[int, int]], int]:
        query = "SELECT holder, count(*) FROM stayfast_item WHERE queue=? AND holder IS NOT NULL GROUP BY holder"
        with self._lock, self._errors():
            holders = self.connection.execute(query, (self._queue,)).fetchall()
            total = self.connection.execute("SELECT count(*) FROM stayfast_item WHERE queue=?", (self._queue,))
            count = int(total.fetchone()[0])
            self._file.check()
        return holders, count

    def _read(self, query: str, values: Sequence[object]) -> list[Any]:
        with self._lock, self._errors():
            return self.connection.execute(query, values).fetchall()

    def retry(self, keys: Iterable[str] | None = None) -> int:
        with self.batch():
            if keys is None:
                return self.connection.execute(sql.RETRY, (self._queue,)).rowcount
            rows = [(self._queue, key) for key in keys]
            return self.connection.executemany(sql.RETRY + " AND key=?", rows).rowcount

    def close(self) -> None:
        with self._lock:
            if self._owner is not None:
                with contextlib.suppress(QueueError), self.batch():
                    self.connection.execute(
                        "UPDATE stayfast_item SET holder=0, deliveries=deliveries-1 WHERE queue=? AND holder=?",
                        (self._queue, self._owner),
                    )
                    self.connection.execute("DELETE FROM stayfast_owner WHERE id=?", (self._owner,))
            self._owner = None
            self._proof.close()
            self.connection.close()

    def _errors(self) -> contextlib.AbstractContextManager[None]:
        return sqlite.translate_errors(self.url, QueueUnavailableError, QueueError)
