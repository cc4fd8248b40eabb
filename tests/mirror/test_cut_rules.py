"""Which state of a directory may be copied: the rules of ``runtime/directory_sync/change_tracker.py``, look by look."""

from __future__ import annotations

from stayfast.runtime.directory_sync.change_tracker import (
    PATIENCE_GROWING_SECONDS,
    PATIENCE_SECONDS,
    QUIET_OPEN_SECONDS,
    QUIET_SECONDS,
    ChangeTracker,
)
from stayfast.runtime.directory_sync.file_scan import FILE, FOLDER, FileState
from stayfast.runtime.directory_sync.inotify import CLOSED, CREATED, GONE, RENAMED_INTO_PLACE, InotifyEvent


def file(size: int, inode: int = 1, mtime: int = 0) -> FileState:
    return FileState(FILE, 0o644, size, mtime or size, mtime or size, inode)


def told(*events: tuple[str, str]) -> list[InotifyEvent]:
    return [InotifyEvent(kind, path) for kind, path in events]


def test_a_closed_file_is_copied_at_once() -> None:
    journal = ChangeTracker({}, is_told=True)
    journal.add_events(told((CREATED, "a"), (CLOSED, "a")))
    listing = {"a": file(10)}
    assert journal.update(listing, 0.0)
    cut = journal.next_copy_set(listing, 0.0)
    assert cut is not None
    assert cut.listing == listing
    assert not cut.growing


def test_nothing_new_is_nothing_to_copy() -> None:
    listing = {"a": file(10)}
    journal = ChangeTracker(dict(listing), is_told=True)
    assert not journal.update(listing, 0.0)
    assert journal.next_copy_set(listing, 0.0) is None


def test_a_file_that_is_open_waits_until_it_is_quiet() -> None:
    journal = ChangeTracker({}, is_told=True)
    journal.add_events(told((CREATED, "a")))
    listing = {"a": file(10)}
    journal.update(listing, 0.0)
    assert journal.next_copy_set(listing, QUIET_SECONDS) is None
    journal.update(listing, QUIET_OPEN_SECONDS)
    assert journal.next_copy_set(listing, QUIET_OPEN_SECONDS) is not None


def test_without_the_kernels_help_two_quiet_looks_do() -> None:
    journal = ChangeTracker({}, is_told=False)
    journal.update({"a": file(10)}, 0.0)
    assert journal.next_copy_set({"a": file(10)}, 0.0) is None
    journal.update({"a": file(12)}, 0.9)
    assert journal.next_copy_set({"a": file(12)}, 1.0) is None, "it grew since"
    journal.update({"a": file(12)}, 2.0)
    assert journal.next_copy_set({"a": file(12)}, 2.0) is not None


def test_a_temporary_file_does_not_hold_up_what_was_finished_before_it() -> None:
    journal = ChangeTracker({"x": file(5, 1)}, is_told=True)
    journal.add_events(told((CREATED, "x.tmp"), (CLOSED, "x"), (GONE, "x.tmp"), (CREATED, "x.tmp")))
    listing = {"x": file(6, 2), "x.tmp": file(3, 3)}
    journal.update(listing, 0.0)
    cut = journal.next_copy_set(listing, 0.0)
    assert cut is not None
    assert cut.listing == {"x": file(6, 2)}, "the state just before the temporary file was begun"
    assert cut.kept == {"x.tmp"}


def test_what_was_finished_after_an_unfinished_file_was_begun_waits_for_it() -> None:
    """Records are appended to a file that stays open, and a state file says how many: never a state ahead of them."""
    journal = ChangeTracker({}, is_told=True)
    journal.add_events(told((CREATED, "records"), (CREATED, "state"), (CLOSED, "state")))
    listing = {"records": file(100, 1), "state": file(5, 2)}
    journal.update(listing, 0.0)
    assert journal.next_copy_set(listing, 0.0) is None


def test_an_always_growing_file_is_taken_as_it_is_in_the_end() -> None:
    journal = ChangeTracker({"records": file(100, 1)}, is_told=True)
    now, size = 0.0, 100
    while now < PATIENCE_GROWING_SECONDS:
        size += 10
        journal.add_events(told((CLOSED, "state")))
        listing = {"records": file(size, 1), "state": file(5, 2, mtime=size)}
        journal.update(listing, now)
        assert journal.next_copy_set(listing, now) is None
        assert not journal.is_overdue(now)
        now += 0.5
    assert journal.is_overdue(now)
    assert journal.full_copy_set(listing, now).growing == {"records"}


def test_a_large_new_file_has_longer() -> None:
    journal = ChangeTracker({}, is_told=True)
    now, size = 0.0, 0
    while now < PATIENCE_SECONDS:
        size += 10
        journal.add_events(told((CREATED, "large")) if size == 10 else [])
        listing = {"large": file(size, 1)}
        journal.update(listing, now)
        assert journal.next_copy_set(listing, now) is None
        assert not journal.is_overdue(now)
        now += 0.5
    assert journal.is_overdue(now)


def test_a_file_that_is_rewritten_in_place_is_kept_as_it_was() -> None:
    journal = ChangeTracker({"model": file(100, 1), "log": file(5, 2)}, is_told=True)
    journal.add_events(told((CLOSED, "log")))
    listing = {"model": file(100, 1), "log": file(6, 2)}
    journal.update(listing, 0.0)
    listing = {"model": file(40, 1, mtime=77), "log": file(6, 2)}
    journal.update(listing, 0.2)
    cut = journal.next_copy_set(listing, 0.2)
    assert cut is not None
    assert cut.listing == {"model": file(100, 1), "log": file(6, 2)}
    journal.mark_copied(cut.listing)
    assert journal.next_copy_set(listing, 0.2) is None, "the model is still being written"


def test_a_version_that_is_lost_is_not_made_up() -> None:
    """Finished, never copied, then begun again: the state before the second beginning is gone."""
    journal = ChangeTracker({}, is_told=True)
    journal.add_events(told((CREATED, "a"), (CLOSED, "a"), (CREATED, "b"), (CLOSED, "b")))
    journal.update({"a": file(10, 1), "b": file(1, 2)}, 0.0)
    journal.update({"a": file(4, 1, mtime=99), "b": file(1, 2)}, 0.1)
    assert journal.next_copy_set({"a": file(4, 1, mtime=99), "b": file(1, 2)}, 0.1) is None


def test_a_deletion_is_a_change_like_any_other() -> None:
    journal = ChangeTracker({"old": file(9, 1)}, is_told=True)
    journal.add_events(told((CREATED, "new"), (GONE, "old")))
    listing = {"new": file(3, 2)}
    journal.update(listing, 0.0)
    assert journal.next_copy_set(listing, 0.0) is None, "old was deleted after new was begun, and new is not finished"
    journal.add_events(told((CLOSED, "new")))
    journal.update(listing, 0.1)
    cut = journal.next_copy_set(listing, 0.1)
    assert cut is not None
    assert cut.listing == listing


def test_files_that_come_and_go_leave_no_trace() -> None:
    journal = ChangeTracker({}, is_told=True)
    journal.add_events(told((CREATED, "t")))
    assert journal.update({"t": file(3)}, 0.0)
    assert not journal.update({}, 0.1)
    assert journal.pending_since is None


def test_what_a_killed_process_wrote_last_is_not_finished() -> None:
    second = 1_000_000_000
    journal = ChangeTracker({}, is_told=True)
    journal.add_events(told((CREATED, "a"), (CLOSED, "a"), (RENAMED_INTO_PLACE, "p"), (CREATED, "b"), (CLOSED, "b")))
    listing = {
        "a": file(10, 1, mtime=5 * second),
        "p": file(4, 3, mtime=10 * second),
        "b": file(3, 2, mtime=10 * second),
    }
    journal.update(listing, 0.0)
    journal.note_crash(10 * second + 1, 50.0)
    cut = journal.next_copy_set(listing, 100.0)
    assert cut is not None
    assert set(cut.listing) == {"a", "p"}, "b was closed by the death of its writer, p was renamed by its writer's will"


def test_the_last_copy_takes_what_is_finished_and_does_not_wait() -> None:
    journal = ChangeTracker({}, is_told=True)
    journal.add_events(told((CREATED, "log"), (CREATED, "d"), (CREATED, "state"), (CLOSED, "state")))
    listing = {"log": file(10, 1), "d": FileState(FOLDER, 0o755), "state": file(2, 2)}
    journal.update(listing, 0.0)
    assert journal.next_copy_set(listing, 0.0) is None
    cut = journal.next_copy_set(listing, 0.0, last=True)
    assert cut is not None
    assert set(cut.listing) == {"log", "d", "state"}


def test_a_closing_at_the_moment_of_a_death_is_not_trusted_however_old_the_content_is() -> None:
    """A program that thought for a while between two halves of a file, and was killed."""
    second = 1_000_000_000
    journal = ChangeTracker({}, is_told=True)
    journal.add_events(told((CREATED, "good"), (CLOSED, "good")))
    listing = {"good": file(5, 2, mtime=2 * second)}
    journal.update(listing, 2.0)
    journal.add_events(told((CREATED, "half")))
    listing = {**listing, "half": file(10, 1, mtime=3 * second)}
    journal.update(listing, 3.0)
    journal.add_events(told((CLOSED, "half")))
    journal.note_crash(10 * second, 10.0)
    journal.update(listing, 10.1)
    cut = journal.next_copy_set(listing, 10.1, last=True)
    assert cut is not None
    assert set(cut.listing) == {"good"}
