"""One copy: a state of the directory confirmed, uploaded, committed, and what it replaces collected."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Callable

from stayfast.clock import Clock
from stayfast.errors import StayfastError
from stayfast.runtime.checkpoint.checksum import default_algorithm
from stayfast.runtime.checkpoint.cleanup import collect
from stayfast.runtime.checkpoint.inventory import Part
from stayfast.runtime.checkpoint.retention import KeepLast, retained
from stayfast.runtime.directory_sync.change_tracker import Cut, Journal
from stayfast.runtime.directory_sync.copy_restorer import Copy, listing_of
from stayfast.runtime.directory_sync.copy_uploader import Changed, OpenFiles, Unreadable, Uploader, Written, to_read
from stayfast.runtime.directory_sync.file_scan import Listing, Scan, look_again, scan
from stayfast.runtime.run_record.effects import drive
from stayfast.runtime.run_record.owner import RunLedger
from stayfast.runtime.run_record.record import Committed

log = logging.getLogger("stayfast")

CONFIRM_SECONDS = 0.02  # longer than the tick of a file's clock
Freeze = Callable[[], contextlib.AbstractContextManager[None]]


class Copier:
    """Makes copies of one directory under one claim."""

    def __init__(self, root: str, ledger: RunLedger, clock: Clock, keep: int) -> None:
        self.root = root
        self.newest: Committed | None = None
        self.journal = Journal({}, is_told=False)
        self._ledger = ledger
        self._clock = clock
        self._retention = KeepLast(keep)
        self._uploader = Uploader(ledger.store, clock, default_algorithm())
        self._parts: dict[str, tuple[Part, ...]] = {}
        self._collect_after = 0.0
        self.unreadable: set[str] = set()

    def go_on_from(self, copy: Copy) -> Listing:
        """The directory holds this copy, or what became of it; returns what of it is there unchanged."""
        listing, self._parts = listing_of(self.root, copy)
        self._uploader.know(copy.inventory)
        self.newest = copy.committed
        return listing

    def copy(self, cut: Cut, *, last: bool = False) -> bool:
        """Upload and commit; false when the directory changed meanwhile, and another look is needed."""
        try:
            cut = self._measure(cut)
            paths = to_read(cut, self.journal.base)
            with OpenFiles(self.root, cut, paths) as files:
                if not last and not self._is_confirmed(cut, paths):
                    return False
                written = self._upload(files, cut, paths)
        except Changed as change:
            return self._called_off(change)
        return self._commit(cut, written, paths, last)

    def copy_frozen(self, freeze: Freeze, look: Callable[[], Listing], *, starving: bool) -> bool:
        """The same while the program stands still for an instant: for directories that never rest by themselves."""
        try:
            with contextlib.ExitStack() as stack:
                with freeze():
                    listing = look()
                    now = self._clock.monotonic()
                    self.journal.look(listing, now)
                    cut = self.journal.cut(listing, now)
                    if cut is None and not starving:
                        return False
                    cut = cut or self.journal.everything(listing, now)
                    paths = to_read(cut, self.journal.base)
                    files = stack.enter_context(OpenFiles(self.root, cut, paths))
                    files.read_small()
                written = self._upload(files, cut, paths)
        except Changed as change:
            return self._called_off(change)
        return self._commit(cut, written, paths, False)

    def _called_off(self, change: Changed) -> bool:
        log.debug("%s: %s", self.root, change)
        if isinstance(change, Unreadable):
            self.unreadable.add(change.path)
            log.warning("%s in %s may not be read: it is not copied", change.path, self.root)
        return False

    def look(self) -> Scan:
        """What lies there and can be copied.

        A directory that is not there at all has not been emptied by anybody, and neither has a folder that cannot be
        read: what the last copy holds of it stays.
        """
        if not os.path.isdir(self.root):
            return Scan(dict(self.journal.base), {}, [])
        found = scan(self.root)
        for folder in found.unread:
            inside = f"{folder}/" if folder else ""
            for path, seen in self.journal.base.items():
                if path.startswith(inside):
                    found.listing.setdefault(path, seen)
        for path in self.unreadable:
            found.listing.pop(path, None)
        return found

    def _upload(self, files: OpenFiles, cut: Cut, paths: list[str]) -> Written:
        fresh = set(paths)
        base = {path: parts for path, parts in self._parts.items() if path in cut.listing and path not in fresh}
        head = self._ledger.head
        return self._uploader.write(files, cut, base, (head.next_step, head.attempt))

    def _measure(self, cut: Cut) -> Cut:
        """How long the growing files are at this instant."""
        if not cut.growing:
            return cut
        listing = dict(cut.listing)
        for path in cut.growing:
            seen = look_again(self.root, path)
            if seen is None:
                raise Changed(f"{path} is gone")
            listing[path] = seen
        return cut._replace(listing=listing)

    def _is_confirmed(self, cut: Cut, paths: list[str]) -> bool:
        """A look takes time: only if a second one finds the same was there an instant at which all of it was true."""
        newest = max((cut.listing[path].mtime_ns for path in paths if path not in cut.growing), default=0)
        now = self._clock.wall() * 1e9
        if now - CONFIRM_SECONDS * 1e9 < newest <= now + 1e9:  # one that lies in the future was set by hand
            return False
        self._clock.sleep(CONFIRM_SECONDS)
        again = self.look().listing
        ignored = cut.growing | cut.kept
        before = {path: seen for path, seen in cut.listing.items() if path not in ignored}
        return before == {path: seen for path, seen in again.items() if path not in ignored}

    def _commit(self, cut: Cut, written: Written, paths: list[str], last: bool) -> bool:
        if not last and any(
            path not in cut.growing and self.journal.is_torn(path, cut.listing[path]) for path in paths
        ):
            return False  # somebody was killed while we read: what was closed may not have been finished
        ledger = self._ledger
        committed = Committed(
            step=written.step,
            attempt=ledger.head.attempt,
            committed_at=ledger.now(),
            size=written.inventory.size,
            inventory_sha256=written.inventory_sha256,
        )
        before = len(ledger.head.checkpoints)
        head = ledger.commit(committed, keep=lambda rows: retained(self._retention, rows))
        self._uploader.committed(written.inventory)
        self.journal.copied(cut.listing)
        self._parts, self.newest = written.parts, committed
        log.debug("%s: copy %d is committed (%.1f MB new)", self.root, written.step, written.written_bytes / 1e6)
        if len(head.checkpoints) <= before and not last:
            self._collect_garbage()
        return True

    def _collect_garbage(self) -> None:
        """Listing a bucket costs: at most one part in twenty of the time; nothing here is worth failing a copy for."""
        started = self._clock.monotonic()
        if started < self._collect_after:
            return
        try:
            drive(collect(self._ledger.head.attempt), self._ledger.store, self._clock)
        except StayfastError as error:
            log.debug("pruning stopped: %s", error)
        ended = self._clock.monotonic()
        self._collect_after = ended + max(5.0, 20 * (ended - started))
