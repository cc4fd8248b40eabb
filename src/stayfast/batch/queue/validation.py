"""What may become an item: the rules for names, keys and payloads, checked before anything is written."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from typing import Any, NoReturn

from stayfast.batch.queue.protocol import Enqueued
from stayfast.errors import UrlError, UsageError

MAX_KEY_BYTES = 512
MAX_PAYLOAD_BYTES = 256 << 10
BATCH = 20_000
BATCH_BYTES = 32 << 20
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}\Z")


class ItemError(UsageError):
    """An item that cannot be enqueued as it is."""


def check_name(name: str) -> str:
    """The name of a queue or table if it is a plain one."""
    if not _NAME.match(name):
        raise UrlError(f"{name[:80]!r} is not a queue name", help="use up to 63 letters, digits, _ - and .")
    return name


def check_key(key: Any, where: str = "an item") -> str:
    """The key itself when every backend can store it."""
    if not isinstance(key, str):
        raise ItemError(f"{where} has the key {key!r:.60}, which is not a string", help="make the key a string")
    if not key or len(key) > MAX_KEY_BYTES or "\0" in key:
        what = "is empty" if not key else "holds a NUL" if "\0" in key else f"has {len(key)} characters"
        raise ItemError(f"{where} has a key that {what}", help=f"use 1 to {MAX_KEY_BYTES} bytes without NUL")
    if not key.isascii():
        try:
            length = len(key.encode())
        except UnicodeEncodeError:
            raise ItemError(f"{where} has a key that is not valid Unicode", help="remove lone surrogates") from None
        if length > MAX_KEY_BYTES:
            raise ItemError(f"{where} has a key of {length} bytes", help=f"{MAX_KEY_BYTES} is the limit")
    return key


def encode_payload(value: Any, where: str = "an item") -> str:
    """The payload as JSON text; only what JSON can say exactly."""
    try:
        return json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError) as error:
        raise ItemError(f"{where} cannot be written as JSON: {error}", help="use plain JSON values") from None


def reject_nan(text: str) -> NoReturn:
    """Hook for ``json.loads``: NaN and Infinity are not JSON, and other readers would choke on them."""
    raise ValueError(f"{text} is not JSON")


def check_same_payload(key: str, place: str, stored: str, payload: str) -> None:
    """One key, one payload."""
    if not same_json(stored, payload):
        raise UrlError(
            f"the key {key!r} is in queue {place!r} already, with another payload",
            help="give the new item its own key; enqueue and work, both with --replace, compute it again",
        )


def same_json(one: str, other: str) -> bool:
    """Whether two texts say the same: spelling aside, and 1 is 1.0; but true is not 1, as it is in Python."""
    return one == other or _canonical(one) == _canonical(other)


def _canonical(text: str) -> str:
    return json.dumps(json.loads(text, parse_float=_number), sort_keys=True)


def _number(text: str) -> float | int:
    number = float(text)
    return int(number) if number.is_integer() else number


def check_size(payload: str, where: str = "an item") -> str:
    """The payload itself when it is small enough to be handed around; data belongs in a bucket, its name in a queue."""
    size = len(payload)
    if not payload.isascii():
        try:
            size = len(payload.encode())
        except UnicodeEncodeError:
            raise ItemError(f"{where} is not valid UTF-8", help="convert it first, or remove lone surrogates") from None
    if size > MAX_PAYLOAD_BYTES:
        raise ItemError(
            f"{where} is {size} bytes long, over the limit of {MAX_PAYLOAD_BYTES}",
            help="put the data in a bucket and enqueue its URL",
        )
    return payload


def add_items(items: Iterable[tuple[str, str]], add: Callable[[list[tuple[str, str]]], int]) -> Enqueued:
    """Stream the items through ``add`` in transactions large enough to be fast and small enough for memory."""
    added = total = size = 0
    rows: list[tuple[str, str]] = []
    for row in items:
        rows.append(row)
        size += len(row[1])
        if len(rows) >= BATCH or size >= BATCH_BYTES:
            added += add(rows)
            total += len(rows)
            rows, size = [], 0
    if rows:
        added += add(rows)
        total += len(rows)
    return Enqueued(added=added, known=total - added)
