"""From a URL to a store."""

from __future__ import annotations

import os
from urllib.parse import unquote

from stayfast.errors import UrlError
from stayfast.storage.network.urls import parse_url, redacted_url
from stayfast.storage.stores.protocol import Store

SCHEMES = ("file", "gs", "s3", "memory")


def open_store(url: str) -> Store:
    """The store behind a URL such as ``file:///data/run``, ``gs://bucket/run``, ``s3://bucket/run`` or ``memory://name``.

    ``file://./run`` is a directory below the current one.
    """
    parts = parse_url(url)
    if parts.scheme not in SCHEMES:
        here = "" if "://" in url or not url else f"for a directory write {_suggested_url(url)}; "
        raise UrlError(
            f"the URL {redacted_url(url)!r} has no known scheme",
            help=f"{here}use file:///path, file://./path, gs://bucket/prefix, s3://bucket/prefix or memory://name",
        )
    if parts.query or parts.fragment:
        raise UrlError(f"the store URL {url!r} has a query or fragment", help="remove everything from ? or # on")
    if parts.scheme == "memory":
        from stayfast.storage.stores.memory import MemoryStore

        return MemoryStore(url)
    if parts.scheme == "file":
        from stayfast.storage.stores.file import FileStore

        if parts.netloc in (".", ".."):
            return FileStore(os.path.abspath(unquote(parts.netloc + parts.path)))
        if parts.netloc not in ("", "localhost"):
            raise UrlError(
                f"the URL {url!r} names a host",
                help=f"write file:///{parts.netloc}{parts.path} for a path from the root, "
                f"file://./{parts.netloc}{parts.path} for one below the current directory",
            )
        if not parts.path:
            raise UrlError(f"the URL {url!r} has no path", help="write file:///absolute/path or file://./path")
        return FileStore(unquote(parts.path))
    if not parts.netloc:
        raise UrlError(f"the URL {url!r} names no bucket", help=f"write {parts.scheme}://bucket/prefix")
    from stayfast.storage.stores.bucket import BucketStore

    return BucketStore(parts.scheme, parts.netloc, unquote(parts.path).strip("/"))


def _suggested_url(path: str) -> str:
    if path.startswith("/"):
        return "file://" + path
    return "file://" + (path if path.startswith(("./", "../")) else "./" + path)
