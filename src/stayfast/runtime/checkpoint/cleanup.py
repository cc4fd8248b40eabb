"""Removing what no committed checkpoint needs, so that a crash at any point, or a second writer, loses nothing.

The rule is by reference, not by folder: an object under ``checkpoints/`` may go only when no inventory that
``HEAD.json`` lists mentions it. What makes that safe without locks: a save writes new parts under its own attempt's
folder, and refers to old ones only if the newest committed checkpoint does. So nothing that is unlisted now can become
listed later, except what a save in flight is writing, and that is left alone. When an inventory cannot be read, nothing
is deleted at all.

Written as a protocol that yields its effects, so that the simulator can stop it anywhere.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from dataclasses import dataclass

from stayfast.clock import Clock
from stayfast.errors import CorruptError, FormatError, KeyMissingError, StayfastError
from stayfast.runtime.checkpoint import inventory as inventory_format
from stayfast.runtime.checkpoint.inventory import FOLDER, INVENTORY_KEY, PART_KEY
from stayfast.runtime.checkpoint.reader import matches_record
from stayfast.runtime.run_record.commit_protocol import Delete, EffectGenerator, Get, Keys, read_head, run_protocol
from stayfast.runtime.run_record.record import CheckpointRecord, RunRecord
from stayfast.storage.stores.protocol import Blob, Entry, Store

log = logging.getLogger("stayfast")


@dataclass(frozen=True, slots=True)
class CleanupResult:
    """What was removed, and why nothing was when nothing was."""

    keys: tuple[str, ...] = ()
    bytes: int = 0
    refused: str | None = None


def delete_unreferenced(
    attempt: int | None, in_flight: Collection[str] = (), *, dry_run: bool = False
) -> EffectGenerator[CleanupResult]:
    """Delete unreferenced objects of this attempt and older ones.

    ``attempt`` is the caller's own; None means a caller from outside the run (the command line), which leaves alone
    everything that the live attempt may be writing right now. ``in_flight`` are keys or folders of the caller's own
    unfinished save.
    """
    held = yield from read_head()
    if held is None:
        return CleanupResult(refused="the run has never been claimed: there is no HEAD.json to say what is needed")
    head = held.head
    if attempt is not None and head.attempt != attempt:
        return CleanupResult(refused=f"attempt {head.attempt} owns the run, not {attempt}")
    entries: list[Entry] = yield Keys(f"{FOLDER}/")
    try:
        needed = yield from _referenced_keys(head, entries)
    except (CorruptError, FormatError) as error:
        return CleanupResult(refused=f"what is needed cannot be told: {error}")
    doomed = [entry for entry in entries if _is_deletable(entry.key, head, attempt, needed, in_flight)]
    doomed.sort(key=lambda entry: (entry.key.endswith(".bin"), entry.key))  # an inventory goes before its parts
    if not dry_run:
        for entry in doomed:
            yield Delete(entry.key)
    return CleanupResult(tuple(entry.key for entry in doomed), sum(entry.size for entry in doomed))


def run_cleanup(
    store: Store, clock: Clock, attempt: int | None, in_flight: Collection[str] = (), *, level: int = logging.WARNING
) -> bool:
    """Clean up after a commit; False after an error, which is logged: it is never worth failing a save for."""
    try:
        found = run_protocol(delete_unreferenced(attempt, in_flight), store, clock)
    except StayfastError as error:
        log.log(level, "pruning stopped: %s", error, extra={"action": "prune_failed"})
        return False
    if found.refused:
        log.log(level, "nothing was pruned: %s", found.refused, extra={"action": "prune_refused"})
    return True


def _is_deletable(key: str, head: RunRecord, attempt: int | None, needed: set[str], in_flight: Collection[str]) -> bool:
    match = PART_KEY.match(key) or INVENTORY_KEY.match(key)
    if match is None or key in needed:  # not of our making, or of use
        return False
    if any(key == name or key.startswith(name.rstrip("/") + "/") for name in in_flight):
        return False
    step, owner = int(match[1]), int(match[2])
    if owner > head.attempt:
        return False
    if owner < head.attempt or (attempt is None and head.attempts and head.current_attempt.outcome is not None):
        return True
    # Of the live attempt, only what lies before its newest commit: the rest may be in flight, here or on another rank.
    newest = -1 if head.newest is None else head.newest.step
    return step < newest or (step == newest and attempt is not None)


def _referenced_keys(head: RunRecord, entries: list[Entry]) -> EffectGenerator[set[str]]:
    """Every key that a committed checkpoint needs, its inventory included."""
    needed: set[str] = set()
    for committed in head.checkpoints:
        for row in committed.ranks:
            if row.inventory_sha256 is not None:
                key, found = yield from _inventory(row, entries)
                needed.add(key)
                needed.update(part.key for part in found.parts)
    return needed


def _inventory(
    committed: CheckpointRecord, entries: list[Entry]
) -> EffectGenerator[tuple[str, inventory_format.Inventory]]:
    """The one inventory under the folder that the commit record means."""
    folder = f"{FOLDER}/{committed.folder}/"
    for key in [entry.key for entry in entries if entry.key.startswith(folder) and INVENTORY_KEY.match(entry.key)]:
        try:
            blob: Blob = yield Get(key)
        except KeyMissingError:
            continue
        if matches_record(blob.data, committed):
            return key, inventory_format.decode(blob.data, where=key)
    raise CorruptError(f"{folder}inventory.json is missing or does not match the commit record")
