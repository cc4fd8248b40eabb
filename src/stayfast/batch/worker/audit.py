"""The total-queue check: two sorted streams, merged; memory does not grow with the number of keys."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from stayfast.errors import QueueError


@dataclass(slots=True)
class Audit:
    """What the comparison found; the lists are cut at the limit, the counts are not."""

    enqueued: int = 0
    recorded: int = 0
    dead: int = 0
    missing_count: int = 0
    lost_count: int = 0  # of the missing: acknowledged, and yet not recorded. Never, or there is a bug
    foreign_count: int = 0
    missing: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    foreign: list[str] = field(default_factory=list)

    @property
    def clean(self) -> bool:
        """Keys were enqueued, and every one is recorded or dead."""
        return self.enqueued > 0 and self.missing_count == 0

    def as_json(self) -> dict[str, Any]:
        """The shape that other tools read."""
        return {
            "enqueued": self.enqueued,
            "recorded": self.recorded,
            "dead": self.dead,
            "missing": self.missing,
            "missing_count": self.missing_count,
            "acknowledged_not_recorded": self.lost,
            "foreign_count": self.foreign_count,
            "clean": self.clean,
        }


def audit_queue(entries: Iterator[tuple[str, str]], recorded: Iterator[str], *, limit: int = 10_000) -> Audit:
    """Merge (key, state) of the queue with the keys of the sink, both in key order."""
    audit = Audit()
    result = next(recorded, None)
    previous: str | None = None
    for key, state in entries:
        if previous is not None and key <= previous:
            raise QueueError(f"the queue lists {key!r} after {previous!r}: it is not in order, or holds a key twice")
        previous = key
        audit.enqueued += 1
        while result is not None and result < key:
            _note_foreign(audit, result, limit)
            result = next(recorded, None)
        if result == key:
            audit.recorded += 1
            result = next(recorded, None)
        elif state == "dead":
            audit.dead += 1
        else:
            _note_missing(audit, key, state, limit)
    while result is not None:
        _note_foreign(audit, result, limit)
        result = next(recorded, None)
    return audit


def _note_missing(audit: Audit, key: str, state: str, limit: int) -> None:
    audit.missing_count += 1
    if len(audit.missing) < limit:
        audit.missing.append(key)
    if state == "done":
        audit.lost_count += 1
        if len(audit.lost) < limit:
            audit.lost.append(key)


def _note_foreign(audit: Audit, key: str, limit: int) -> None:
    """A result that nobody enqueued here: another queue may share the table, so it is told, not judged."""
    audit.foreign_count += 1
    if len(audit.foreign) < limit:
        audit.foreign.append(key)
