"""Before a run trusts a store with its commits: does the store do what a commit needs?

A server that ignores preconditions lets two attempts overwrite each other without a word, and a network file system
may acknowledge a rename that is not durable. Both are refused at the start, in one sentence, instead of losing work
later. Cloud Storage and S3 themselves promise it, so only other servers are asked: four small requests on two keys
that nobody else uses.
"""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Callable

from stayfast.clock import SystemClock
from stayfast.errors import ConflictError, OutcomeUnknownError, StoreError, StoreUnavailableError, UrlError
from stayfast.filesystem import unsafe_filesystem
from stayfast.storage.stores.open_store import find_bucket
from stayfast.storage.stores.protocol import ABSENT, Store


def check_preconditions(store: Store, *, filesystem: Callable[[str], str | None] = unsafe_filesystem) -> None:
    """Refuse a store that cannot promise atomic commits; leaves nothing behind. Called once, when a run is claimed."""
    scheme, _, rest = store.url.partition("://")
    if scheme == "file":
        _check_file_system(rest, filesystem)
    store.remove_leftovers()
    if not store.enforces_preconditions:
        provider = find_bucket(store.url)
        _check_preconditions(store, provider.impossible_generation if provider else "1")


def _check_preconditions(store: Store, never: str) -> None:
    absent, present = (f"probes/{secrets.token_hex(8)}" for _ in range(2))
    try:
        if _is_write_accepted(store, absent, never):
            raise _unsafe_store_error(store, "replaces objects whatever generation the write asks for")
        _is_write_accepted(store, present, ABSENT)
        if _is_write_accepted(store, present, ABSENT):
            raise _unsafe_store_error(store, "overwrites objects that a write asks only to create")
        store.delete(present)
    except BaseException:
        for key in (absent, present):
            with contextlib.suppress(StoreError):
                store.delete(key)
        raise


def _is_write_accepted(store: Store, key: str, if_generation: str) -> bool:
    """Whether the store took the write. The content differs each time, so that no two writes look the same."""
    for pause_seconds in (0.1, 0.4, 1.6, None):
        try:
            store.put(key, secrets.token_bytes(16), if_generation=if_generation)
            return True
        except ConflictError:
            return False
        except OutcomeUnknownError:  # a create-only put has been read back by the store already
            if if_generation == ABSENT:
                raise
            return any(entry.key == key for entry in store.keys(key))
        except StoreUnavailableError:
            if pause_seconds is None:
                raise
            SystemClock().sleep(pause_seconds)
    raise AssertionError("unreachable: the last try returns or raises")


def _unsafe_store_error(store: Store, what: str) -> StoreError:
    return StoreError(
        f"the server behind {store.url} {what}, so two attempts could destroy each other's checkpoints",
        help="use Cloud Storage, Amazon S3, a server that enforces preconditions, or file:///path",
    )


def _check_file_system(root: str, filesystem: Callable[[str], str | None]) -> None:
    path = root or "/"
    while not os.path.exists(path) and path != "/":
        path = os.path.dirname(path)
    kind = filesystem(path)
    if kind is None:
        return
    bucket = _mounted_bucket(root)
    raise UrlError(
        f"file://{root} is on {kind}, which cannot promise atomic, durable commits",
        help=f"use {bucket} instead" if bucket else "use the bucket's own URL (gs://bucket/prefix) or a local disk",
    )


def _mounted_bucket(root: str, mountinfo: str = "/proc/self/mountinfo") -> str | None:
    """The bucket's own URL when the directory is a gcsfuse or s3fs mount."""
    try:
        with open(mountinfo, encoding="utf-8", errors="replace") as file:
            rows = [line.split() for line in file]
    except OSError:
        return None
    best = ""
    found = None
    for row in rows:
        if "-" not in row or len(row) < row.index("-") + 3:
            continue
        mount, kind, source = row[4], row[row.index("-") + 1], row[row.index("-") + 2]
        inside = root == mount or root.startswith(mount.rstrip("/") + "/")
        if inside and len(mount) >= len(best):
            best = mount
            scheme = {"fuse.gcsfuse": "gs", "fuse.s3fs": "s3"}.get(kind)
            rest = root[len(mount) :].strip("/")
            found = f"{scheme}://{source}/{rest}".rstrip("/") if scheme and "/" not in source else None
    return found
