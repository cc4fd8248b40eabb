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
    from holdfast.runtime.guard import Guard, guard
    from holdfast.runtime.session import Run, run
    from holdfast.runtime.task import Failed, task

__all__ = [
    "Cause",
    "Failed",
    "Guard",
    "HoldfastError",
    "Interrupted",
    "Notice",
    "Run",
    "__version__",
    "guard",
    "run",
    "task",
]

_LAZY = {
    "Failed": "holdfast.runtime.task",
    "task": "holdfast.runtime.task",
    "Guard": "holdfast.runtime.guard",
    "Run": "holdfast.runtime.session",
    "guard": "holdfast.runtime.guard",
    "run": "holdfast.runtime.session",
    "Cause": "holdfast.model.notice",
    "Notice": "holdfast.model.notice",
}


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(importlib.import_module(_LAZY[name]), name)
    raise AttributeError(f"module 'holdfast' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
