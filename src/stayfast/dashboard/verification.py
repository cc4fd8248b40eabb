"""Whether the bytes of a checkpoint are what was committed.

A *look* costs little and happens by itself for the newest ones: the inventory matches the commit record, and every part
ends where it should. A *verification* reads every byte and is asked for by a person.
"""

from __future__ import annotations

import threading
from typing import Any

from stayfast.dashboard.thread_pool import DaemonThreadPool
from stayfast.errors import CorruptError, KeyMissingError, StayfastError
from stayfast.runtime.checkpoint.reader import DamagedFile, read_inventory, verify_checkpoint
from stayfast.runtime.run_record.record import MAX_HEAD_BYTES, RECORD_KEY, CheckpointRecord, RunRecord, decode
from stayfast.storage.stores.open_store import open_store
from stayfast.storage.stores.protocol import Store

_LOOKED_AT = 3
_MOST_KEPT = 5000
_MOST_DAMAGE = 20


class Verifier:
    """Remembers verdicts for as long as the server runs; one reader at a time, beside everything else."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str, str | None], dict[str, Any]] = {}
        self._lock = threading.Lock()
        self._worker = DaemonThreadPool(1, "stayfast-verify")
        self._readers = DaemonThreadPool(4, "stayfast-read")
        self.version = 0

    def states(self, url: str, head: RunRecord) -> dict[str, dict[str, Any]]:
        """Verdict by checkpoint name."""
        with self._lock:
            found = {}
            for row in head.checkpoints:
                known = self._known.get(_key(url, row))
                if known is not None:
                    found[row.name] = known
            return found

    def look(self, url: str, head: RunRecord) -> None:
        """Begin to look at the newest checkpoints that nobody has looked at yet."""
        for row in head.checkpoints[:_LOOKED_AT]:
            if row.inventory_sha256 is not None:
                self._submit(url, row, whole=False)

    def verify(self, url: str, committed: CheckpointRecord) -> None:
        """Begin to read every byte."""
        self._submit(url, committed, whole=True)

    def close(self) -> None:
        """Stop after what is being read now."""
        self._worker.shutdown()
        self._readers.shutdown()

    def _submit(self, url: str, committed: CheckpointRecord, *, whole: bool) -> None:
        key = _key(url, committed)
        with self._lock:
            known = self._known.get(key, {}).get("verdict")
            if known == "checking" or (not whole and known is not None):
                return
            if len(self._known) >= _MOST_KEPT:
                self._known.pop(next(iter(self._known)))
            self._known[key] = {"verdict": "checking"}
            self.version += 1
        self._worker.submit(self._judge, url, committed, whole)

    def _judge(self, url: str, committed: CheckpointRecord, whole: bool) -> None:
        try:
            store = open_store(url)
            try:
                verdict = self._read(store, committed) if whole else _check_sizes(store, committed)
                if verdict["verdict"] != ("whole" if whole else "complete") and _is_pruned(store, committed):
                    verdict = {"verdict": "pruned"}
            finally:
                store.close()
        except StayfastError as error:
            verdict = {"verdict": "unreadable", "damage": [{"file": committed.name, "what": str(error)}]}
        with self._lock:
            self._known[_key(url, committed)] = verdict
            self.version += 1

    def _read(self, store: Store, committed: CheckpointRecord) -> dict[str, Any]:
        if committed.inventory_sha256 is None:
            return {"verdict": "whole"}
        damage: dict[str, str] = {}
        for row in committed.ranks:
            for found in verify_checkpoint(store, row, self._readers):
                if isinstance(found, DamagedFile):
                    damage.setdefault(found.key, found.what)
        return _verdict("whole", damage)


def _check_sizes(store: Store, committed: CheckpointRecord) -> dict[str, Any]:
    damage: dict[str, str] = {}
    for row in committed.ranks:
        try:
            _, inventory = read_inventory(store, row)
        except CorruptError as error:
            damage[f"checkpoints/{row.folder}/inventory.json"] = error.message
            continue
        for part in inventory.parts:
            try:
                if len(store.get(part.key, offset=part.length - 1, length=2).data) != 1:
                    damage[part.key] = "has another length than the inventory says"
            except KeyMissingError:
                damage[part.key] = "is missing"
    return _verdict("complete", damage)


def _is_pruned(store: Store, committed: CheckpointRecord) -> bool:
    """Whether the run has let go of it since we were told of it: then missing parts are no damage."""
    rows = decode(store.get(RECORD_KEY, length=MAX_HEAD_BYTES + 1).data).checkpoints
    return all(row.name != committed.name for row in rows)


def _verdict(good: str, damage: dict[str, str]) -> dict[str, Any]:
    found = [{"file": file, "what": what} for file, what in damage.items()]
    return {"verdict": "damaged" if found else good, "damage": found[:_MOST_DAMAGE]}


def _key(url: str, committed: CheckpointRecord) -> tuple[str, str, str | None]:
    return url, committed.name, committed.inventory_sha256
