"""How a directory looks inside a checkpoint: one entry per file, and a tree that says what each of them is called.

It is the checkpoint format with nothing added: ``stayfast checkpoints ls|verify|prune`` work on it, and the same commit
protocol and garbage collection guard it. The tree is a map with one key, ``~directory``, that holds rows of
``[path, kind, mode, mtime_ns, entry or target, absolute]``.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from stayfast.errors import CheckpointError, CorruptError, FormatError
from stayfast.runtime.checkpoint.inventory import TREE, Inventory, InventoryEntry, Part
from stayfast.runtime.directory_sync.file_scan import FILE, FOLDER, LINK, OURS, FileState, Listing, stays_inside
from stayfast.runtime.state.decoding import decode

DIRECTORY = "~directory"
VERSION = 1
PART_BYTES = 8 << 20
"""A file is stored in parts of this size, so that a small change in a large file is a small upload."""
MAX_PATH_CHARACTERS = 4096


@dataclass(frozen=True, slots=True)
class CopiedEntry:
    """One file, folder or link of a copy."""

    path: str
    seen: FileState
    parts: tuple[Part, ...] = ()


def tree_bytes(listing: Listing) -> tuple[bytes, list[str]]:
    """The tree, and the files in the order of their entries."""
    files = sorted(path for path, seen in listing.items() if seen.kind == FILE)
    number = {path: index for index, path in enumerate(files)}
    rows: list[list[Any]] = []
    for path, seen in sorted(listing.items()):
        last: Any = number[path] if seen.kind == FILE else seen.target
        rows.append([path, seen.kind, seen.mode, seen.mtime_ns, last, seen.absolute])
    body = {"map": {DIRECTORY: {"map": {"version": VERSION, "rows": rows}}}}
    return json.dumps(body, separators=(",", ":")).encode(), files


def build_inventory(
    step: int,
    attempt: int,
    algorithm: str,
    files: list[tuple[FileState, tuple[Part, ...]]],
    tree: tuple[int, list[Part]],
) -> Inventory:
    """The inventory over the parts of all files, in order, and of the tree."""
    parts: list[Part] = []
    entries: list[InventoryEntry] = []
    for number, (seen, own) in enumerate(files):
        start = len(parts) if own else 0
        entries.append(InventoryEntry(f"file-{number:07d}", "bytes", (seen.size,), start, 0, seen.size))
        parts += own
    length, own_parts = tree
    entries.append(InventoryEntry(TREE, "json", (length,), len(parts), 0, length))
    parts += own_parts
    return Inventory(
        step=step,
        attempt=attempt,
        algorithm=algorithm,
        chunk_bytes=PART_BYTES,
        parts=tuple(parts),
        entries=tuple(entries),
    )


def read_entries(inventory: Inventory, tree: bytes | memoryview, *, where: str) -> list[CopiedEntry]:
    """What a copy holds, checked before a single name of it touches the disk."""

    def no_leaves(_number: int) -> Any:
        raise CorruptError(f"{where} is not the copy of a directory")

    state = decode(tree, no_leaves)
    body = state.get(DIRECTORY)
    if not isinstance(body, dict):
        raise FormatError(f"{where} is not the copy of a directory", help="give --sync a URL of its own")
    if body.get("version") != VERSION:
        raise FormatError(f"{where} has a version that is not known here", help="upgrade stayfast")
    try:
        return _checked([_row(row, inventory) for row in body["rows"]])
    except CheckpointError:
        raise
    except (TypeError, ValueError, KeyError) as error:
        raise CorruptError(f"{where} is not a whole copy: {error}") from None


def is_directory(tree: bytes | memoryview) -> bool:
    """Whether a checkpoint's tree is a directory's; cheap, and nothing is checked yet."""
    return bytes(tree[:40]).startswith(b'{"map":{"' + DIRECTORY.encode() + b'"')


def _row(row: Any, inventory: Inventory) -> CopiedEntry:
    path, kind, mode, mtime_ns, last, absolute = row
    if type(path) is not str or type(mode) is not int or type(mtime_ns) is not int or type(absolute) is not bool:
        raise ValueError("a row of the wrong form")
    _check_path(path)
    if not 0 <= mode <= 0o777 or not 0 <= mtime_ns < 1 << 63:
        raise ValueError(f"the mode or time of {path[:60]!r}")
    if kind == FOLDER:
        return CopiedEntry(path, FileState(FOLDER, mode))
    if kind == LINK:
        if type(last) is not str or len(last) > MAX_PATH_CHARACTERS or not stays_inside(path, last):
            raise ValueError(f"the link {path[:60]!r} leads outside")
        return CopiedEntry(path, FileState(LINK, target=last, absolute=absolute))
    if kind != FILE or type(last) is not int or not 0 <= last < len(inventory.entries) - 1:
        raise ValueError(f"{path[:60]!r} is nothing that is known")
    entry = inventory.entries[last]
    count = -(-entry.length // PART_BYTES)
    parts = inventory.parts[entry.part : entry.part + count] if entry.length else ()
    if entry.offset or inventory.chunk_bytes != PART_BYTES or any(part.length > PART_BYTES for part in parts):
        raise ValueError(f"{path[:60]!r} does not lie in parts of its own")
    return CopiedEntry(path, FileState(FILE, mode, entry.length, mtime_ns), parts)


def _check_path(path: str) -> None:
    """A name from a bucket may come from anybody: nothing absolute, nothing that climbs, nothing that is ours."""
    if not path or len(path) > MAX_PATH_CHARACTERS or "\0" in path or path.startswith(OURS):
        raise ValueError(f"the path {path[:60]!r} is not allowed")
    if any(part in ("", ".", "..") for part in path.split("/")):
        raise ValueError(f"the path {path[:60]!r} is not allowed")


def _checked(rows: list[CopiedEntry]) -> list[CopiedEntry]:
    """Every parent is a folder of the same copy, so that no file is ever written through a link."""
    kinds: dict[str, str] = {}
    for row in rows:
        if row.path in kinds:
            raise ValueError(f"the path {row.path[:60]!r} stands twice")
        kinds[row.path] = row.seen.kind
    for row in rows:
        parent = row.path.rpartition("/")[0]
        if parent and kinds.get(parent) != FOLDER:
            raise ValueError(f"{row.path[:60]!r} lies in something that is no folder")
    return rows
