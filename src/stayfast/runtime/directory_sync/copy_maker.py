"""Looks at a directory, and copies: a state of it confirmed, uploaded, committed; what it replaces is deleted."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Callable

from stayfast.clock import Clock
from stayfast.runtime.checkpoint.cleanup import run_cleanup
from stayfast.runtime.checkpoint.inventory import Part, default_algorithm
from stayfast.runtime.checkpoint.policies import KeepLast, apply_retention
from stayfast.runtime.directory_sync.change_tracker import ChangeTracker, CopySet
from stayfast.runtime.directory_sync.copy_restorer import DirectoryCopy, listing_after_restore
from stayfast.runtime.directory_sync.copy_uploader import (
    FileChangedError,
    FileUnreadableError,
    OpenFiles,
    UploadedCopy,
    Uploader,
    changed_files,
)
from stayfast.runtime.directory_sync.file_scan import (
    FOLDER,
    Listing,
    Scan,
    is_closed_for_writing,
    read_file_state,
    scan,
)
from stayfast.runtime.directory_sync.inotify import CLOSED, InotifyEvent, InotifyWatch
from stayfast.runtime.run_record.owner import RecordOwner
from stayfast.runtime.run_record.record import CheckpointRecord

log = logging.getLogger("stayfast")

CONFIRM_SECONDS = 0.02  # longer than the tick of a file's clock
Freeze = Callable[[], contextlib.AbstractContextManager[None]]


class CopyMaker:
    """Makes copies of one directory under one claim; ``copy`` is what was restored to it."""

    def __init__(
        self,
        directory: str,
        ledger: RecordOwner,
        clock: Clock,
        *,
        keep: int,
        watch: InotifyWatch,
        copy: DirectoryCopy | None,
    ) -> None:
        self.root = os.path.realpath(directory)
        self.newest = None if copy is None else copy.committed
        self.watch = watch
        self._directory = directory
        self._ledger = ledger
        self._clock = clock
        self._retention = KeepLast(keep)
        self._uploader = Uploader(ledger.store, clock, default_algorithm())
        self._parts: dict[str, tuple[Part, ...]] = {}
        self._collect_after = 0.0
        self._unreadable: set[str] = set()
        self._reported: set[str] = set()
        base: Listing = {}
        if copy is not None:
            base, self._parts = listing_after_restore(self.root, copy)
            self._uploader.set_known_parts(copy.inventory)
        watch.watch_folders({path for path, seen in base.items() if seen.kind == FOLDER})
        self.journal = ChangeTracker(base, is_told=watch.is_active)

    def look(self) -> Listing:
        """What lies there now; the journal receives the kernel's events, and the files that were closed without one."""
        self.journal.add_events(self.watch.events())
        found = self._scan()
        listing = found.listing
        self.watch.watch_folders({"", *(path for path, seen in listing.items() if seen.kind == FOLDER)})
        finished = (
            path
            for path in self.journal.files_without_events(listing)
            if is_closed_for_writing(self.root, path, listing[path])
        )
        self.journal.add_events(InotifyEvent(CLOSED, path) for path in finished)
        for path, why in found.skipped.items():
            if path not in self._reported:
                self._reported.add(path)
                log.warning("%s in %s %s: it is not copied", path, self._directory, why, extra={"action": "left_out"})
        return listing

    def copy(self, cut: CopySet, *, last: bool = False) -> bool:
        """Upload and commit; false when the directory changed meanwhile, and another look is needed."""
        try:
            cut = self._measure(cut)
            paths = changed_files(cut, self.journal.base)
            with OpenFiles(self.root, cut, paths) as files:
                if not last and not self._is_confirmed(cut, paths):
                    return False
                written = self._upload(files, cut, paths)
        except FileChangedError as change:
            return self._called_off(change)
        return self._commit(cut, written, paths, last)

    def copy_while_paused(self, freeze: Freeze, *, starving: bool) -> bool:
        """The same while the program stands still for an instant: for directories that never rest by themselves."""
        try:
            with contextlib.ExitStack() as stack:
                with freeze():
                    listing = self.look()
                    now = self._clock.monotonic()
                    self.journal.update(listing, now)
                    cut = self.journal.next_copy_set(listing, now)
                    if cut is None and not starving:
                        return False
                    cut = cut or self.journal.full_copy_set(listing, now)
                    paths = changed_files(cut, self.journal.base)
                    files = stack.enter_context(OpenFiles(self.root, cut, paths))
                    files.read_small()
                written = self._upload(files, cut, paths)
        except FileChangedError as change:
            return self._called_off(change)
        return self._commit(cut, written, paths, False)

    def _called_off(self, change: FileChangedError) -> bool:
        log.debug("%s: %s", self.root, change)
        if isinstance(change, FileUnreadableError):
            self._unreadable.add(change.path)
            log.warning("%s in %s may not be read: it is not copied", change.path, self.root)
        return False

    def _scan(self) -> Scan:
        """What lies there and can be copied.

        A directory that is not there at all has not been emptied by anybody, and neither has a folder that cannot be
        read: what the last copy holds of it stays.
        """
        if not os.path.isdir(self.root):
            return Scan(dict(self.journal.base), {}, [])
        found = scan(self.root)
        for folder in found.unreadable_folders:
            inside = f"{folder}/" if folder else ""
            for path, seen in self.journal.base.items():
                if path.startswith(inside):
                    found.listing.setdefault(path, seen)
        for path in self._unreadable:
            found.listing.pop(path, None)
        return found

    def _upload(self, files: OpenFiles, cut: CopySet, paths: list[str]) -> UploadedCopy:
        fresh = set(paths)
        base = {path: parts for path, parts in self._parts.items() if path in cut.listing and path not in fresh}
        head = self._ledger.head
        return self._uploader.write(files, cut, base, (head.next_step, head.attempt))

    def _measure(self, cut: CopySet) -> CopySet:
        """How long the growing files are at this instant."""
        if not cut.growing:
            return cut
        listing = dict(cut.listing)
        for path in cut.growing:
            seen = read_file_state(self.root, path)
            if seen is None:
                raise FileChangedError(f"{path} is gone")
            listing[path] = seen
        return cut._replace(listing=listing)

    def _is_confirmed(self, cut: CopySet, paths: list[str]) -> bool:
        """A look takes time: only if a second one finds the same was there an instant at which all of it was true."""
        newest = max((cut.listing[path].mtime_ns for path in paths if path not in cut.growing), default=0)
        now = self._clock.wall() * 1e9
        if now - CONFIRM_SECONDS * 1e9 < newest <= now + 1e9:  # one that lies in the future was set by hand
            return False
        self._clock.sleep(CONFIRM_SECONDS)
        again = self._scan().listing
        ignored = cut.growing | cut.kept
        before = {path: seen for path, seen in cut.listing.items() if path not in ignored}
        return before == {path: seen for path, seen in again.items() if path not in ignored}

    def _commit(self, cut: CopySet, written: UploadedCopy, paths: list[str], last: bool) -> bool:
        if not last and any(
            path not in cut.growing and self.journal.is_torn(path, cut.listing[path]) for path in paths
        ):
            return False  # somebody was killed while we read: what was closed may not have been finished
        ledger = self._ledger
        committed = CheckpointRecord(
            step=written.step,
            attempt=ledger.head.attempt,
            committed_at=ledger.timestamp(),
            size=written.inventory.size,
            inventory_sha256=written.inventory_sha256,
        )
        before = len(ledger.head.checkpoints)
        head = ledger.commit(committed, keep=lambda rows: apply_retention(self._retention, rows))
        self._uploader.mark_committed(written.inventory)
        self.journal.mark_copied(cut.listing)
        self._parts, self.newest = written.parts, committed
        log.debug("%s: copy %d is committed (%.1f MB new)", self.root, written.step, written.written_bytes / 1e6)
        if len(head.checkpoints) <= before and not last:
            self._collect_garbage()
        return True

    def _collect_garbage(self) -> None:
        """Listing a bucket costs: at most one part in twenty of the time."""
        started = self._clock.monotonic()
        if started < self._collect_after:
            return
        run_cleanup(self._ledger.store, self._clock, self._ledger.head.attempt, level=logging.DEBUG)
        ended = self._clock.monotonic()
        self._collect_after = ended + max(5.0, 20 * (ended - started))
