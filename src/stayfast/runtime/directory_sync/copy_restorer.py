"""The way back: the newest copy that verifies, complete in the directory before the program starts, or an error.

Everything is fetched and verified beside its place first. A copy that turns out damaged has touched nothing, and the
one before it is tried.
"""

from __future__ import annotations

import errno
import logging
import os
import shutil
from typing import NamedTuple

from stayfast.errors import CorruptError, FormatError, RunError
from stayfast.runtime.checkpoint.inventory import ALIGNMENT, Inventory, Part, digest_named
from stayfast.runtime.checkpoint.reader import read_chunk, read_inventory
from stayfast.runtime.directory_sync.copy_format import PART_BYTES, CopiedEntry, is_directory, read_entries
from stayfast.runtime.directory_sync.file_scan import FILE, FOLDER, LINK, FileState, Listing, scan
from stayfast.runtime.directory_sync.local_state import STAGING, clear_leftovers
from stayfast.runtime.directory_sync.parallel import run_parallel
from stayfast.runtime.run_record.read import newest_readable
from stayfast.runtime.run_record.record import CheckpointRecord, RunRecord
from stayfast.storage.stores.protocol import Store

log = logging.getLogger("stayfast")


class DirectoryCopy(NamedTuple):
    """A committed copy, read and checked, nothing of it fetched yet."""

    committed: CheckpointRecord
    inventory: Inventory
    rows: list[CopiedEntry]


def read_copy(store: Store, committed: CheckpointRecord) -> DirectoryCopy:
    """The list of what a copy holds."""
    if committed.inventory_sha256 is None:
        raise _not_a_directory(store)
    key, inventory = read_inventory(store, committed)
    tree = _tree(store, inventory)
    if not is_directory(tree):
        raise _not_a_directory(store)
    return DirectoryCopy(committed, inventory, read_entries(inventory, tree, where=key))


def _not_a_directory(store: Store) -> FormatError:
    return FormatError(
        f"{store.url} holds the run of a program, not copies of a directory", help="give --sync a URL of its own"
    )


def _tree(store: Store, inventory: Inventory) -> bytes:
    entry = inventory.entries[-1]
    parts = inventory.parts[entry.part :]
    if entry.offset or inventory.chunk_bytes != PART_BYTES or any(part.length > PART_BYTES for part in parts):
        return b""  # written by stayfast.run, which packs its parts
    data = bytearray()
    for part in parts:
        data += read_part(store, inventory, part)
    return bytes(data[: entry.length])


def read_part(store: Store, inventory: Inventory, part: Part, into: memoryview | None = None) -> memoryview:
    """One part, verified."""
    if len(part.chunks) != 1 or part.length > PART_BYTES:
        raise CorruptError(f"{part.key} is longer than any part of a directory's copy")
    buffer = (into if into is not None else memoryview(bytearray(part.length)))[: part.length]
    read_chunk(store, inventory, part, 0, buffer)
    return buffer


def restore_newest_copy(store: Store, head: RunRecord, root: str, *, replace: bool) -> DirectoryCopy | None:
    """The newest copy that verifies, now in the directory; None when there is none.

    ``replace``: what the copy does not hold is removed; otherwise the caller has seen to it that nothing else is there.
    """

    def fetch(committed: CheckpointRecord) -> DirectoryCopy:
        try:
            copy = read_copy(store, committed)
            _stage(store, copy, root)
        except CorruptError:
            clear_leftovers(root)
            raise
        except OSError as error:
            raise _disk_error(root, error, committed.size) from error
        return copy

    found = newest_readable(head, fetch, among=f"the copies in {store.url}", noun="copy")
    if found is None:
        return None
    committed, copy = found
    try:
        _apply(copy, root, replace=replace)
    except OSError as error:
        raise _disk_error(root, error, committed.size) from error
    return copy


def _disk_error(root: str, error: OSError, size: int) -> RunError:
    clear_leftovers(root)
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return RunError(
            f"{root} has no room for the copy of {size / 1e6:.1f} MB", help="give the pod a larger volume, or empty it"
        )
    return RunError(f"the copy cannot be written to {root}: {error.strerror or error}", help="make it writable")


def _stage(store: Store, copy: DirectoryCopy, root: str) -> None:
    """Fetch beside its place what the directory does not have already."""
    staging = os.path.join(root, STAGING)
    clear_leftovers(root)
    os.mkdir(staging, 0o700)
    jobs: list[tuple[str, int, Part, int]] = []
    for number, row in enumerate(copy.rows):
        if row.seen.kind != FILE or _has_same_content(root, row, copy.inventory):
            continue
        target = os.path.join(staging, str(number))
        os.close(os.open(target, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600))
        if not row.seen.size:
            continue
        _reserve(target, row.seen.size)
        for index, part in enumerate(row.parts):
            at = index * PART_BYTES
            jobs.append((target, at, part, min(PART_BYTES, row.seen.size - at)))

    def work(job: tuple[str, int, Part, int], view: memoryview) -> None:
        target, at, part, length = job
        data = read_part(store, copy.inventory, part, view)[:length]
        fd = os.open(target, os.O_WRONLY | os.O_CLOEXEC)
        try:
            while data:
                count = os.pwrite(fd, data, at)
                data, at = data[count:], at + count
        finally:
            os.close(fd)

    run_parallel(jobs, work)


def _reserve(path: str, size: int) -> None:
    """Ask the disk for the room first: a full one is known before gigabytes were fetched."""
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.posix_fallocate(fd, 0, size)
    except OSError as error:
        if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL):
            raise
    finally:
        os.close(fd)


def _has_same_content(root: str, row: CopiedEntry, inventory: Inventory) -> bool:
    """Whether the directory holds this very file already, by its content."""
    path = os.path.join(root, row.path)
    if os.path.realpath(os.path.dirname(path)) != os.path.normpath(os.path.dirname(path)):
        return False  # some folder on the way is a link
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        if os.fstat(fd).st_size != row.seen.size:
            return False
        digest = digest_named(inventory.algorithm)
        for number, part in enumerate(row.parts):
            length = min(PART_BYTES, row.seen.size - number * PART_BYTES)
            data = os.pread(fd, length, number * PART_BYTES)
            if digest(data.ljust(-(-length // ALIGNMENT) * ALIGNMENT, b"\0")) != part.chunks[0]:
                return False
        return True
    except OSError:
        return False
    finally:
        os.close(fd)


def _apply(copy: DirectoryCopy, root: str, *, replace: bool) -> None:
    """Everything is here and whole: put it in its place."""
    wanted = {row.path: row.seen.kind for row in copy.rows}
    found = scan(root)
    for path in sorted({*found.listing, *found.skipped} - {"."}, reverse=True):
        kind = found.listing[path].kind if path in found.listing else "other"
        if wanted.get(path) != kind and (replace or path in wanted):
            _remove(os.path.join(root, path))
    folders = sorted((row for row in copy.rows if row.seen.kind == FOLDER), key=lambda row: row.path)
    for row in folders:
        os.makedirs(os.path.join(root, row.path), exist_ok=True)
        os.chmod(os.path.join(root, row.path), 0o700)
    for number, row in enumerate(copy.rows):
        path = os.path.join(root, row.path)
        staged = os.path.join(root, STAGING, str(number))
        if row.seen.kind == FILE:
            if os.path.lexists(staged):
                os.replace(staged, path)
            os.chmod(path, row.seen.mode)
            os.utime(path, ns=(row.seen.mtime_ns, row.seen.mtime_ns))
        elif row.seen.kind == LINK:
            _link(root, row)
    for row in reversed(folders):  # a folder may be closed to writing once everything is in it
        os.chmod(os.path.join(root, row.path), row.seen.mode)
    clear_leftovers(root)


def _remove(path: str) -> None:
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path)
    elif os.path.lexists(path):
        os.unlink(path)


def _link(root: str, row: CopiedEntry) -> None:
    path = os.path.join(root, row.path)
    target = row.seen.target
    if row.seen.absolute:
        target = os.path.normpath(os.path.join(root, os.path.dirname(row.path), target))
    if os.path.lexists(path):
        os.unlink(path)
    os.symlink(target, path)


def is_same(root: str, copy: DirectoryCopy) -> bool:
    """Whether everything in the directory is also in the copy, the same: a restore that was cut short, or a copy."""
    rows = {row.path: row for row in copy.rows}
    for path, seen in scan(root).listing.items():
        row = rows.get(path)
        if row is None or row.seen.kind != seen.kind or (seen.kind == LINK and seen.target != row.seen.target):
            return False
        if seen.kind == FILE and not _has_same_content(root, row, copy.inventory):
            return False
    return True


def listing_after_restore(root: str, copy: DirectoryCopy) -> tuple[Listing, dict[str, tuple[Part, ...]]]:
    """What the directory looks like now, as far as it is the copy's: what later looks are compared with."""
    now = scan(root).listing
    listing: Listing = {}
    parts: dict[str, tuple[Part, ...]] = {}
    for row in copy.rows:
        seen = now.get(row.path, FileState("gone"))
        same = seen.kind == row.seen.kind and seen.size == row.seen.size and seen.mode == row.seen.mode
        if same and (seen.kind != FILE or seen.mtime_ns == row.seen.mtime_ns):
            listing[row.path] = seen
            if seen.kind == FILE:
                parts[row.path] = row.parts
    return listing, parts
