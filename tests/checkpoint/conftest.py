"""Shared by the checkpoint tests: small engines."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from stayfast.runtime.checkpoint.checkpointer import Checkpointer
from stayfast.storage.stores.protocol import Store


@pytest.fixture
def make_engine() -> Iterator[Callable[..., Checkpointer]]:
    """Engines with two threads and small parts, closed at the end."""
    made: list[Checkpointer] = []

    def make(store: Store, **options: Any) -> Checkpointer:
        options.setdefault("threads", 2)
        options.setdefault("part_bytes", 64 << 10)
        made.append(Checkpointer(store, **options))
        return made[-1]

    yield make
    for engine in made:
        engine.close()
