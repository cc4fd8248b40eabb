"""stayfast keeps AI work alive on capacity that will be taken away.

::

    import stayfast

    with stayfast.run("gs://bucket/runs/llm-7", total_steps=100_000) as run:
        run.track(model=model, optimizer=optimizer)
        for step in run.steps():
            train(step)

Importing this package loads the standard library alone; everything else comes when it is used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from stayfast.errors import Interrupted, StayfastError
from stayfast.version import __version__

if TYPE_CHECKING:
    from stayfast.batch.worker.task import Failed, task
    from stayfast.model.notice import Cause, Notice
    from stayfast.runtime.interruption.guard import Guard, guard
    from stayfast.runtime.runs.run import Run, run

__all__ = [
    "Cause",
    "Failed",
    "Guard",
    "Interrupted",
    "Notice",
    "Run",
    "StayfastError",
    "__version__",
    "guard",
    "run",
    "task",
]

_LAZY = {
    "Failed": "stayfast.batch.worker.task",
    "task": "stayfast.batch.worker.task",
    "Guard": "stayfast.runtime.interruption.guard",
    "Run": "stayfast.runtime.runs.run",
    "guard": "stayfast.runtime.interruption.guard",
    "run": "stayfast.runtime.runs.run",
    "Cause": "stayfast.model.notice",
    "Notice": "stayfast.model.notice",
}


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(importlib.import_module(_LAZY[name]), name)
    raise AttributeError(f"module 'stayfast' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
