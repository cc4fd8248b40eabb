"""Shared by the mirror's tests: mirrors that are driven by hand, and trees of files to compare."""

from __future__ import annotations

import os
import time
from pathlib import Path

from stayfast.clock import SystemClock
from stayfast.runtime.directory_sync.sync import DirectorySync, SyncOptions
from stayfast.runtime.run_record.record import AttemptRecord
from stayfast.storage.stores.memory import MemoryStore
from stayfast.storage.stores.protocol import Store


def mirror_of(directory: Path, store: Store, **options: object) -> DirectorySync:
    """A mirror that nobody has started yet."""
    row = AttemptRecord(attempt=0, started_at="2026-11-15T20:00:00.000Z")
    return DirectorySync(str(directory), store.url, store, SyncOptions(SystemClock(), row, **options))  # type: ignore[arg-type]


def opened(directory: Path, store: Store, **options: object) -> DirectorySync:
    """Claimed, brought back, and not yet copying."""
    mirror = mirror_of(directory, store, **options)
    mirror.claim_and_restore()
    return mirror


def copied(mirror: DirectorySync, seconds: float = 20.0) -> None:
    """The last copy, as at the end of a program."""
    mirror.start()
    mirror.finish()
    assert mirror.done.wait(seconds), mirror.last_error
    assert mirror.superseded is None
    assert mirror.last_error is None


def keep(directory: Path, store: Store) -> DirectorySync:
    """Open, copy what lies there, close."""
    mirror = opened(directory, store)
    copied(mirror)
    return mirror


def contents(directory: Path) -> dict[str, object]:
    """Everything in a directory, in a form that two of them can be compared by."""
    found: dict[str, object] = {}
    for path in sorted(directory.rglob("*")):
        name = str(path.relative_to(directory))
        if path.is_symlink():
            found[name] = ("link", os.readlink(path))
        elif path.is_dir():
            found[name] = ("folder", path.stat().st_mode & 0o777)
        else:
            status = path.stat()
            found[name] = ("file", status.st_mode & 0o777, status.st_mtime_ns, path.read_bytes())
    return found


def until(condition: object, seconds: float = 20.0) -> None:
    """Wait for something that another thread or process does."""
    end = time.monotonic() + seconds
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.02)


def memory() -> MemoryStore:
    """A store of this test's own."""
    return MemoryStore()
