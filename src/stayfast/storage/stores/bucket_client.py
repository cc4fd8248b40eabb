"""What a bucket needs of a cloud's client, and how the clouds' refusals read as our errors.

A client sends each request once. Retrying is the business of :mod:`stayfast.storage.stores.bucket`, which knows
what a lost answer means for each kind of request.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, Protocol
from urllib.parse import unquote

from stayfast.errors import (
    AccessDeniedError,
    ConflictError,
    KeyMissingError,
    OutcomeUnknownError,
    StoreError,
    StoreFullError,
    StoreUnavailableError,
    UrlError,
)
from stayfast.filesystem import Buffer
from stayfast.storage.network.urls import parse_url
from stayfast.storage.stores.protocol import Blob, Entry, Store


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """An object as its metadata shows it."""

    generation: str
    size: int
    md5: str | None = None
    """Of the content, hexadecimal, where the cloud says so."""


class BucketClient(Protocol):
    """Objects by their full name in one bucket."""

    def get(self, name: str, offset: int, length: int | None) -> Blob: ...

    def get_into(self, name: str, buffer: memoryview, offset: int) -> int: ...

    def put(self, name: str, data: Buffer, if_generation: str | None) -> str: ...

    def head(self, name: str) -> ObjectInfo: ...

    def list_page(self, prefix: str, token: str) -> tuple[list[Entry], str]:
        """One page of a listing, in order, and the token of the next; an empty token ends it."""

    def delete(self, name: str) -> None: ...

    def close(self) -> None: ...


class BucketProvider(NamedTuple):
    """What a cloud's module says about its buckets: each module has one, as ``PROVIDER``."""

    scheme: str
    example: str
    credentials_help: str
    """What to do when the cloud refuses a request."""
    impossible_generation: str
    """A generation that no object ever has."""
    endpoint_variables: tuple[str, ...]
    """Environment variables that send requests to a server that is not the cloud's own."""
    needs_keys: bool
    """Whether a pod on GKE needs keys in a Secret; Workload Identity opens the others."""
    open_client: Callable[[str], BucketClient]
    """From the bucket's name to its client; imports what the client needs."""

    def open_url(self, url: str) -> Store:
        """The store behind ``scheme://bucket/prefix``."""
        from stayfast.storage.stores.bucket import BucketStore

        parts = parse_url(url)
        if not parts.netloc:
            raise UrlError(f"the URL {url!r} names no bucket", help=f"write {parts.scheme}://bucket/prefix")
        return BucketStore(self, parts.netloc, unquote(parts.path).strip("/"))


@dataclass(frozen=True, slots=True)
class ErrorResponse:
    """An answer that is not success: where, doing what, and what the server said."""

    provider: BucketProvider
    bucket: str
    name: str
    verb: str
    """read, write, list or delete."""
    status: int
    code: str = ""
    """The server's own word for it, such as NoSuchBucket."""

    def to_error(self) -> StoreError:
        """The error that says what this means for the caller."""
        place = f"{self.name or '(listing)'} in {self.provider.scheme}://{self.bucket}"
        said = f"HTTP {self.status}{f' {self.code}' if self.code else ''}"
        if self.status in (401, 403):
            what = f"not allowed to {self.verb} {place} ({said})"
            return AccessDeniedError(what, help=self.provider.credentials_help)
        if self.status == 404:
            if self.verb == "read" and "bucket" not in self.code.lower():
                return KeyMissingError(f"there is no {place}")
            return StoreError(
                f"the bucket {self.provider.scheme}://{self.bucket} does not exist",
                help="create it, or correct the URL",
            )
        if self.status == 412:
            return ConflictError(f"{place} is not at the generation that this write expected")
        if self.status in (400, 405, 411, 413, 416, 501):
            return StoreError(f"the server refused to {self.verb} {place} ({said})")
        if self.code in ("QuotaExceeded", "InsufficientStorage") or self.status == 507:
            return StoreFullError(f"cannot {self.verb} {place}: no space or quota left ({said})")
        return self.transient_error()

    def transient_error(self) -> StoreError:
        """Trouble that goes away by itself: 409, 429, 5xx and the like."""
        place = f"{self.name or '(listing)'} in {self.provider.scheme}://{self.bucket}"
        said = f"HTTP {self.status}{f' {self.code}' if self.code else ''}"
        if self.verb == "write" and self.status != 429:  # a 5xx may follow an applied write; 409 leaves it open too
            return OutcomeUnknownError(f"the write of {place} was answered with {said}: it may have happened")
        return StoreUnavailableError(f"cannot {self.verb} {place} at the moment ({said})")
