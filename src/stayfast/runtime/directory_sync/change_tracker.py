"""Which state of a directory may be copied: one that it really had, with every file finished.

A program trusts what it has written before: first the data, then the file that names it. So a copy must never hold a
file next to an older version of another one that was finished earlier. The rules, in order:

1. Everything that changed since the last copy is *settled* (closed or renamed into place and untouched since, or
   untouched for a while): copy it all.
2. Some files are still being written, but nothing else was finished since they were begun: leave them as they were in
   the last copy. That is the state just before they were begun. A temporary file never holds a copy up.
3. Otherwise wait; when that has lasted too long, take everything as it is at one instant, unfinished files as long as
   they are then: what a disk would hold if the machine stopped there. Too long is soon for a file that only ever grew
   since the last copy (a log, records), and late for any other: it may be a large checkpoint on its way to the disk.

Order comes from the kernel's events, each with a number; where there are none, from the numbers of the looks.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from stayfast.runtime.directory_sync.file_scan import FILE, FileState, Listing
from stayfast.runtime.directory_sync.inotify import CLOSED, CREATED, RENAMED_INTO_PLACE, InotifyEvent

QUIET_SECONDS = 1.0
"""Untouched this long is finished, when nobody told us of its closing."""
QUIET_OPEN_SECONDS = 3.0
"""The same for a file that we know to be open still."""
PATIENCE_GROWING_SECONDS = 10.0
PATIENCE_SECONDS = 60.0
TORN_NS = 1_000_000_000
"""What a process wrote in its last second before a signal ended it may be half of what it wanted to write."""
CLOSED_BY_DEATH_SECONDS = 0.5
"""A closing that we hear of this near to a death may be the death's own doing, however long ago the last write was."""
NEVER = -1


class CopySet(NamedTuple):
    """What to copy: whole files as they are, growing ones up to the length they have, the rest as in the last copy."""

    listing: Listing
    growing: frozenset[str]
    kept: frozenset[str]
    """Unfinished, so not looked at: what the last copy has of them is in it again."""


@dataclass(slots=True)
class _TrackedPath:
    """What is known of one path that differs from the last copy."""

    seen: FileState | None
    since: float
    began: int
    """Number of an event or look before which it was surely as in the last copy; NEVER when that version is lost."""
    ended: int
    """Number of an event or look by which its last change was surely done."""
    closed: FileState | None = None
    placed: FileState | None = None
    closed_at: float | None = None
    told: bool = False


class ChangeTracker:
    """Follows a directory from look to look."""

    def __init__(self, base: Listing, *, is_told: bool) -> None:
        self.base = base
        self._is_told = is_told
        self._number = 0
        self._last_look = 0
        self._tracks: dict[str, _TrackedPath] = {}
        self._created: dict[str, int] = {}
        self._events: dict[str, tuple[str, int]] = {}
        self._deaths: list[tuple[int, float]] = []
        self.pending_since: float | None = None
        self.changed_at = 0.0

    # -- what happens

    def add_events(self, events: Iterable[InotifyEvent]) -> None:
        """Events in the order of the kernel."""
        for event in events:
            self._number += 1
            if event.kind == CREATED:
                self._created[event.path] = self._number
            self._events[event.path] = (event.kind, self._number)

    def files_without_events(self, listing: Listing) -> list[str]:
        """New versions of files of which no event has come: a folder was made or renamed, and they were in it first."""
        return [
            path
            for path, seen in listing.items()
            if seen.kind == FILE and seen != self.base.get(path) and path not in self._events
            if (track := self._tracks.get(path)) is None or (track.closed != seen and not track.told)
        ]

    def note_crash(self, wall_ns: int, now: float) -> None:
        """A signal ended a process at this instant: its closing of files says nothing about their being finished."""
        self._deaths.append((wall_ns, now))

    def is_torn(self, path: str, seen: FileState | None) -> bool:
        """Whether this version may be half written, by a process that was killed just then.

        Its death closes a file as its own will does; a rename into place is nothing but its will.
        """
        track = self._tracks.get(path)
        if seen is None or seen.kind != FILE or (track is not None and track.placed == seen):
            return False
        closed_at = None if track is None else track.closed_at
        for wall_ns, at in self._deaths:
            if wall_ns - TORN_NS <= seen.mtime_ns <= wall_ns + 50_000_000:
                return True
            if closed_at is not None and abs(closed_at - at) <= CLOSED_BY_DEATH_SECONDS:
                return True
        return False

    def update(self, listing: Listing, now: float) -> bool:
        """Take in a look; true when something differs from the last copy."""
        start, self._number = self._last_look, self._number + 1
        for path in listing.keys() | self.base.keys():
            seen, base, track = listing.get(path), self.base.get(path), self._tracks.get(path)
            if seen == base:
                self._tracks.pop(path, None)
                continue
            kind, number = self._events.get(path, ("", 0))
            if track is None:
                began = self._created.get(path, start) if base is None else start
                track = self._tracks[path] = _TrackedPath(seen, now, began, self._number)
                self.changed_at = now
            elif track.seen != seen:
                if base is None and path in self._created:
                    track.began = self._created[path]  # another file of that name: before it there was none
                elif track.closed is not None or not _has_only_grown(track.seen, seen):
                    track.began = NEVER  # a finished version that was never copied has been overwritten
                track.seen, track.since, track.ended = seen, now, self._number
                self.changed_at = now
            if kind:
                track.told = True
                if kind in (CLOSED, RENAMED_INTO_PLACE):
                    track.closed, track.closed_at = seen, now
                if kind == RENAMED_INTO_PLACE:
                    track.placed = seen
                if kind != CREATED or (seen is not None and seen.kind != FILE):
                    track.ended = number
        for path in [path for path in self._tracks if path not in listing and path not in self.base]:
            del self._tracks[path]  # came and went: a temporary file
        self._events.clear()
        self._created.clear()
        self._last_look = self._number
        if not self._tracks:
            self.pending_since = None
        elif self.pending_since is None:
            self.pending_since = now
        return bool(self._tracks)

    # -- what follows

    def next_copy_set(self, listing: Listing, now: float, *, last: bool = False) -> CopySet | None:
        """The state to copy now; None when there is nothing new, or it is better to wait.

        ``last``: everybody who wrote is gone, and so is the time to wait; as many of the unfinished files as order
        allows are left as they were.
        """
        if not self._tracks:
            return None
        unfinished = self._unfinished(now, last)
        if not unfinished:
            return CopySet(listing, frozenset(), frozenset())
        if len(unfinished) == len(self._tracks):
            return None
        begun = sorted({self._tracks[path].began for path in unfinished})
        for number in begun if last else begun[:1]:
            left = {path for path in unfinished if self._tracks[path].began >= number}
            if all(track.ended < number for path, track in self._tracks.items() if path not in left):
                growing = frozenset(path for path in unfinished - left if path in listing)
                return CopySet(self._as_before(listing, left), growing, frozenset(left))
        return self.full_copy_set(listing, now, last=True) if last else None

    def full_copy_set(self, listing: Listing, now: float, *, last: bool = False) -> CopySet:
        """All there is at this instant, finished or not."""
        unfinished = self._unfinished(now, last)
        return CopySet(listing, frozenset(path for path in unfinished if path in listing), frozenset())

    def is_overdue(self, now: float) -> bool:
        """Whether a copy has been waited for too long."""
        if self.pending_since is None:
            return False
        return now - self.pending_since >= self._patience(self._unfinished(now, False))

    def _unfinished(self, now: float, last: bool) -> set[str]:
        return {path for path, track in self._tracks.items() if not self._is_settled(path, track, now, last)}

    def _as_before(self, listing: Listing, unfinished: set[str]) -> Listing:
        mixed = {path: seen for path, seen in listing.items() if path not in unfinished}
        mixed.update({path: self.base[path] for path in unfinished if path in self.base})
        return mixed

    def _is_settled(self, path: str, track: _TrackedPath, now: float, last: bool) -> bool:
        seen = track.seen
        if seen is None or seen.kind != FILE:
            return True
        if self.is_torn(path, seen):
            return False
        if last or track.closed == seen:
            return True
        quiet = QUIET_OPEN_SECONDS if self._is_told and track.told else QUIET_SECONDS
        return now - track.since >= quiet

    def _patience(self, unfinished: set[str]) -> float:
        for path in unfinished:
            base, seen = self.base.get(path), self._tracks[path].seen
            if not _has_only_grown(base, seen) or (base is not None and seen is not None and base.size == seen.size):
                return PATIENCE_SECONDS
        return PATIENCE_GROWING_SECONDS

    def mark_copied(self, listing: Listing) -> None:
        """This state is in the store now."""
        self.base = listing
        for path in [path for path, track in self._tracks.items() if track.seen == listing.get(path)]:
            del self._tracks[path]
        self.pending_since = None


def _has_only_grown(before: FileState | None, after: FileState | None) -> bool:
    return before is not None and after is not None and before.inode == after.inode and after.size >= before.size
