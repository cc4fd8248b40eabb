"""From a snapshot to durable parts and an inventory: not yet a checkpoint, that is the commit's to say."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Mapping
from concurrent.futures import Executor
from dataclasses import dataclass

from stayfast.clock import Clock
from stayfast.errors import CheckpointError, ConflictError, OutcomeUnknownError, StoreError, StoreUnavailableError
from stayfast.filesystem import Buffer
from stayfast.runtime.checkpoint.inventory import FOLDER, Inventory, Part, check, digest_named, encode
from stayfast.runtime.checkpoint.layout import Layout
from stayfast.runtime.checkpoint.snapshot import Snapshot
from stayfast.storage.stores.protocol import ABSENT, Store

CHUNK_BYTES = 8 << 20
TRIES = 5
FIRST_PAUSE_SECONDS = 0.1
MAX_NAME_SUFFIXES = 9999

Content = tuple[int, tuple[str, ...]]


def checkpoint_folder(step: int, attempt: int, rank: int = 0) -> str:
    """Where the objects of one save go; each rank but the first has a folder of its own in it."""
    return f"{FOLDER}/{step:012d}-{attempt:06d}" + (f"/rank-{rank:05d}" if rank else "")


@dataclass(frozen=True, slots=True)
class DurableSnapshot:
    """Durable and complete, but not committed: the caller replaces HEAD, and only then does the checkpoint exist."""

    step: int
    attempt: int
    size: int
    inventory_sha256: str
    written_bytes: int
    """Less than ``size`` when unchanged parts were referenced instead of written."""
    seconds: float
    inventory: Inventory
    layout: Layout
    unchanged: Mapping[int, bytes | None]
    """Parts that were not written, with their fingerprints where they were taken on a device."""


@dataclass(slots=True)
class PartWriter:
    """One save in progress."""

    store: Store
    clock: Clock
    algorithm: str
    known: Mapping[Content, str]
    """Parts of the newest committed checkpoint, by content."""
    chunk_bytes: int = CHUNK_BYTES
    rank: int = 0

    def write(self, snapshot: Snapshot, attempt: int, executor: Executor) -> DurableSnapshot:
        """Parts in parallel, the inventory after the last of them; an error stops the parts not yet begun."""
        started = self.clock.monotonic()
        folder = checkpoint_folder(snapshot.step, attempt, self.rank)
        failed = threading.Event()
        numbers = range(len(snapshot.layout.parts))
        futures = [executor.submit(self._part, snapshot, number, folder, failed) for number in numbers]
        errors = [error for future in futures if (error := future.exception()) is not None]
        rows = [future.result() for future in futures if future.exception() is None]
        try:
            if errors:
                raise next((error for error in errors if not isinstance(error, _CancelledError)), errors[0])
            return self._inventory(snapshot, attempt, folder, rows, started)
        except BaseException:
            self._discard([part.key for part, written in rows if written])
            raise

    def _inventory(
        self, snapshot: Snapshot, attempt: int, folder: str, rows: list[tuple[Part, int]], started: float
    ) -> DurableSnapshot:
        inventory = Inventory(
            step=snapshot.step,
            attempt=attempt,
            algorithm=self.algorithm,
            chunk_bytes=self.chunk_bytes,
            parts=tuple(part for part, _ in rows),
            entries=snapshot.entries(),
        )
        check(inventory)
        data = encode(inventory)
        create_once(self.store, self.clock, f"{folder}/inventory", ".json", data)
        prints = snapshot.copies.prints if snapshot.copies is not None else {}
        return DurableSnapshot(
            step=snapshot.step,
            attempt=attempt,
            size=inventory.size,
            inventory_sha256=hashlib.sha256(data).hexdigest(),
            written_bytes=sum(written for _, written in rows) + len(data),
            seconds=self.clock.monotonic() - started,
            inventory=inventory,
            layout=snapshot.layout,
            unchanged={number: prints.get(number) for number, row in enumerate(rows) if not row[1]},
        )

    def _discard(self, keys: list[str]) -> None:
        """A failed save leaves no garbage: a disk that is full must not be filled again by every next try.

        These parts were written by this very save and no inventory that mentions them was ever handed out.
        """
        for key in keys:
            try:
                self.store.delete(key)
            except StoreError:
                return  # garbage collection comes back to it

    def _part(self, snapshot: Snapshot, number: int, folder: str, failed: threading.Event) -> tuple[Part, int]:
        if failed.is_set():
            raise _CancelledError("another part of this save failed first")
        try:
            if (same := snapshot.unchanged_parts.get(number)) is not None:
                return same, 0
            view = snapshot.part(number)
            digest = digest_named(self.algorithm)
            chunks = tuple(digest(view[at : at + self.chunk_bytes]) for at in range(0, len(view), self.chunk_bytes))
            known = self.known.get((len(view), chunks))
            if known is not None:
                return Part(known, len(view), chunks), 0
            key = create_once(self.store, self.clock, f"{folder}/part-{number:05d}", ".bin", view)
            return Part(key, len(view), chunks), len(view)
        except BaseException:
            failed.set()
            raise


def create_once(store: Store, clock: Clock, stem: str, suffix: str, data: Buffer) -> str:
    """Create-only, under a name nobody used: leftovers and writes of unknown outcome stay as they are; the key."""
    pause = FIRST_PAUSE_SECONDS
    tries = 1
    for fresh in range(MAX_NAME_SUFFIXES):
        key = f"{stem}{suffix}" if not fresh else f"{stem}.{fresh}{suffix}"
        try:
            store.put(key, data, if_generation=ABSENT)
            return key
        except ConflictError:
            continue
        except (StoreUnavailableError, OutcomeUnknownError):
            if tries == TRIES:
                raise
        tries += 1
        clock.sleep(pause)
        pause *= 2
    raise CheckpointError(f"there are {MAX_NAME_SUFFIXES} leftovers under {stem}", help="remove them by hand")


class _CancelledError(CheckpointError):
    """Not the error that matters."""
