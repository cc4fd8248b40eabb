"""From a URL to a queue."""

from __future__ import annotations

from typing import Protocol

from stayfast.batch.queue.protocol import Queue, RetryPolicy
from stayfast.errors import UrlError
from stayfast.registry import Registry
from stayfast.storage.network.urls import parse_url, redacted_url


class QueueProvider(Protocol):
    """What opens the queues of one scheme: a queue's class."""

    example: str
    """How its URLs are written."""

    def open_url(self, url: str, *, sink: str | None, policy: RetryPolicy | None, create: bool) -> Queue:
        """The queue behind a URL; see :func:`open_queue`."""


QUEUES: Registry[QueueProvider] = Registry(
    "stayfast.queues",
    {
        "sqlite": "stayfast.batch.queue.sqlite:SqliteQueue",
        "postgresql": "stayfast.batch.queue.postgres:PostgresQueue",
        "pubsub": "stayfast.batch.queue.pubsub:PubsubQueue",
    },
)


def open_queue(url: str, *, sink: str | None = None, policy: RetryPolicy | None = None, create: bool = True) -> Queue:
    """The queue behind ``sqlite:///path.db?queue=name``, ``postgresql://…?queue=name`` or ``pubsub://project/subscription``.

    ``sink`` is the URL where the results go: a Pub/Sub queue keeps the ledger of its keys beside them, and asks there
    what is done; the others ignore it.
    """
    scheme = parse_url(url).scheme
    provider = QUEUES.find("postgresql" if scheme == "postgres" else scheme)
    if provider is None:
        *others, last = (known.example for known in QUEUES.parts())
        raise UrlError(
            f"the queue URL {redacted_url(url)!r} has no known scheme", help=f"use {', '.join(others)} or {last}"
        )
    return provider.open_url(url, sink=sink, policy=policy, create=create)
