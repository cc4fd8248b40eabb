"""Read a run's record, and find the newest of its checkpoints that can be read."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TypeVar

from stayfast.clock import Clock
from stayfast.errors import CorruptError
from stayfast.runtime.run_record.commit_protocol import read_head, run_protocol
from stayfast.runtime.run_record.record import CheckpointRecord, RunRecord
from stayfast.storage.stores.protocol import Store

log = logging.getLogger("stayfast")

T = TypeVar("T")


def read_record(store: Store, clock: Clock) -> RunRecord | None:
    """The run's record as it is now, or None when the run has never been claimed."""
    held = run_protocol(read_head(), store, clock)
    return None if held is None else held.head


def newest_readable(
    head: RunRecord,
    read: Callable[[CheckpointRecord], T],
    *,
    among: str,
    noun: str = "checkpoint",
    reread: Callable[[], RunRecord | None] | None = None,
) -> tuple[CheckpointRecord, T] | None:
    """The newest checkpoint that ``read`` accepts, and what it returned; None when the run has no checkpoint.

    ``CorruptError`` from ``read`` sets a checkpoint aside with a warning, and the one before it is tried; when none is
    left, ``CorruptError`` says that none of ``among`` verifies.

    ``reread`` returns the record as it is now: a part may vanish under the reader because another attempt pruned, and
    what the record no longer lists is not damaged.
    """
    damaged: list[str] = []
    pending = list(head.checkpoints)
    while pending:
        committed = pending.pop(0)
        try:
            return committed, read(committed)
        except CorruptError as error:
            now = reread() if reread is not None else None
            if now is not None and committed not in now.checkpoints:
                pending = [item for item in now.checkpoints if item.name not in damaged]
                continue
            damaged.append(committed.name)
            log.warning(
                "%s %s is damaged and set aside: %s", noun, committed.name, error, extra={"action": "set_aside"}
            )
    if damaged:
        raise CorruptError(
            f"none of {among} verifies ({', '.join(damaged)})",
            help="stayfast checkpoints verify lists the damage; start over under another URL",
        )
    return None
