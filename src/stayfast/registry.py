"""How a part is added: one module, and one line in a table of names.

A table maps a name to ``"package.module:attribute"``, or to a module as a whole. The module is imported when its name
is asked for, never before. A name that the table does not have is looked up among the entry points of installed
packages, so that another distribution adds a part without a change here; only an unknown name pays for that search.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Mapping

T = TypeVar("T")


class Registry(Generic[T]):
    """Parts by name: a table of our own, then the entry points of ``group``."""

    def __init__(self, group: str, table: Mapping[str, str]) -> None:
        self.group = group
        self._places = dict(table)
        self._loaded: dict[str, T] = {}

    def names(self) -> tuple[str, ...]:
        """The names of our own table, in its order."""
        return tuple(self._places)

    def installed_names(self) -> tuple[str, ...]:
        """The names of our own table, then those that installed packages add."""
        from importlib.metadata import entry_points

        added = sorted(point.name for point in entry_points(group=self.group))
        return (*self._places, *(name for name in added if name not in self._places))

    def find(self, name: str) -> T | None:
        """The part of this name, imported now; ``None`` where no table has it."""
        if name not in self._loaded:
            part = self._load(name)
            if part is None:
                return None
            self._loaded[name] = part
        return self._loaded[name]

    def parts(self) -> list[T]:
        """All parts, imported now: for a message that lists them."""
        return [part for part in map(self.find, self.installed_names()) if part is not None]

    def _load(self, name: str) -> Any:
        place = self._places.get(name)
        if place is not None:
            name, _, attribute = place.partition(":")
            module = importlib.import_module(name)
            return getattr(module, attribute) if attribute else module
        from importlib.metadata import entry_points

        for point in entry_points(group=self.group, name=name):
            return point.load()
        return None
