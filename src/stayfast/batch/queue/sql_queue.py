"""What the queues in SQLite and in PostgreSQL do alike: names of states, pages, counts, failures and lost leases."""

from __future__ import annotations

import abc
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any

from stayfast.batch.queue.protocol import DeadItem, Depth, Enqueued, Failure, Lease, RetryPolicy, storable_text
from stayfast.batch.queue.validation import add_items
from stayfast.errors import LeaseLostError

STATES = {None: "done", 0: "ready", -1: "delayed", -2: "dead"}
"""What ``holder`` says about an item; every other number is the owner that leases it."""
_PAGE = 5000


class SqlQueue(abc.ABC):
    """A queue in a database; one object is one owner, and methods may be called from any thread."""

    name: str
    url: str
    lease_seconds: float
    _policy: RetryPolicy
    _queue: int
    _owner: int | None = None
    _entries_page: str
    """Key and holder of the items after a key."""
    _dead_page: str
    """Number, key, payload, failures and reason of the dead items after a number."""

    @abc.abstractmethod
    def batch(self) -> AbstractContextManager[Any]:
        """One transaction over all that is done inside."""

    @abc.abstractmethod
    def _add(self, rows: list[tuple[str, str]], replace: bool) -> int: ...

    @abc.abstractmethod
    def _read(self, query: str, values: Sequence[Any]) -> list[Any]:
        """All rows of a query that changes nothing."""

    @abc.abstractmethod
    def _count(self) -> tuple[list[Any], int]:
        """How many items each holder has, and how many items there are in all."""

    @abc.abstractmethod
    def _count_failure(self, transaction: Any, lease: Lease, reason: str, delay_seconds: float | None) -> int:
        """Delay the item, or bury it when there is no delay; 0 when the lease is lost."""

    def enqueue(self, items: Iterable[tuple[str, str]], *, replace: bool = False) -> Enqueued:
        return add_items(items, lambda rows: self._add(rows, replace))

    def fail(self, failures: Sequence[Failure]) -> list[str]:
        dead = []
        with self.batch() as transaction:
            for lease, reason, final in failures:
                count = lease.failures + 1
                over = final or count >= self._policy.max_failures
                delay = None if over else self._policy.delay_seconds(count)
                if self._count_failure(transaction, lease, storable_text(reason), delay) and over:
                    dead.append(lease.key)
        return dead

    def handles(self, leases: Sequence[Lease]) -> list[str]:  # noqa: ARG002 - other backends renew item by item
        return [] if self._owner is None else [str(self._owner)]  # the owner is renewed, whatever it holds

    def depth(self) -> Depth:
        counts = dict.fromkeys(("ready", "delayed", "leased", "dead"), 0)
        holders, total = self._count()
        for holder, count in holders:
            counts[STATES.get(holder, "leased")] += count
        return Depth(done=max(0, total - sum(counts.values())), **counts)

    def entries(self) -> Iterator[tuple[str, str]]:
        for key, holder in self._pages(self._entries_page, ""):
            yield key, STATES.get(holder, "leased")

    def dead(self) -> Iterator[DeadItem]:
        for _, key, payload, failures, reason in self._pages(self._dead_page, -1):
            yield DeadItem(key, payload, failures, reason or "")

    def _pages(self, query: str, after: Any) -> Iterator[tuple[Any, ...]]:
        """Rows in the order of their first column, a page at a time, so that no lock is held for long."""
        while True:
            rows = self._read(query, (self._queue, after, _PAGE))
            yield from rows
            if len(rows) < _PAGE:
                return
            after = rows[-1][0]

    def _lease_lost(self, owner: int) -> LeaseLostError:
        return LeaseLostError(
            f"the leases of worker {owner} on {self.url} ran out and went to others",
            help="it was frozen or cut off for longer than its lease; it starts afresh",
        )

    def _expired_reason(self) -> str:
        """What is recorded about an item that no worker ever finished."""
        times = self._policy.max_deliveries
        return f"handed out {times} times and never finished: it kills its workers, or outlasts them"
