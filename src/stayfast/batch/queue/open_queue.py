"""From a URL to a queue."""

from __future__ import annotations

from stayfast.batch.queue.protocol import Queue, RetryPolicy
from stayfast.errors import UrlError
from stayfast.storage.database.sqlite import parse_sqlite_url
from stayfast.storage.network.urls import parse_url, redacted_url


def open_queue(url: str, *, sink: str | None = None, policy: RetryPolicy | None = None, create: bool = True) -> Queue:
    """The queue behind ``sqlite:///path.db?queue=name``, ``postgresql://…?queue=name`` or ``pubsub://project/subscription``.

    ``sink`` is where the results go: a Pub/Sub queue keeps the ledger of its keys beside them, the others ignore it.
    """
    scheme = parse_url(url).scheme
    if scheme == "sqlite":
        from stayfast.batch.queue.sqlite import SqliteQueue

        path, options = parse_sqlite_url(url, ("queue",))
        return SqliteQueue(path, options.get("queue", "default"), policy=policy, create=create)
    if scheme in ("postgresql", "postgres"):
        from stayfast.batch.queue.postgres import PostgresQueue

        return PostgresQueue(url, policy=policy, create=create)
    if scheme == "pubsub":
        if sink is None:
            raise UrlError(
                f"{url!r} needs to know where its ledger is",
                help="name the sink too: --sink sqlite:///… or postgresql://…",
            )
        from stayfast.batch.queue.pubsub import PubsubQueue

        return PubsubQueue(url, sink, policy=policy, create=create)
    raise UrlError(
        f"the queue URL {redacted_url(url)!r} has no known scheme",
        help="use sqlite:///path.db?queue=name, sqlite://./here.db?queue=name, postgresql://…?queue=name or pubsub://project/subscription",
    )
