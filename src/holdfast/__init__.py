"""holdfast keeps AI work alive on capacity that will be taken away.

::

    import holdfast

    with holdfast.run("gs://bucket/runs/llm-7", total_steps=100_000) as run:
        run.track(model=model, optimizer=optimizer)
        for step in run.steps():
            train(step)

Importing this package loads the standard library alone; everything else comes when it is used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from holdfast.errors import HoldfastError, Interrupted
from holdfast.version import __version__

if TYPE_CHECKING:
    from holdfast.model.notice import Cause, Notice

__all__ = ["Cause", "HoldfastError", "Interrupted", "Notice", "__version__"]

_LAZY = {
    "Cause": "holdfast.model.notice",
    "Notice": "holdfast.model.notice",
}


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(importlib.import_module(_LAZY[name]), name)
    raise AttributeError(f"module 'holdfast' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
