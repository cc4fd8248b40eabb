"""From a URL to a store."""

from __future__ import annotations

from typing import Protocol

from stayfast.errors import UrlError
from stayfast.registry import Registry
from stayfast.storage.network.urls import parse_url, redacted_url
from stayfast.storage.stores.bucket_client import BucketProvider
from stayfast.storage.stores.protocol import Store


class StoreProvider(Protocol):
    """What opens the stores of one scheme: a store's class, or the ``BucketProvider`` of a cloud."""

    example: str
    """How its URLs are written."""

    def open_url(self, url: str) -> Store:
        """The store behind a URL that has neither a query nor a fragment."""


STORES: Registry[StoreProvider] = Registry(
    "stayfast.stores",
    {
        "file": "stayfast.storage.stores.file:FileStore",
        "gs": "stayfast.storage.stores.gcs:PROVIDER",
        "s3": "stayfast.storage.stores.s3:PROVIDER",
        "memory": "stayfast.storage.stores.memory:MemoryStore",
    },
)


def open_store(url: str) -> Store:
    """The store behind a URL such as ``file:///data/run``, ``gs://bucket/run``, ``s3://bucket/run`` or ``memory://name``.

    ``file://./run`` is a directory below the current one.
    """
    parts = parse_url(url)
    provider = STORES.find(parts.scheme)
    if provider is None:
        here = "" if "://" in url or not url else f"for a directory write {_suggested_url(url)}; "
        *others, last = (known.example for known in STORES.parts())
        raise UrlError(
            f"the URL {redacted_url(url)!r} has no known scheme", help=f"{here}use {', '.join(others)} or {last}"
        )
    if parts.query or parts.fragment:
        raise UrlError(f"the store URL {url!r} has a query or fragment", help="remove everything from ? or # on")
    return provider.open_url(url)


def find_bucket(url: str | None) -> BucketProvider | None:
    """The cloud whose bucket this URL names; ``None`` for places that only the pod itself can reach."""
    provider = STORES.find(url.partition("://")[0]) if url else None
    return provider if isinstance(provider, BucketProvider) else None


def _suggested_url(path: str) -> str:
    if path.startswith("/"):
        return "file://" + path
    return "file://" + (path if path.startswith(("./", "../")) else "./" + path)
