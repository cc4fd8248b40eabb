"""Shared by the checkpoint tests: small engines, and saves that are committed by hand."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from holdfast.checkpoint.engine import Engine
from holdfast.checkpoint.head import AttemptRow, Committed, Head
from holdfast.stores.base import Store

WHEN = "2026-11-15T12:00:00.000Z"


def save(engine: Engine, step: int, state: dict[str, Any], attempt: int = 1) -> Committed:
    """Snapshot, persist, and tell the engine that it was committed."""
    persisted = engine.persist(engine.snapshot(step, state), attempt)
    engine.committed(persisted)
    return Committed(step, attempt, WHEN, persisted.size, persisted.inventory_sha256)


def head_of(*checkpoints: Committed, attempt: int = 1) -> Head:
    """A head that lists these, newest first."""
    return Head("run", attempt, "token", tuple(checkpoints), (AttemptRow(attempt, WHEN),))


@pytest.fixture
def make_engine() -> Iterator[Callable[..., Engine]]:
    """Engines with two threads and small parts, closed at the end."""
    made: list[Engine] = []

    def make(store: Store, **options: Any) -> Engine:
        options.setdefault("threads", 2)
        options.setdefault("part_bytes", 64 << 10)
        made.append(Engine(store, **options))
        return made[-1]

    yield make
    for engine in made:
        engine.close()
