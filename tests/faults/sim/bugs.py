"""Mistakes that the simulator must find: one line each, made in the product for as long as a hunt lasts."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

from faults import planted
from faults.sim import world
from faults.tiers import Lost
from stayfast.batch.queue import sqlite_schema
from stayfast.batch.queue.sqlite import SqliteQueue
from stayfast.batch.worker.queue_thread import QueueThread
from stayfast.runtime.checkpoint.checkpointer import Checkpointer
from stayfast.runtime.run_record import owner
from stayfast.runtime.run_record.record import RECORD_KEY

Options = dict[str, Any]


def _disk(bug: str) -> Callable[[], contextlib.AbstractContextManager[Options]]:
    return _switched(bug, "disk")


def _switched(bug: str, kind: str) -> Callable[[], contextlib.AbstractContextManager[Options]]:
    @contextlib.contextmanager
    def on() -> Iterator[Options]:
        with planted.switched_on(bug):
            yield {"kind": kind}

    return on


def _patched(kind: str, thing: Any, name: str, new: Any) -> Callable[[], contextlib.AbstractContextManager[Options]]:
    @contextlib.contextmanager
    def on() -> Iterator[Options]:
        with mock.patch.object(thing, name, new):
            yield {"kind": kind}

    return on


class RecordFirstStore:
    """Commits first and writes what it committed afterwards."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self._held_back: list[tuple[str, bytes]] = []
        self.url = inner.url

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def put(self, key: str, data: Any, *, if_generation: str | None = None) -> str:
        if key != RECORD_KEY:
            self._held_back.append((key, bytes(data)))
            return "0"
        generation: str = self._inner.put(key, data, if_generation=if_generation)
        for part, content in self._held_back:
            self._inner.put(part, content)
        self._held_back.clear()
        return generation


def _record_first() -> contextlib.AbstractContextManager[Options]:
    return contextlib.nullcontext({"kind": "bucket", "wrap_store": RecordFirstStore})


_restore_newest = Checkpointer.restore_newest
_cycle = QueueThread._settle_and_claim
_complete = SqliteQueue.complete


def _deaf(self: Checkpointer, head: Any, **options: Any) -> Any:
    """A part that vanished under the reader is damage, whatever was pruned meanwhile."""
    return _restore_newest(self, head, **{**options, "reread": None})


def _ack_first(self: Any) -> Any:
    """The queue hears that it is done before the sink has it."""
    record_all, held = self._sink.record_all, []
    if self._fused:
        return _cycle(self)
    self._sink.record_all = lambda results, **options: held.append((results, options))
    try:
        result = _cycle(self)
    finally:
        self._sink.record_all = record_all
    for results, options in held:
        record_all(results, **options)
    return result


def _eager(self: Any, leases: Any) -> Any:
    """One database, and yet the acknowledgement is committed before the result."""
    kept = _complete(self, leases)
    if self.connection.in_transaction:
        self.connection.execute("COMMIT")
        self.connection.execute("BEGIN IMMEDIATE")
    return kept


_LOOSE = sqlite_schema.COMPLETE.replace("AND generation=? AND holder=?", "AND ? IS NOT NULL AND ? IS NOT 0")

BUGS: dict[str, Callable[[], contextlib.AbstractContextManager[Options]]] = {
    "no fsync(part)": _disk("no fsync(part)"),
    "no fsync(record)": _disk("no fsync(record)"),
    "no fsync(dir) after parts": _disk("no fsync(dir) after parts"),
    "no fsync(dir) after rename": _disk("no fsync(dir) after rename"),
    "remove-then-rename": _disk("remove-then-rename"),
    "fsync error ignored": _disk("fsync error ignored"),
    "fsync retried": _disk("fsync retried"),
    "record before parts": _record_first,
    "412 = conflict": _switched("412 = conflict", "bucket"),
    "timeout = success": _switched("timeout = success", "bucket"),
    "generation not in precondition": _switched("generation not in precondition", "bucket"),
    "token constant": _patched("bucket", owner, "_token", lambda: "always the same"),
    "latest from memory": _switched("latest from memory", "bucket"),
    "prune newest-by-name": _switched("prune newest-by-name", "bucket"),
    "prune while restoring": _patched("bucket", Checkpointer, "restore_newest", _deaf),
    "lease by local clock": _patched("work", SqliteQueue, "_now", lambda self: self._clock.wall()),
    "ack before store": _patched("work", QueueThread, "_cycle", _ack_first),
    "autocommit between UPSERT and ACK": _patched("work", SqliteQueue, "complete", _eager),
    "release without generation": _patched("work", sqlite_schema, "COMPLETE", _LOOSE),
    "poison without cap": _patched(
        "work", SqliteQueue, "fail", lambda self, failures: self.release([failure.lease for failure in failures]) and []
    ),
}
"""Every bug, and the world in which it is looked for."""


def hunt(bug: str, seed: int, seeds: int, deadline_seconds: float = float("inf")) -> tuple[int, float, str]:
    """How many seeds it took to find the bug (0: not found), the CPU seconds, and what was said."""
    began = time.process_time()
    with BUGS[bug]() as options:
        for number in range(seeds):
            try:
                world.play(seed + number, **options)
            except Lost as error:
                return number + 1, time.process_time() - began, str(error)
            if time.process_time() - began > deadline_seconds:
                break
    return 0, time.process_time() - began, ""
