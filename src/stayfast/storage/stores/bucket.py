"""The store over a bucket of any cloud: one store over a client that sends each request once.

What is retried, and why that is safe:

* reads, listings and deletes: always, with jitter;
* an if-generation put (every commit): never; the caller reads back, because only it knows its token;
* a create-only put: after a lost answer the object is compared with what was sent. The same bytes are ours (every part
  and every record holds something unique to its attempt), other bytes are a conflict, nothing there means send again;
* an unconditional put: sending the same bytes again changes nothing.

One object goes in one request. The checkpoint engine writes parts of 8 to 64 MiB from several threads, which fills a
network as well as a multipart upload does, keeps the precondition, and leaves no half upload behind to be paid for.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Iterator
from typing import TypeVar

from stayfast import randomness
from stayfast.backoff import Backoff
from stayfast.clock import Clock, SystemClock
from stayfast.errors import (
    ConflictError,
    KeyMissingError,
    OutcomeUnknownError,
    StoreUnavailableError,
    UrlError,
)
from stayfast.filesystem import Buffer
from stayfast.storage.stores.bucket_client import BucketClient, BucketProvider
from stayfast.storage.stores.protocol import ABSENT, Blob, Entry, check_key, check_prefix, is_key

TRIES = 6
FIRST_PAUSE_SECONDS = 0.1
LONGEST_PAUSE_SECONDS = 3.0
COMPARE_BYTES = 8 << 20
_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,221}")
T = TypeVar("T")


class BucketStore:
    """Objects under one prefix of one bucket."""

    def __init__(
        self,
        provider: BucketProvider,
        bucket: str,
        prefix: str,
        *,
        client: BucketClient | None = None,
        clock: Clock | None = None,
    ) -> None:
        scheme = provider.scheme
        if prefix:
            check_key(prefix)
        if not _BUCKET.fullmatch(bucket):
            raise UrlError(f"the bucket name {bucket!r} is not one", help=f"write {scheme}://bucket/prefix")
        self.url = f"{scheme}://{bucket}/{prefix}" if prefix else f"{scheme}://{bucket}"
        self._prefix = prefix + "/" if prefix else ""
        self._client = client or provider.open_client(bucket)
        another_server = any(os.environ.get(name) for name in provider.endpoint_variables)
        self.enforces_preconditions = client is None and not another_server
        self._clock = clock or SystemClock()

    def get(self, key: str, *, offset: int = 0, length: int | None = None) -> Blob:
        name = self._name(key)
        return self._retry(lambda: self._client.get(name, offset, length))

    def read_into(self, key: str, buffer: memoryview, *, offset: int = 0) -> int:
        name = self._name(key)
        return self._retry(lambda: self._client.get_into(name, buffer, offset))

    def put(self, key: str, data: Buffer, *, if_generation: str | None = None) -> str:
        name = self._name(key)
        if if_generation == ABSENT:
            return self._create(name, data)
        if if_generation is None:
            return self._retry(lambda: self._client.put(name, data, None), also=OutcomeUnknownError)
        return self._client.put(name, data, if_generation)

    def keys(self, prefix: str = "") -> Iterator[Entry]:
        check_prefix(prefix)
        start, token = self._prefix + prefix, ""
        while True:
            wanted = token
            rows, token = self._retry(lambda: self._client.list_page(start, wanted))  # noqa: B023 called at once
            for row in rows:
                key = row.key.removeprefix(self._prefix)
                if row.key.startswith(start) and is_key(key):
                    yield Entry(key, row.size)
            if not token:
                return

    def delete(self, key: str) -> None:
        name = self._name(key)
        self._retry(lambda: self._client.delete(name))

    def remove_leftovers(self) -> int:
        return 0  # an object is there whole or not at all

    def close(self) -> None:
        self._client.close()

    # -- inside

    def _name(self, key: str) -> str:
        return self._prefix + check_key(key)

    def _retry(self, act: Callable[[], T], *, also: type[Exception] | None = None) -> T:
        for attempt in range(TRIES):
            try:
                return act()
            except (StoreUnavailableError, OutcomeUnknownError) as error:
                passing = isinstance(error, StoreUnavailableError) or (also is not None and isinstance(error, also))
                if not passing or attempt == TRIES - 1:
                    raise
            self._pause(attempt)
        raise AssertionError("unreachable: the last try returns or raises")

    def _create(self, name: str, data: Buffer) -> str:
        """Create once, even when answers get lost; see above."""
        lost: OutcomeUnknownError | None = None
        for attempt in range(TRIES):
            try:
                return self._client.put(name, data, ABSENT)
            except StoreUnavailableError:
                if attempt == TRIES - 1:
                    if lost is not None:
                        raise lost from None
                    raise
            except OutcomeUnknownError as error:
                lost = error
            except ConflictError:
                if lost is None:
                    raise
            if lost is not None:
                found = self._find_own_object(name, data, lost)
                if found is not None:
                    return found
            self._pause(attempt)
        raise lost or AssertionError("unreachable: without a lost answer the last try returns or raises")

    def _find_own_object(self, name: str, data: Buffer, lost: OutcomeUnknownError) -> str | None:
        """The generation when what is there is what was sent; None when nothing is there."""
        try:
            seen = self._retry(lambda: self._client.head(name))
            view = memoryview(data).cast("B")
            same = seen.size == len(view) and (
                (seen.md5 is not None and hashlib.md5(view, usedforsecurity=False).hexdigest() == seen.md5)
                or self._equals(name, view)
            )
        except KeyMissingError:
            return None
        except StoreUnavailableError as error:
            raise lost from error
        if not same:
            raise ConflictError(f"{name} in {self.url} was created by somebody else")
        return seen.generation

    def _equals(self, name: str, view: memoryview) -> bool:
        for start in range(0, len(view), COMPARE_BYTES):
            part = view[start : start + COMPARE_BYTES]
            blob = self._retry(lambda: self._client.get(name, start, len(part)))  # noqa: B023 called at once
            if blob.data != part:
                return False
        return True

    def _pause(self, attempt: int) -> None:
        longest = Backoff(FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS).seconds(attempt)
        self._clock.sleep(randomness.own.uniform(longest / 2, longest))
