"""Shared by the checkpoint tests: small engines."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from stayfast.runtime.checkpoint.checkpointer import Engine
from stayfast.storage.stores.protocol import Store


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
