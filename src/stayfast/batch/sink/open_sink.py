"""From a URL to a sink."""

from __future__ import annotations

from typing import Protocol

from stayfast.batch.sink.protocol import Sink
from stayfast.errors import UrlError
from stayfast.registry import Registry
from stayfast.storage.network.urls import parse_url, redacted_url
from stayfast.storage.stores.bucket_client import BucketProvider
from stayfast.storage.stores.open_store import STORES, open_store


class SinkProvider(Protocol):
    """What opens the sinks of one scheme: a sink's class."""

    example: str
    """How its URLs are written."""

    def open_url(self, url: str, *, create: bool) -> Sink:
        """The sink behind a URL; with ``create=False`` a sink that does not exist is an error."""


SINKS: Registry[SinkProvider] = Registry(
    "stayfast.sinks",
    {
        "sqlite": "stayfast.batch.sink.sqlite:SqliteSink",
        "postgresql": "stayfast.batch.sink.postgres:PostgresSink",
    },
)


def open_sink(url: str, *, create: bool = True) -> Sink:
    """The sink behind ``sqlite:///path.db?table=t``, ``postgresql://…?table=t``, or any store URL."""
    scheme = parse_url(url).scheme
    provider = SINKS.find("postgresql" if scheme == "postgres" else scheme)
    if provider is not None:
        return provider.open_url(url, create=create)
    if STORES.find(scheme) is not None:
        from stayfast.batch.sink.objects import ObjectSink

        return ObjectSink(open_store(url))
    examples = [known.example for known in SINKS.parts()] + ["file:///dir"]
    *others, last = examples + [known.example for known in STORES.parts() if isinstance(known, BucketProvider)]
    raise UrlError(f"the sink URL {redacted_url(url)!r} has no known scheme", help=f"use {', '.join(others)} or {last}")
