"""The protocol every sink speaks.

The first recorded result stands: a late duplicate, from a worker that lost its lease or a message that came twice,
changes nothing. With ``replace`` the higher generation wins instead, and a lower or equal one still changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Protocol

Payload = str | bytes
"""JSON text, or bytes as they are."""


class Result(NamedTuple):
    """One outcome to record."""

    key: str
    payload: Payload
    generation: int


class Receipt(NamedTuple):
    """Proof that a key is recorded."""

    key: str
    generation: int  # of the result that stands
    written: bool  # false: another result was there first and stays


class Sink(Protocol):
    """A place for results, one per key; safe to call from many threads and processes."""

    url: str
    database: str | None
    """Which database this is; a queue with the same value can record and complete in one transaction."""

    def record(self, key: str, payload: Payload, generation: int = 0, *, replace: bool = False) -> Receipt:
        """Record one result durably; returns when it would survive a power cut."""

    def record_all(self, results: Sequence[Result], *, replace: bool = False, transaction: Any = None) -> None:
        """Record many in one go; inside ``transaction``, when given, they become durable with its commit."""

    def missing(self, keys: Sequence[str]) -> list[str]:
        """Those of the keys that are not recorded, in one look-up."""

    def get(self, key: str) -> Payload | None:
        """What is recorded under the key."""

    def keys(self) -> Iterator[str]:
        """Every recorded key in order (by code point), streaming."""

    def close(self) -> None:
        """Give back connections."""
