"""Plain values that remember where they stood in the file."""

from __future__ import annotations

from typing import Any, NamedTuple

Path = tuple[str | int, ...]


class Place(NamedTuple):
    """A position in a text: line and column count from 1, offset counts characters from 0."""

    line: int
    column: int
    offset: int


def place(mark: Any) -> Place:
    """A parser's mark as a place."""
    return Place(mark.line + 1, mark.column + 1, mark.index)


class Mapping(dict[str, Any]):
    """A mapping; ``key_events`` and ``value_events`` keep the parser's events for positions and edits."""

    __slots__ = ("end", "key_events", "start", "value_events")

    def __init__(self, start: Any) -> None:
        self.start = start
        self.end: Any = start
        self.key_events: dict[str, Any] = {}
        self.value_events: dict[str, Any] = {}


class Sequence(list[Any]):
    """A sequence, with the event that each element began with."""

    __slots__ = ("end", "start", "value_events")

    def __init__(self, start: Any) -> None:
        self.start = start
        self.end: Any = start
        self.value_events: list[Any] = []


class Document:
    """One YAML document of a file."""

    __slots__ = ("index", "root_event", "value")

    def __init__(self, index: int, value: Any, root_event: Any) -> None:
        self.index = index
        self.value = value
        self.root_event = root_event

    def locate(self, path: Path, *, value: bool = False) -> Place:
        """Where ``path`` stands: its key (or list element), or with ``value=True`` its value.

        A path that is not there leads to the deepest part of it that is: the place where the missing thing belongs.
        """
        here = self.value
        found = self.root_event
        for part in path:
            step = _step(here, part, value=value)
            if step is None:
                break
            found, here = step
        return place(found.start_mark)


def _step(here: Any, part: str | int, *, value: bool) -> tuple[Any, Any] | None:
    if isinstance(here, Mapping) and isinstance(part, str) and part in here:
        events = here.value_events if value else here.key_events
        return events[part], here[part]
    if isinstance(here, Sequence) and isinstance(part, int) and 0 <= part < len(here):
        return here.value_events[part], here[part]
    return None


def pointer(path: Path) -> str:
    """The path as an RFC 6901 JSON pointer."""
    return "".join("/" + str(part).replace("~", "~0").replace("/", "~1") for part in path)
