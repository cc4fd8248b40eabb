"""From a URL to a sink."""

from __future__ import annotations

from stayfast.batch.sink.protocol import Sink
from stayfast.errors import UrlError
from stayfast.storage.database.sqlite import parse_sqlite_url
from stayfast.storage.network.urls import parse_url, redacted_url
from stayfast.storage.stores.open_store import SCHEMES, open_store


def open_sink(url: str, *, create: bool = True) -> Sink:
    """The sink behind ``sqlite:///path.db?table=t``, ``postgresql://…?table=t``, or any store URL."""
    scheme = parse_url(url).scheme
    if scheme == "sqlite":
        from stayfast.batch.sink.sqlite import SqliteSink

        path, options = parse_sqlite_url(url, ("table",))
        return SqliteSink(path, options.get("table", "results"), create=create)
    if scheme in ("postgresql", "postgres"):
        from stayfast.batch.sink.postgres import PostgresSink

        return PostgresSink(url, create=create)
    if scheme in SCHEMES:
        from stayfast.batch.sink.objects import ObjectSink

        return ObjectSink(open_store(url))
    raise UrlError(
        f"the sink URL {redacted_url(url)!r} has no known scheme",
        help="use sqlite:///path.db?table=t, sqlite://./here.db?table=t, postgresql://…?table=t, file:///dir, "
        "gs://bucket/prefix or s3://bucket/prefix",
    )
