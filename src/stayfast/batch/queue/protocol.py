"""The protocol every queue speaks, and the values it speaks in.

An item is *ready*, *delayed* (it failed and waits for its back-off), *leased*, *done* or *dead*. A lease belongs to one
owner, a worker process, and carries the generation of its claim; every statement that settles an item names both, so
that an owner that lost its lease (frozen, cut off, replaced) changes nothing and is told so.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from stayfast.backoff import Backoff

DEFAULT_MAX_FAILURES = 5
DEFAULT_MAX_DELIVERIES = 100
LONGEST_BACKOFF_SECONDS = 300.0


class Lease(NamedTuple):
    """One item, ours for now."""

    id: Any  # what the backend finds it by: a row, or an acknowledgement id
    key: str
    payload: str  # JSON text, as it was enqueued
    generation: int
    failures: int  # how often the task failed on it before


class Failure(NamedTuple):
    """One item that the task could not do."""

    lease: Lease
    reason: str  # a traceback or a sentence, for the dead-letter
    final: bool = False  # no retry: the item itself is wrong


def storable_text(reason: str) -> str:
    """Text that every database can store: tracebacks may hold NUL, or names of files that are not Unicode."""
    return reason.replace("\0", "\\0").encode("utf-8", "backslashreplace").decode()


class DeadItem(NamedTuple):
    """An item in the dead-letter."""

    key: str
    payload: str
    failures: int
    reason: str


@dataclass(frozen=True, slots=True)
class Enqueued:
    """What became of the items handed in."""

    added: int
    known: int  # the same key and payload was there already


@dataclass(frozen=True, slots=True)
class Depth:
    """How many items are in which state."""

    ready: int
    delayed: int
    leased: int
    done: int
    dead: int

    @property
    def left(self) -> int:
        """Items that are neither done nor dead."""
        return self.ready + self.delayed + self.leased

    @property
    def enqueued(self) -> int:
        """All items ever enqueued."""
        return self.left + self.done + self.dead


@dataclass(frozen=True, slots=True)
class RemainingWork:
    """What a worker that holds nothing still has to wait for."""

    claimable: bool  # something to do now
    delayed_seconds: float | None  # something to do after this long; None when nothing waits
    leased: bool  # another owner holds items, which come back if it ends without finishing them

    @property
    def drained(self) -> bool:
        """Every item is done or dead."""
        return not self.claimable and self.delayed_seconds is None and not self.leased


class RetryPolicy(NamedTuple):
    """When an item is given up, and how long it waits before the next try."""

    max_failures: int = DEFAULT_MAX_FAILURES
    max_deliveries: int = DEFAULT_MAX_DELIVERIES  # an item that never comes back kills its workers: cap that too
    backoff_seconds: float = 1.0

    def delay_seconds(self, failures: int) -> float:
        """How long the item waits after its n-th failure: doubling, up to five minutes."""
        return Backoff(self.backoff_seconds, LONGEST_BACKOFF_SECONDS).seconds(max(failures - 1, 0))


class Queue(Protocol):
    """A work queue, used by one owner; methods may be called from any thread."""

    url: str
    lease_seconds: float
    database: str | None
    """Which database this is; a sink with the same value can take part in this queue's transactions."""

    def enqueue(self, items: Iterable[tuple[str, str]], *, replace: bool = False) -> Enqueued:
        """Add (key, JSON text) pairs, streaming and idempotent per key.

        The same key with another payload is an error unless ``replace``, which puts the new payload in and makes the
        item ready again.
        """

    def batch(self) -> contextlib.AbstractContextManager[Any]:
        """Everything inside happens in one transaction where the backend has them; yields what a sink can join."""

    def claim(self, limit: int) -> list[Lease]:
        """Lease up to ``limit`` items, oldest first; ``LeaseLostError`` when this owner was declared dead."""

    def complete(self, leases: Sequence[Lease]) -> list[Lease]:
        """Mark as done what is still ours; returns those."""

    def fail(self, failures: Sequence[Failure]) -> list[str]:
        """Count a failure for each: back-off or dead-letter; returns the keys that died."""

    def release(self, leases: Sequence[Lease]) -> int:
        """Give items back unharmed, for others to claim at once; returns how many were still ours."""

    def release_all_except(self, leases: Sequence[Lease]) -> None:
        """Release everything leased to this owner except these: after a lost answer nobody knows what was claimed."""

    def handles(self, leases: Sequence[Lease]) -> list[str]:
        """What a heartbeat in another process passes to ``renew`` to keep these leases."""

    def renew(self, handles: Sequence[str]) -> list[str]:
        """Extend leases; returns the handles that were lost."""

    def record_crash(self, handles: Sequence[str], reason: str) -> int:
        """The owner crashed by itself while it held these: a failure for each of its items."""

    def remaining(self) -> RemainingWork:
        """What is left, for a worker with nothing to do."""

    def depth(self) -> Depth:
        """Counts per state; for people, not for hot paths."""

    def entries(self) -> Iterator[tuple[str, str]]:
        """Every (key, state) in key order (by code point), streaming."""

    def dead(self) -> Iterator[DeadItem]:
        """The dead-letter, streaming."""

    def retry(self, keys: Iterable[str] | None = None) -> int:
        """Dead items back to ready with a clean record; all of them when no keys are given."""

    def close(self) -> None:
        """Give back what is held: leases, connections, the proof of life."""
