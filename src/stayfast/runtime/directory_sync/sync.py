"""One directory and its URL: claimed and brought back before the program starts, copied while it runs, and at its end.

::

    sync = DirectorySync("ckpt", "gs://bucket/run", store, options)
    sync.claim_and_restore()   # claims the URL, restores the newest good copy
    sync.start()               # a thread copies what the program finishes
    sync.finish()              # the program has ended: one last copy, as fast as possible
    sync.done.wait(...)

The store may be away for hours: the program never waits for it. Whoever claims the URL after us ends our copying.
"""

from __future__ import annotations

import logging
import os
import threading
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from stayfast.backoff import Backoff
from stayfast.clock import Clock
from stayfast.errors import CorruptError, RunError, StayfastError, SupersededError
from stayfast.filesystem import sync_filesystem
from stayfast.runtime.directory_sync.copy_maker import CopyMaker, Freeze
from stayfast.runtime.directory_sync.copy_restorer import DirectoryCopy, is_same, read_copy, restore_newest_copy
from stayfast.runtime.directory_sync.inotify import InotifyWatch
from stayfast.runtime.directory_sync.local_state import (
    UNFINISHED,
    LocalState,
    classify_local_state,
    clear_leftovers,
    move_aside,
    write_mark,
)
from stayfast.runtime.run_record.owner import RecordOwner
from stayfast.runtime.run_record.read import read_record
from stayfast.runtime.run_record.record import AttemptRecord, CheckpointRecord, RunRecord
from stayfast.storage.stores.precondition_check import check_preconditions
from stayfast.storage.stores.protocol import Store

log = logging.getLogger("stayfast")

LOOK_SECONDS, LOOK_UNTOLD_SECONDS = 2.0, 1.0
"""Between slow looks, with and without the kernel's help; less often where looking itself is slow."""
SOON_SECONDS = 0.15
CALM_SECONDS, CALM_AT_MOST_SECONDS = 0.3, 1.5
"""A save is often several files: wait this long for the next one, but never longer than that in all."""
RESTLESS_SECONDS = 2.0
"""A directory in which something changes all the time is copied by making the program stand still for an instant."""
BETWEEN_COPIES_SECONDS = 1.0  # a bucket takes about one change of HEAD.json per second
LOOK_SHARE = 50  # at most one part in so many of the time is spent on looking
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 1.0, 30.0


class SyncOptions(NamedTuple):
    """What a mirror needs to know beside its directory and its URL."""

    clock: Clock
    row: AttemptRecord
    keep: int = 2
    on_change: Callable[[], None] = lambda: None
    """Called on the mirror's thread when it was superseded or is done."""
    freeze: Freeze | None = None
    """Makes the program stand still; without it a directory that never rests is not copied before the end."""


class DirectorySync:
    """See the module."""

    def __init__(self, directory: str, url: str, store: Store, options: SyncOptions) -> None:
        self.directory = directory
        self.url = url
        self.root = os.path.realpath(directory)
        self.done = threading.Event()
        self.attempt = 0
        """Which attempt of this URL we are; 0 until it was claimed."""
        self.superseded: SupersededError | None = None
        self.last_error: StayfastError | None = None
        self.seconds: deque[float] = deque(maxlen=8)
        self._store = store
        self._options = options
        self._clock = options.clock
        self._ledger = RecordOwner(store, url, clock=options.clock)
        self._copier: CopyMaker | None = None
        self._ending = threading.Event()
        self._failures = 0

    # -- before the program

    def claim_and_restore(self) -> None:
        """Claim the URL and make the directory what it should be; after an error nothing half is in it."""
        check_preconditions(self._store)
        os.makedirs(self.root, exist_ok=True)
        found = read_record(self._store, self._clock)
        if found is not None and found.newest is not None:
            try:
                read_copy(self._store, found.newest)  # somebody else's run is not to be claimed
            except CorruptError:
                pass  # damage is dealt with below
        head = self._ledger.claim(self._options.row)
        self.attempt = head.attempt
        local = classify_local_state(self.root, self.url, head)
        copy = self._restore_or_keep(head, local)
        if copy is not None and copy.committed != head.newest:
            self._ledger.resume_from(copy.committed)
        write_mark(self.root, self.url, head.attempt)
        watch = InotifyWatch(self.root)
        keep = self._options.keep
        self._copier = CopyMaker(self.directory, self._ledger, self._clock, keep=keep, watch=watch, copy=copy)

    @property
    def newest(self) -> CheckpointRecord | None:
        """The newest copy of which we know."""
        return None if self._copier is None else self._copier.newest

    def _restore_or_keep(self, head: RunRecord, local: LocalState) -> DirectoryCopy | None:
        """Bring back or leave alone; returns the copy that the directory now goes on from."""
        clear_leftovers(self.root)
        if local is LocalState.NEWEST:
            log.info("%s goes on with what lies there", self.directory, extra={"action": "sync_kept"})
            return self._readable(head)
        if local is LocalState.UNKNOWN_OWNER:
            newest = self._readable(head)
            if newest is None or not is_same(self.root, newest):
                place = move_aside(self.root)
                log.warning(
                    "%s held files that are not in the copy under %s: they were moved to %s",
                    self.directory,
                    self.url,
                    place,
                    extra={"action": "sync_set_aside"},
                )
        write_mark(self.root, self.url, UNFINISHED)
        copy = restore_newest_copy(self._store, head, self.root, replace=local is LocalState.STALE)
        if copy is not None:
            sync_filesystem(self.root)  # before the mark says that what lies here may be trusted after a power cut
            files = sum(bool(row.parts) for row in copy.rows)
            log.info(
                "%s: copy %d of attempt %d is back (%d files, %.1f MB)",
                self.directory,
                copy.committed.step,
                copy.committed.attempt,
                files,
                copy.committed.size / 1e6,
                extra={"action": "sync_restored"},
            )
        return copy

    def _readable(self, head: RunRecord) -> DirectoryCopy | None:
        try:
            return None if head.newest is None else read_copy(self._store, head.newest)
        except CorruptError as error:
            log.warning("copy %s is damaged: %s", head.newest and head.newest.name, error, extra={"action": "damaged"})
            return None

    # -- while the program runs

    def start(self) -> None:
        """Copy in the background from now on."""
        threading.Thread(target=self._work, name="stayfast-sync", daemon=True).start()

    def note_crash(self) -> None:
        """A signal ended a process of the program: what it wrote last may be torn."""
        assert self._copier is not None
        self._copier.journal.note_crash(int(self._clock.wall() * 1e9), self._clock.monotonic())

    def finish(self) -> None:
        """The program is gone: copy what is left now, then set ``done``."""
        self._ending.set()
        if self._copier is not None:
            self._copier.watch.wake()

    def expected_seconds(self) -> float:
        """How long a copy takes, on a bad day."""
        return max(self.seconds, default=1.0)

    def _work(self) -> None:
        pause, copier = 0.0, self._copier
        assert copier is not None
        try:
            while not self._ending.is_set():
                if copier.watch.wait(pause) and not self._ending.is_set():
                    self._clock.wait(self._ending, SOON_SECONDS)
                pause = self._check_once(copier)
            while not self._end(copier):
                self._clock.sleep(0.2)
        except SupersededError as error:
            self.superseded = error
            log.warning("%s: %s; nothing more is copied", self.directory, error, extra={"action": "superseded"})
        except Exception as error:
            self.last_error = RunError(f"copying {self.directory} stopped: {type(error).__name__}: {error}")
            log.exception("copying %s stopped", self.directory)
        self.done.set()
        self._options.on_change()

    def _check_once(self, copier: CopyMaker) -> float:
        """Look, and copy if it is time; returns how long to wait before the next look."""
        started = self._clock.monotonic()
        listing = copier.look()
        now = self._clock.monotonic()
        seconds = now - started
        soon = max(SOON_SECONDS, LOOK_SHARE * seconds)
        journal = copier.journal
        if not journal.update(listing, now):
            return max(LOOK_SECONDS if copier.watch.is_active else LOOK_UNTOLD_SECONDS, 2 * LOOK_SHARE * seconds)
        waited = now - (journal.pending_since or now)
        if now - journal.changed_at < CALM_SECONDS and waited < CALM_AT_MOST_SECONDS:
            return soon
        cut = journal.next_copy_set(listing, now)
        starving = journal.is_overdue(now)
        freeze = self._options.freeze
        if cut is None and not (starving and freeze is not None):
            return max(soon, 0.5)
        try:
            copied = cut is not None and self._timed(partial(copier.copy, cut))
            if not copied and freeze is not None and (starving or waited >= RESTLESS_SECONDS):
                copied = self._timed(partial(copier.copy_while_paused, freeze, starving=starving))
            return BETWEEN_COPIES_SECONDS if copied else soon
        except SupersededError:
            raise
        except StayfastError as error:
            return self._failed(error)

    def _timed(self, copy: Callable[[], bool]) -> bool:
        started = self._clock.monotonic()
        copied = copy()
        if copied:
            self.seconds.append(self._clock.monotonic() - started)
            self.last_error = None
            if self._failures:
                log.warning("%s is copied again", self.directory, extra={"action": "sync_recovered"})
            self._failures = 0
        return copied

    def _failed(self, error: StayfastError) -> float:
        """The store is away, or full: told once, tried again and again, and the program goes on."""
        self._ledger.check_owner()
        self.last_error = error
        if not self._failures:
            log.warning(
                "%s could not be copied (%s); the copy before it stands, trying again",
                self.directory,
                error,
                extra={"action": "sync_failed"},
            )
        self._failures += 1
        return Backoff(FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS).seconds(self._failures)

    # -- the end

    def _end(self, copier: CopyMaker) -> bool:
        """One try of the last copy; true when everything that is finished is in the store."""
        listing = copier.look()
        now = self._clock.monotonic()
        copier.journal.update(listing, now)
        cut = copier.journal.next_copy_set(listing, now, last=True)
        if cut is None:
            self.last_error = None  # whatever could not be copied is not there any more
            return True
        try:
            return self._timed(partial(copier.copy, cut, last=True))
        except SupersededError:
            raise
        except StayfastError as error:
            self._clock.sleep(min(2.0, self._failed(error) / 8))
            return False

    def record_end(self, **row: Any) -> None:
        """Write down how this attempt ended; a failure is told and nothing more."""
        try:
            self._ledger.update_attempt(**row, ended_at=self._ledger.timestamp())
        except StayfastError as error:
            log.debug("the end of this attempt is not on record: %s", error)
