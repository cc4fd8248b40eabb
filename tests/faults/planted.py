"""One-line mistakes, switched on by name in tests only; each must be found by the suite that exists to find it.

A mistake is either a disk that is told less than it should be (``wrap_fs``), a store used in the wrong order
(``wrap_store``), or a function of the product replaced for as long as ``switched_on`` lasts.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

from holdfast.checkpoint import garbage, protocol, restore
from holdfast.checkpoint.head import HEAD_KEY, Committed
from holdfast.checkpoint.ledger import RunLedger
from holdfast.checkpoint.protocol import Held
from holdfast.errors import (
    ConflictError,
    CorruptError,
    FormatError,
    HoldfastError,
    KeyMissingError,
    OutcomeUnknownError,
    StoreUnavailableError,
)
from holdfast.fs import FS
from holdfast.stores.base import ABSENT, Store

BUGS: dict[str, str] = {
    "no fsync(part)": "A",
    "no fsync(dir) after parts": "A",
    "no fsync(record)": "A",
    "no fsync(dir) after rename": "A",
    "parents of the root trusted": "A",
    "record before parts": "A",
    "overwrite in place": "A",
    "remove then rename": "A",
    "fsync error ignored": "A",
    "fsync retried": "A",
    "latest from memory": "A",
    "prune newest by name": "A",
    "no fsync at all": "B",
    "fsync error passed over": "C",
    "leftovers of failed writes": "C",
    "acknowledged before commit": "D",
    "412 = conflict": "G",
    "timeout = failure": "G",
    "timeout = success": "G",
    "token constant": "G",
    "shared part name": "G",
    "generation not in precondition": "G",
    "prune by a stale attempt": "G",
    "checksum skipped": "damage",
    "prune while restoring": "damage",
}
"""Every bug and the suite that has to find it."""

_on: str | None = None


def check_name(bug: str | None) -> None:
    """A misspelt bug would be one that nobody finds."""
    if bug is not None and bug not in BUGS:
        raise ValueError(f"no planted bug is called {bug!r}")


class PlantedFS:
    """An ``FS`` that passes everything on, but for one mistake."""

    def __init__(self, inner: Any, bug: str) -> None:
        self._inner = inner
        self._bug = bug
        self._paths: dict[int, str] = {}
        self._just_made_in = ""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def create(self, path: str, *, direct: bool = False) -> int:
        fd: int = self._inner.create(path, direct=direct)
        self._paths[fd] = path
        return fd

    def fsync(self, fd: int) -> None:
        part = "/checkpoints/" in self._paths.get(fd, "")
        if self._bug == "no fsync at all" or self._bug == ("no fsync(part)" if part else "no fsync(record)"):
            return
        try:
            self._inner.fsync(fd)
        except OSError:
            if self._bug == "fsync retried":
                self._inner.fsync(fd)
            elif self._bug not in ("fsync error ignored", "fsync error passed over"):
                raise

    def fsync_dir(self, path: str) -> None:
        below = "/checkpoints" in path
        if self._bug == "no fsync at all" or self._bug == (
            "no fsync(dir) after parts" if below else "no fsync(dir) after rename"
        ):
            return
        if self._bug == "parents of the root trusted" and not below and not path.endswith("/one"):
            if path == self._just_made_in:
                self._just_made_in = ""
                self._inner.fsync_dir(path)
            return
        self._inner.fsync_dir(path)

    def mkdir(self, path: str) -> None:
        self._inner.mkdir(path)
        self._just_made_in = path.rpartition("/")[0] or "/"

    def replace(self, source: str, target: str) -> None:
        exists = self._inner.stat(target) is not None
        if exists and self._bug == "remove then rename":
            self._inner.unlink(target)
        if exists and self._bug == "overwrite in place":
            self._overwrite(source, target)
        else:
            self._inner.replace(source, target)

    def _overwrite(self, source: str, target: str) -> None:
        status = self._inner.stat(source)
        buffer = bytearray(status.size)
        old, new = self._inner.open(source), self._inner.open(target)
        self._inner.read_into(old, memoryview(buffer), 0)
        self._inner.truncate(new, 0)
        self._inner.write(new, buffer, 0)
        self._inner.set_mtime(new, status.mtime_ns)
        self._inner.fsync(new)
        self._inner.unlink(source)

    def unlink(self, path: str) -> None:
        if self._bug == "leftovers of failed writes" and "/.tmp-" in path:
            return
        self._inner.unlink(path)


_FS_BUGS = {bug for bug, suite in BUGS.items() if "fsync" in bug} | {
    "overwrite in place",
    "remove then rename",
    "parents of the root trusted",
    "leftovers of failed writes",
}


def wrap_fs(bug: str | None, fs: FS) -> FS:
    """The disk with the mistake, if the bug is one of the disk's."""
    check_name(bug)
    return PlantedFS(fs, bug) if bug in _FS_BUGS else fs


class RecordFirstStore:
    """Commits first and writes what it committed afterwards."""

    def __init__(self, inner: Store) -> None:
        self._inner = inner
        self._held_back: list[tuple[str, bytes]] = []
        self.url = inner.url

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def put(self, key: str, data: Any, *, if_generation: str | None = None) -> str:
        if key != HEAD_KEY:
            self._held_back.append((key, bytes(data)))
            return "0"
        generation = self._inner.put(key, data, if_generation=if_generation)
        for part, content in self._held_back:
            self._inner.put(part, content)
        self._held_back.clear()
        return generation


def wrap_store(bug: str | None, store: Store) -> Store:
    """The store with the mistake, if the bug is one of order."""
    check_name(bug)
    return RecordFirstStore(store) if bug == "record before parts" else store  # type: ignore[return-value]


# -- what the simulated attempts ask


def folder_name(row: Committed) -> str:
    """The folder of a save."""
    return f"{row.step:012d}-000000" if _on == "shared part name" else row.name


def part_precondition() -> str | None:
    """Parts are created, never replaced."""
    return None if _on == "shared part name" else ABSENT


def token(fresh: str) -> str:
    """Each write of HEAD has its own."""
    return "always the same" if _on == "token constant" else fresh


# -- functions of the product, replaced


def _conflict_is_final(new: Any, generation: str) -> Any:
    """No read-back: a conflict is another's, a time-out is this bug's guess."""
    data = protocol.encode(new)
    while True:
        try:
            written = yield protocol.Put(
                HEAD_KEY, data, None if _on == "generation not in precondition" else generation
            )
            return Held(new, written)
        except ConflictError:
            if _on == "412 = conflict":
                return protocol._Another(None)
            held = yield from protocol.read_head()
            return held if held and held.head.token == new.token else protocol._Another(held.head if held else None)
        except OutcomeUnknownError as error:
            if _on == "timeout = success":
                return Held(new, generation)
            if _on == "timeout = failure":
                raise StoreUnavailableError("timed out") from error
        except StoreUnavailableError:
            pass


def _write_from_memory(self: RunLedger, change: Callable[[Any], Any]) -> Any:
    assert self._held is not None
    head = change(self._held.head)
    try:
        self._held = protocol_drive(protocol.commit(self._held, head, _token), self)
    except HoldfastError:
        self._held = Held(head, self._held.generation)  # "it was asked for, so it is there"
    return self._held.head


def protocol_drive(steps: Any, ledger: RunLedger) -> Any:
    from holdfast.checkpoint.effects import drive

    return drive(steps, ledger.store, ledger._clock)


def _token() -> str:
    import secrets

    return secrets.token_hex(16)


def _needed_by_name(head: Any, entries: Any) -> Any:
    folders = sorted({entry.key.split("/")[1] for entry in entries})[-1:]
    return {entry.key for entry in entries if entry.key.split("/")[1] in folders}
    yield  # a protocol, like the one it stands in for


def _unfenced(attempt: int | None, in_flight: Any = (), *, dry_run: bool = False) -> Any:
    held = yield from protocol.read_head()
    if held is None:
        return garbage.Collected()
    entries = yield garbage.Keys("checkpoints/")
    try:
        needed = yield from garbage._needed(held.head, entries)
    except (CorruptError, FormatError):
        return garbage.Collected()  # as the real one does: what is needed cannot be told
    for entry in entries:
        if entry.key not in needed:
            yield garbage.Delete(entry.key)
    return garbage.Collected()


def _read_unverified(store: Any, inventory: Any, part: Any, number: int, target: memoryview) -> None:
    try:
        store.read_into(part.key, target, offset=number * inventory.chunk_bytes)
    except KeyMissingError as error:
        raise CorruptError(f"{part.key} is missing") from error


def _patches(bug: str) -> list[Any]:
    match bug:
        case "412 = conflict" | "timeout = failure" | "timeout = success" | "generation not in precondition":
            return [mock.patch.object(protocol, "_replace", _conflict_is_final)]
        case "latest from memory":
            return [mock.patch.object(RunLedger, "_write", _write_from_memory)]
        case "prune newest by name":
            return [mock.patch.object(garbage, "_needed", _needed_by_name)]
        case "prune by a stale attempt":
            return [mock.patch.object(garbage, "collect", _unfenced)]
        case "checksum skipped":
            return [mock.patch.object(restore, "read_chunk", _read_unverified)]
        case _:
            return []


@contextlib.contextmanager
def switched_on(bug: str | None) -> Iterator[None]:
    """The product with this mistake in it."""
    global _on
    check_name(bug)
    with contextlib.ExitStack() as stack:
        for patch in _patches(bug) if bug else ():
            stack.enter_context(patch)
        before, _on = _on, bug
        try:
            yield
        finally:
            _on = before


def is_on(bug: str) -> bool:
    """For mistakes that the harness itself has to make (a caller's, not the product's)."""
    check_name(bug)
    return _on == bug
