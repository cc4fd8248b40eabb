"""Saves that are committed by hand, for the checkpoint tests."""

from __future__ import annotations

from typing import Any

from stayfast.runtime.checkpoint.checkpointer import Checkpointer
from stayfast.runtime.run_record.record import AttemptRecord, CheckpointRecord, RunRecord

WHEN = "2026-11-15T12:00:00.000Z"


def save(engine: Checkpointer, step: int, state: dict[str, Any], attempt: int = 1) -> CheckpointRecord:
    """Snapshot, persist, and tell the engine that it was committed."""
    persisted = engine.persist(engine.snapshot(step, state), attempt)
    engine.mark_committed(persisted)
    return CheckpointRecord(step, attempt, WHEN, persisted.size, persisted.inventory_sha256)


def head_of(*checkpoints: CheckpointRecord, attempt: int = 1) -> RunRecord:
    """A head that lists these, newest first."""
    return RunRecord("run", attempt, "token", tuple(checkpoints), (AttemptRecord(attempt, WHEN),))
