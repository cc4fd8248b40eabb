"""A changing line on a terminal for what takes longer than two seconds; nothing anywhere else."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Iterator
from typing import TypeVar

Item = TypeVar("Item")

PATIENCE_SECONDS = 2.0
INTERVAL_SECONDS = 0.5


def with_count(items: Iterator[Item], what: str) -> Iterator[Item]:
    """The same items; how many there were so far, and how fast."""
    if not _is_terminal():
        yield from items
        return
    started = time.monotonic()
    due = started + PATIENCE_SECONDS
    shown = False
    try:
        for count, item in enumerate(items, 1):
            if count % 256 == 0 and time.monotonic() > due:
                due, shown = time.monotonic() + INTERVAL_SECONDS, True
                _show(f"{count} {what}, {count / (time.monotonic() - started):.0f}/s")
            yield item
    finally:
        if shown:
            _show("")


@contextlib.contextmanager
def with_elapsed(what: str) -> Iterator[None]:
    """For work that cannot count itself: what it is, and for how long it has been going on."""
    if not _is_terminal():
        yield
        return
    over = threading.Event()
    thread = threading.Thread(target=_tell_until, args=(over, what), daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _tell_until(over: threading.Event, what: str) -> None:
    started = time.monotonic()
    if over.wait(PATIENCE_SECONDS):
        return
    while True:
        _show(f"{what}, {time.monotonic() - started:.0f} s")
        if over.wait(INTERVAL_SECONDS):
            break
    _show("")


def _is_terminal() -> bool:
    return sys.stderr is not None and sys.stderr.isatty()


def _show(line: str) -> None:
    print(f"\r\x1b[K{line}", end="", file=sys.stderr, flush=True)
