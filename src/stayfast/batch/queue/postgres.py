"""The queue for workers on many machines: one PostgreSQL database, its clock, its locks.

No worker's own clock is ever asked: leases are written and judged by ``clock_timestamp()`` of the server. Claims skip
rows that others are claiming, and start where the last claim ended, so that they do not wade through the dead rows of
what was finished before; from time to time, and whenever that finds too little, they look from the beginning.

A transaction may stand still half-way, while the task holds the interpreter in a C call. So none of them holds a lock
that a heartbeat needs, the heartbeat waits for nobody, and what must end at once is a single statement of its own.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from stayfast.batch.queue import postgres_schema as sql
from stayfast.batch.queue.protocol import (
    Lease,
    RemainingWork,
    RetryPolicy,
)
from stayfast.batch.queue.sql_queue import SqlQueue
from stayfast.batch.queue.validation import check_name, check_same_payload
from stayfast.errors import QueueError, QueueGoneError, QueueUnavailableError, UrlError
from stayfast.storage.database.postgres import PostgresDatabase, int_array_literal, migrate

LEASE_SECONDS = 30.0
_SWEEP_SECONDS = 0.5
_RENEW_SECONDS = 1.0
_FROM_START_SECONDS = 1.0


class PostgresQueue(SqlQueue):
    """A queue in PostgreSQL."""

    _entries_page, _dead_page = sql.ENTRIES, sql.DEAD_ITEMS
    example = "postgresql://…?queue=name"

    @classmethod
    def open_url(cls, url: str, *, sink: str | None, policy: RetryPolicy | None, create: bool) -> PostgresQueue:  # noqa: ARG003
        """The queue behind ``postgresql://…?queue=name``."""
        return cls(url, policy=policy, create=create)

    def __init__(
        self, url: str, *, policy: RetryPolicy | None = None, lease_seconds: float = LEASE_SECONDS, create: bool = True
    ) -> None:
        idle = max(1.0, lease_seconds / 3)  # shorter than a lease: whoever is overtaken holds no locks any more
        self._database = PostgresDatabase(url, QueueUnavailableError, QueueGoneError, QueueError, idle_seconds=idle)
        self.name = check_name(self._database.options.get("queue", "default"))
        if "table" in self._database.options:
            raise UrlError(f"the queue URL {self._database.url!r} names a table", help="?table= belongs to the sink")
        self.url = self._database.url
        self.lease_seconds = lease_seconds
        self._policy = policy or RetryPolicy()
        self._after = 0
        self._next_sweep = self._next_from_start = self._next_renewal = 0.0
        with self._database.transaction() as cursor:
            if not create and not cursor.execute("SELECT to_regclass('stayfast_queue') IS NOT NULL").fetchone()[0]:
                raise UrlError(f"there is no queue in {self.url}", help="`stayfast enqueue` makes one")
            migrate(cursor, "queue", sql.VERSION, sql.STEPS)
            self._queue = self._find_queue(cursor, create)
        self.database: str | None = self._database.identity()

    def _find_queue(self, cursor: Any, create: bool) -> int:
        find = "SELECT id FROM stayfast_queue WHERE name=%s"
        row = cursor.execute(find, (self.name,)).fetchone()
        if row is None and create:
            cursor.execute("INSERT INTO stayfast_queue (name) VALUES (%s) ON CONFLICT DO NOTHING", (self.name,))
            row = cursor.execute(find, (self.name,)).fetchone()
        if row is None:
            raise UrlError(f"there is no queue {self.name!r} in {self.url}", help="check ?queue=")
        return int(row[0])

    # -- filling

    def _add(self, rows: list[tuple[str, str]], replace: bool) -> int:
        if replace:
            rows = list(dict(rows).items())  # one statement cannot update a row twice; the last one counts
        keys, payloads = [row[0] for row in rows], [row[1] for row in rows]
        with self.batch() as cursor:
            if not replace:
                _refuse_contradictions(rows)
            action = sql.REPLACE if replace else "NOTHING"
            added: int = cursor.execute(sql.ADD + action, (self._queue, keys, payloads)).rowcount
            if added < len(rows):
                for key, stored, payload in cursor.execute(sql.CHANGED, (keys, payloads, self._queue)).fetchall():
                    check_same_payload(key, self.name, stored, payload)
            return added

    # -- working

    @contextlib.contextmanager
    def batch(self) -> Iterator[Any]:
        with self._database.lock:
            registered = self._owner
            self._renew_when_due()
            try:
                with self._database.transaction() as cursor:
                    yield cursor
            except BaseException:
                if registered is None:  # if there was a registration, it was rolled back with the rest
                    self._owner = None
                raise

    def claim(self, limit: int) -> list[Lease]:
        with self.batch() as cursor:
            owner = self._ensure_owner(cursor)
            self._sweep(cursor, forced=False)
            now = time.monotonic()
            if now >= self._next_from_start:  # items that were given back lie behind
                self._next_from_start, self._after = now + _FROM_START_SECONDS, 0
            leases = self._take(cursor, owner, limit)
            if len(leases) < limit:
                self._sweep(cursor, forced=True)
                self._after = 0
                leases += self._take(cursor, owner, limit - len(leases))
            return leases

    def _take(self, cursor: Any, owner: int, limit: int) -> list[Lease]:
        values = {"queue": self._queue, "after": self._after, "limit": limit, "owner": owner}
        leases = sorted(map(Lease._make, cursor.execute(sql.CLAIM, values).fetchall()))
        if leases:
            self._after = leases[-1].id
        return leases

    def complete(self, leases: Sequence[Lease]) -> list[Lease]:
        if not leases:
            return []
        kept = self._settle(sql.COMPLETE, leases)
        return [lease for lease in leases if (lease.id, lease.generation) in kept]

    def release(self, leases: Sequence[Lease]) -> int:
        return len(self._settle(sql.RELEASE, leases)) if leases else 0

    def _settle(self, statement: str, leases: Sequence[Lease]) -> set[tuple[int, int]]:
        """Number and generation of those that were ours: an item that was lost and claimed again is ours once."""
        values = (
            int_array_literal(lease.id for lease in leases),
            int_array_literal(lease.generation for lease in leases),
            self._owner,
        )
        return set(self._database.execute(statement, values).fetchall())

    def _count_failure(self, transaction: Any, lease: Lease, reason: str, delay_seconds: float | None) -> int:
        values = {
            "over": delay_seconds is None,
            "reason": reason,
            "delay": delay_seconds or 0.0,
            "id": lease.id,
            "generation": lease.generation,
            "owner": self._owner,
        }
        count: int = transaction.execute(sql.FAIL, values).rowcount
        return count

    def release_all_except(self, leases: Sequence[Lease]) -> None:
        if self._owner is not None:
            self._database.execute(sql.RELEASE_OTHERS, (self._queue, self._owner, [lease.id for lease in leases]))

    # -- leases

    def renew(self, handles: Sequence[str]) -> list[str]:
        if not handles:
            return []
        owners = [int(handle) for handle in handles]
        kept = {row[0] for row in self._extend(owners)}
        if len(kept) < len(owners):  # lost, or passed over because somebody is renewing it at this very moment
            find = "SELECT id FROM stayfast_owner WHERE id=ANY(%s::bigint[])"
            kept |= {row[0] for row in self._database.execute(find, (owners,)).fetchall()}
        return [handle for handle in handles if int(handle) not in kept]

    def record_crash(self, handles: Sequence[str], reason: str) -> int:
        owners = [int(handle) for handle in handles]
        values = {
            "reason": reason,
            "limit": self._policy.max_failures,
            "delay": self._policy.delay_seconds(1),
            "queue": self._queue,
            "owners": owners,
        }
        with self.batch() as cursor:
            cursor.execute("DELETE FROM stayfast_owner WHERE id=ANY(%s::bigint[])", (owners,))
            count: int = cursor.execute(sql.RECORD_CRASH, values).rowcount
            return count

    def _renew_when_due(self) -> None:
        """Before a transaction, never in it: there it would lock our row against the heartbeat from outside."""
        now = time.monotonic()
        if self._owner is not None and now >= self._next_renewal and not self._database.in_transaction:
            self._next_renewal = now + min(_RENEW_SECONDS, self.lease_seconds / 3)
            self._extend([self._owner])

    def _extend(self, owners: list[int]) -> list[Any]:
        with self._database.lock:
            renew = sql.RENEW if self._database.in_transaction else sql.RENEW_ASYNC
            rows: list[Any] = self._database.execute(renew, (self.lease_seconds, owners)).fetchall()
            return rows

    def _ensure_owner(self, cursor: Any) -> int:
        """Every claim makes sure that nobody can declare us dead while we take items."""
        if self._owner is None:
            row = cursor.execute(sql.REGISTER, (self._queue, self.lease_seconds)).fetchone()
            self._owner = int(row[0])
            return self._owner
        if cursor.execute(sql.ALIVE, (self._owner,)).fetchone() is not None:
            return self._owner
        lost, self._owner = self._owner, None
        raise self._lease_lost(lost)

    def _sweep(self, cursor: Any, *, forced: bool) -> None:
        now = time.monotonic()
        if not forced and now < self._next_sweep:
            return
        self._next_sweep = now + _SWEEP_SECONDS
        # Never ourselves: a transaction that stood still for longer than the lease would take its own items away.
        owners = [row[0] for row in cursor.execute(sql.EXPIRED, (self._queue, self._owner or 0)).fetchall()]
        if owners:
            limit = self._policy.max_deliveries
            values = {"limit": limit, "reason": self._expired_reason(), "queue": self._queue, "owners": owners}
            cursor.execute(sql.RELEASE_EXPIRED, values)
        cursor.execute(sql.MAKE_DELAYED_READY, (self._queue,))

    def remaining(self) -> RemainingWork:
        with self.batch() as cursor:
            self._sweep(cursor, forced=True)
            values = {"queue": self._queue, "owner": self._owner or 0}
            ready, due, leased = cursor.execute(sql.REMAINING, values).fetchone()
        return RemainingWork(ready, None if due is None else max(0.0, float(due)), leased)

    # -- looking

    def _count(self) -> tuple[list[Any], int]:
        query = "SELECT holder, count(*) FROM stayfast_item WHERE queue=%s AND holder IS NOT NULL GROUP BY holder"
        with self.batch() as cursor:
            cursor.execute("SET LOCAL enable_seqscan=on")  # this one does look at everything
            holders = cursor.execute(query, (self._queue,)).fetchall()
            total = cursor.execute("SELECT count(*) FROM stayfast_item WHERE queue=%s", (self._queue,)).fetchone()[0]
        return holders, total

    def _read(self, query: str, values: Sequence[Any]) -> list[Any]:
        with self.batch() as cursor:
            rows: list[Any] = cursor.execute(query, values).fetchall()
        return rows

    def retry(self, keys: Iterable[str] | None = None) -> int:
        with self.batch() as cursor:
            if keys is None:
                count: int = cursor.execute(sql.RETRY, (self._queue,)).rowcount
            else:
                count = cursor.execute(sql.RETRY + " AND key=ANY(%s::text[])", (self._queue, list(keys))).rowcount
            return count

    def close(self) -> None:
        if self._owner is not None:
            with contextlib.suppress(QueueError), self.batch() as cursor:
                cursor.execute(sql.RELEASE_OTHERS, (self._queue, self._owner, []))
                cursor.execute("DELETE FROM stayfast_owner WHERE id=%s", (self._owner,))
        self._owner = None
        self._database.close()


def _refuse_contradictions(rows: list[tuple[str, str]]) -> None:
    """The same key twice in one batch with two payloads: the database would silently keep the first."""
    if len({row[0] for row in rows}) == len(rows):
        return
    seen: dict[str, str] = {}
    for key, payload in rows:
        check_same_payload(key, "the same input", seen.setdefault(key, payload), payload)
