"""What a watched program is about to do to a file."""

from __future__ import annotations

import enum


class Point(enum.StrEnum):
    """What the program is about to do to a file when it is interrupted."""

    OPEN = "open"  # about to empty it or create it
    FIRST_WRITE = "first-write"  # it is empty, nothing written yet
    LATER_WRITE = "later-write"  # some of it is written
    WRITE = "write"  # about to write into a file that was not emptied: an append, a database page
    RENAME = "rename"  # the temporary file is complete, its name not yet
    REMOVE = "remove"  # about to remove it: what it stands for is done, and this not yet said
    CHANGE = "change"  # it has just changed; all that is known where system calls cannot be watched


COUNTABLE = (Point.OPEN, Point.RENAME)
"""What is seen in every attempt, aimed at or not."""
