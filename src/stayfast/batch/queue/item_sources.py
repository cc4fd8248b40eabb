"""Where items come from: JSON lines, CSV, a directory, a bucket listing, a pipe; all streamed, each item checked."""

from __future__ import annotations

import csv
import json
import os
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TextIO

from stayfast.batch.queue.validation import (
    BATCH,
    BATCH_BYTES,
    MAX_PAYLOAD_BYTES,
    ItemError,
    check_key,
    check_size,
    encode_payload,
    reject_nan,
)

KeyOf = Callable[[Any, str], str]
Item = tuple[str, str]
_PATIENCE_SECONDS = 1.0
_DEFAULT_FIELDS = ("key", "id")


def key_by_field(field: str | None) -> KeyOf:
    """How to find the key of an item: in this field, or by default in ``key``, else in ``id``."""

    def find(item: Any, where: str) -> str:
        if not isinstance(item, dict):
            raise ItemError(f"{where} is a {type(item).__name__}, not an object with a key", help="write {{...}} lines")
        for name in (field,) if field else _DEFAULT_FIELDS:
            if name in item:
                return check_key(item[name], where)
        wanted = f"field {field!r}" if field else "field 'key' or 'id'"
        raise ItemError(f"{where} has no {wanted}", help="name the field that holds the key with --key")

    return find


def from_json_lines(file: Iterable[str], name: str, key_of: KeyOf) -> Iterator[tuple[str, str]]:
    """One JSON value per line; the line itself is the payload, so nothing is rewritten."""
    loads = json.JSONDecoder(parse_constant=reject_nan).decode
    number = 0
    try:
        for number, line in enumerate(file, 1):
            text = line.strip()
            if not text:
                continue
            try:
                item = loads(text)
            except (ValueError, RecursionError) as error:
                raise ItemError(f"{name}:{number} is not JSON: {error}", help="one JSON object per line") from None
            where = f"{name}:{number}"
            yield key_of(item, where), check_size(text, where)
    except UnicodeDecodeError as error:
        raise ItemError(f"{name}:{number + 1} is not UTF-8: {error.reason}", help="convert the file first") from None


def from_csv(file: TextIO, name: str, key_of: KeyOf) -> Iterator[tuple[str, str]]:
    """One item per row, with the header's names; all values are strings."""
    csv.field_size_limit(max(csv.field_size_limit(), MAX_PAYLOAD_BYTES))  # ours, and not Python's 128 KiB
    reader = csv.DictReader(file, strict=True)
    try:
        header = reader.fieldnames or []
        if len(set(header)) != len(header):
            raise ItemError(f"{name}:1 names a column twice", help="give every column its own name")
        for row in reader:
            where = f"{name}:{reader.line_num}"
            if None in row or None in row.values():
                raise ItemError(f"{where} does not have {len(header)} columns as the header does", help="mend the row")
            yield key_of(row, where), check_size(encode_payload(row, where), where)
    except csv.Error as error:
        if "field limit" in str(error):
            what = f"{name}:{reader.line_num + 1} has a field over the limit of {MAX_PAYLOAD_BYTES} bytes"
            raise ItemError(
                what, help="put the data in a bucket and enqueue its URL, or close the quotation mark"
            ) from None
        raise ItemError(f"{name}:{reader.line_num} is not CSV: {error}", help="mend the row") from None
    except UnicodeDecodeError as error:
        raise ItemError(f"{name} is not UTF-8: {error.reason}", help="convert the file first") from None


def from_directory(root: str) -> Iterator[tuple[str, str]]:
    """One item per file under the directory: its relative path is the key."""
    root = os.path.abspath(root)

    def refuse(error: OSError) -> None:
        raise ItemError(f"cannot read {error.filename}: {error.strerror}", help="no file may be left out unseen")

    for directory, subdirectories, names in os.walk(root, onerror=refuse):
        subdirectories.sort()
        for name in sorted(names):
            path = os.path.join(directory, name)
            key = os.path.relpath(path, root)
            try:
                size = os.path.getsize(path)
            except FileNotFoundError:
                continue  # gone between listing and looking
            yield check_key(key, path), encode_payload({"key": key, "path": path, "size_bytes": size}, path)


def from_listing(url: str) -> Iterator[tuple[str, str]]:
    """One item per object under a store URL: its key below that URL is the key."""
    from stayfast.storage.stores.open_store import open_store

    store = open_store(url)
    base = url.rstrip("/")
    try:
        for entry in store.keys(""):
            where = f"{base}/{entry.key}"
            yield (
                check_key(entry.key, where),
                encode_payload({"key": entry.key, "url": where, "size_bytes": entry.size}),
            )
    finally:
        store.close()


def stream_batches(items: Iterable[Item], *, patience_seconds: float = _PATIENCE_SECONDS) -> Iterator[list[Item]]:
    """Lists as long as ``add_items`` makes them, or what there is after so long; nothing of one that ends in an error.

    The source is read by a thread of its own, but never beside whoever takes the lists: a database gives way to a busy
    thread at every row, and each time costs more than the row.
    """
    source = _ReaderThread(items)
    reader = threading.Thread(target=source.read, name="stayfast-source", daemon=True)
    reader.start()
    while True:
        with source.changed:
            source.changed.wait_for(lambda: source.over or source.is_full, patience_seconds)
            if source.error is not None:
                raise source.error
            rows, source.rows, source.size = source.rows, [], 0
            if rows:
                yield rows
            if source.over:
                return
            source.changed.notify()


class _ReaderThread:
    """What a reading thread has found so far."""

    def __init__(self, items: Iterable[Item]) -> None:
        self._items = items
        self.changed = threading.Condition()
        self.rows: list[Item] = []
        self.size = 0
        self.over = False
        self.error: BaseException | None = None

    @property
    def is_full(self) -> bool:
        return len(self.rows) >= BATCH or self.size >= BATCH_BYTES

    def read(self) -> None:
        changed = self.changed
        try:
            for item in self._items:
                with changed:
                    self.rows.append(item)
                    self.size += len(item[1])
                    if self.is_full:
                        changed.notify()
                        changed.wait_for(lambda: not self.is_full)
        except BaseException as error:  # noqa: BLE001 - raised again where the lists are taken
            self.error = error
        with changed:
            self.over = True
            changed.notify()
