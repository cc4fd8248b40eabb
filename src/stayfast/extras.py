"""Libraries that only some commands need, imported when they are used."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from stayfast.errors import MissingExtraError

if TYPE_CHECKING:
    from types import ModuleType


def load_extra(module: str, needs: str, *, get: str) -> ModuleType:
    """The module, or ``needs`` as one sentence with the command that gets it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise MissingExtraError(needs, help=get) from error


def load_numpy() -> ModuleType:
    """What plans and replays compute with."""
    return load_extra("numpy", "replays of capacity need NumPy", get="pip install 'stayfast[sim]'")


def check_dashboard() -> None:
    """Whether there is what the dashboard is served with."""
    for module in ("starlette", "uvicorn"):
        load_extra(module, "the dashboard needs Starlette and uvicorn", get='pip install "stayfast[dashboard]"')
