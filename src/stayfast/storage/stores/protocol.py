"""The protocol every store speaks, and the rules that all of them share.

Four operations are the whole surface, because they are what object stores and file systems can all promise:

* ``get`` — whole or ranged, with the generation that was read; restores need ranges, commits need generations.
* ``put`` — atomic and durable on return, unconditional, create-only, or if-generation-matches. The conditional replace
  of one object is the only compare-and-swap a bucket has, and every commit is built on it.
* ``keys`` — names and sizes under a prefix, for retention and for people.
* ``delete`` — for retention; deleting what is not there is fine, so that a second try is harmless.

There is no rename, no append, no directory and no lock: no bucket has them.

A write that fails says which of three things happened: ``ConflictError`` (the precondition did not hold, nothing was
written), ``StoreUnavailableError`` and its siblings (nothing was written), ``OutcomeUnknownError`` (it may have been:
read back before deciding anything, and delete nothing). A plain ``StoreError`` means that going on is pointless: the
bucket does not exist, or the disk failed to make a write durable.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Protocol

from stayfast.errors import UrlError
from stayfast.filesystem import Buffer

ABSENT: Final = "absent"
"""Precondition of a create-only put: there must be nothing under the key."""

TEMPORARY: Final = ".tmp-"
"""How names of unfinished files start; no key may."""
MAX_SEGMENT: Final = 240
"""Of one name between slashes; file systems take 255 bytes."""


@dataclass(frozen=True, slots=True)
class Blob:
    """Bytes, and the generation they were read at."""

    data: bytes
    generation: str


@dataclass(frozen=True, slots=True)
class Entry:
    """One row of a listing."""

    key: str
    size: int


class Store(Protocol):
    """A place for immutable objects under slash-separated keys; safe to call from many threads."""

    url: str
    enforces_preconditions: bool
    """Whether the place is known to do what ``put`` says; else that is tested before a run trusts it."""

    def get(self, key: str, *, offset: int = 0, length: int | None = None) -> Blob:
        """The object, or a range of it; ``KeyMissingError`` when there is none. A range past the end is cut."""

    def read_into(self, key: str, buffer: memoryview, *, offset: int = 0) -> int:
        """A ranged get straight into memory that the caller owns; returns the count, short only at the end."""

    def put(self, key: str, data: Buffer, *, if_generation: str | None = None) -> str:
        """Store atomically and durably and return the new generation.

        ``if_generation=None`` replaces whatever is there, ``ABSENT`` creates only, anything else must equal the
        generation now stored. A put is sent once: whoever retries must know what a lost answer means.
        """

    def keys(self, prefix: str = "") -> Iterator[Entry]:
        """Everything whose key starts with prefix, in key order; names that we would never write are left out."""

    def delete(self, key: str) -> None:
        """Remove the object; absent is fine."""

    def remove_leftovers(self) -> int:
        """Remove what writers that died left unfinished; returns how many files, 0 where nothing can be left."""

    def close(self) -> None:
        """Give back connections; the store is not used afterwards."""


_SEGMENT = re.compile(r"[A-Za-z0-9._=@+-][A-Za-z0-9._=@+ -]*\Z")


def check_key(key: str) -> str:
    """The key itself if it is one we would write; names read from a bucket pass here before they touch a path."""
    if len(key) > 512:
        raise UrlError(f"the key {key[:40]!r}… is {len(key)} characters long; 512 is the limit")
    for segment in key.split("/"):
        if segment in ("", ".", "..") or not _SEGMENT.match(segment) or segment.startswith(TEMPORARY):
            raise UrlError(
                f"the key {key!r} is not allowed", help="use letters, digits and . _ - = @ + between slashes"
            )
        if len(segment) > MAX_SEGMENT:
            raise UrlError(f"the key {key[:40]!r}… has a part of {len(segment)} characters; {MAX_SEGMENT} is the limit")
    return key


def is_key(key: str) -> bool:
    """Whether we could have written it: folder markers and hostile names in a listing are shown to nobody."""
    try:
        check_key(key)
    except UrlError:
        return False
    return True


def check_prefix(prefix: str) -> str:
    """Like :func:`check_key`, for the start of a key."""
    if prefix:
        check_key(prefix.rstrip("/") or "x")
    return prefix
