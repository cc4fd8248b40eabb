"""Saves that are committed by hand, for the checkpoint tests."""

from __future__ import annotations

from typing import Any

from stayfast.runtime.checkpoint.checkpointer import Engine
from stayfast.runtime.run_record.record import AttemptRow, Committed, Head

WHEN = "2026-11-15T12:00:00.000Z"


def save(engine: Engine, step: int, state: dict[str, Any], attempt: int = 1) -> Committed:
    """Snapshot, persist, and tell the engine that it was committed."""
    persisted = engine.persist(engine.snapshot(step, state), attempt)
    engine.committed(persisted)
    return Committed(step, attempt, WHEN, persisted.size, persisted.inventory_sha256)


def head_of(*checkpoints: Committed, attempt: int = 1) -> Head:
    """A head that lists these, newest first."""
    return Head("run", attempt, "token", tuple(checkpoints), (AttemptRow(attempt, WHEN),))
