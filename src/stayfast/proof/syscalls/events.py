"""What a watched program is about to do to a file, and the files that an attempt has opened or named so far."""

from __future__ import annotations

import enum
import re
from collections import Counter, defaultdict
from collections.abc import Callable
from typing import NamedTuple

_RANDOM = re.compile(
    r"(?<![a-z])(tmp)[a-z0-9_]{8}(?![a-z0-9_])|[0-9a-f]{12,}|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
)


class FilePoint(enum.StrEnum):
    """What the program is about to do to a file when it is interrupted."""

    OPEN = "open"  # about to empty it or create it
    FIRST_WRITE = "first-write"  # it is empty, nothing written yet
    LATER_WRITE = "later-write"  # some of it is written
    WRITE = "write"  # about to write into a file that was not emptied: an append, a database page
    RENAME = "rename"  # the temporary file is complete, its name not yet
    REMOVE = "remove"  # about to remove it: what it stands for is done, and this not yet said
    CHANGE = "change"  # it has just changed; all that is known where system calls cannot be watched


COUNTABLE = (FilePoint.OPEN, FilePoint.RENAME)
"""What is seen in every attempt, aimed at or not."""


class FileEvent(NamedTuple):
    """The program is about to do this to a file of its own."""

    point: FilePoint
    family: str
    path: str
    at_seconds: float
    """Since the attempt began."""
    nth: int = 1
    """How often this point was reached with this family by now."""


class Reaction(NamedTuple):
    """What becomes of a held call, and what to do right after it was let go."""

    hold: bool = False
    then: Callable[[], None] | None = None


LET_GO = Reaction()
HOLD_CALL = Reaction(hold=True)


def file_family(relative: str) -> str:
    """The name without what changes from one file of a kind to the next."""
    return re.sub(r"\d+", "#", _RANDOM.sub(lambda match: f"{match[1] or ''}*", relative))


class OpenedFiles:
    """Files opened for writing or named, in their order: who does everything again does all of that again."""

    def __init__(self) -> None:
        self._opened: list[tuple[float, tuple[str, FilePoint]]] = []

    @property
    def opened_seconds(self) -> list[float]:
        """When, since the attempt began."""
        return [at for at, _ in list(self._opened)]

    @property
    def families(self) -> Counter[tuple[str, FilePoint]]:
        """How many by family and point."""
        return Counter(key for _, key in list(self._opened))

    def grown(self) -> list[FileEvent]:
        """Files in the place of standard output that hold more than at the last look; by watching calls alone."""
        return []

    def opened_by_family(self) -> dict[tuple[str, FilePoint], list[float]]:
        """When, by family and point."""
        found: dict[tuple[str, FilePoint], list[float]] = defaultdict(list)
        for at, key in list(self._opened):
            found[key].append(at)
        return found
