"""Libraries that only some commands need, imported when they are used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stayfast.errors import MissingExtraError

if TYPE_CHECKING:
    from types import ModuleType


def load_numpy() -> ModuleType:
    """NumPy, or the sentence that says how to get it."""
    try:
        import numpy
    except ImportError as error:
        raise MissingExtraError("replays of capacity need NumPy", help="pip install 'stayfast[sim]'") from error
    module: ModuleType = numpy
    return module
