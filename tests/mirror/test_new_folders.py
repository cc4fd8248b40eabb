"""Checkpoints that are folders: their files come before the kernel can be asked to tell of them."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from mirrored import contents, memory, opened

from stayfast.runtime.directory_sync.change_tracker import ChangeTracker
from stayfast.runtime.directory_sync.file_scan import FILE, FOLDER, FileState, is_closed_for_writing, read_file_state
from stayfast.runtime.directory_sync.inotify import CLOSED, CREATED, RENAMED_INTO_PLACE, InotifyEvent


def file(size: int) -> FileState:
    return FileState(FILE, 0o644, size, size, size, 1)


def test_only_files_of_which_nothing_was_told_are_looked_at() -> None:
    journal = ChangeTracker({"old": file(1)}, is_told=True)
    listing = {"old": file(1), "step": FileState(FOLDER, 0o755), "step/n": file(2), "log": file(3)}
    journal.add_events([InotifyEvent(RENAMED_INTO_PLACE, "step"), InotifyEvent(CREATED, "log")])
    assert journal.files_without_events(listing) == ["step/n"]
    journal.update(listing, 0.0)
    assert journal.files_without_events(listing) == ["step/n"], "it was not closed for all we know"
    assert journal.next_copy_set(listing, 0.1) is None
    journal.add_events([InotifyEvent(CLOSED, "step/n"), InotifyEvent(CLOSED, "log")])
    journal.update(listing, 0.2)
    assert journal.files_without_events(listing) == []
    assert journal.next_copy_set(listing, 0.2) is not None


def test_a_file_that_somebody_writes_is_known(tmp_path: Path) -> None:
    path = tmp_path / "model"
    with open(path, "wb") as writer:
        writer.write(b"half")
        writer.flush()
        seen = read_file_state(str(tmp_path), "model")
        assert seen is not None
        assert not is_closed_for_writing(str(tmp_path), "model", seen)
    if not is_closed_for_writing(str(tmp_path), "model", seen):
        pytest.skip("no leases on this file system")
    path.write_bytes(b"another version")
    assert not is_closed_for_writing(str(tmp_path), "model", seen)
    assert not is_closed_for_writing(str(tmp_path), "nothing", seen)


def renamed(root: Path, step: int) -> None:
    (root / "tmp").mkdir()
    (root / "tmp" / "weights").write_bytes(b"w" * 1000)
    (root / "tmp" / "step").write_text(str(step))
    os.rename(root / "tmp", root / f"step-{step:04d}")


def linked(root: Path, step: int) -> None:
    (root / f"step-{step:04d}").mkdir()
    (root / f"step-{step:04d}" / "step").write_text(str(step))
    os.symlink(f"step-{step:04d}", root / "latest.new")
    os.rename(root / "latest.new", root / "latest")


@pytest.mark.parametrize("save", [renamed, linked])
def test_folders_that_come_faster_than_they_could_be_quiet_are_copied(
    save: Callable[[Path, int], None], tmp_path: Path
) -> None:
    root, store = tmp_path / "d", memory()
    mirror = opened(root, store)
    mirror.start()
    began, step = time.monotonic(), 0
    while mirror.newest is None and time.monotonic() - began < 30.0:
        step += 1
        save(root, step)
        for old in sorted(root.glob("step-*"))[:-2]:
            shutil.rmtree(old)
        time.sleep(0.4)
    assert mirror.newest is not None, "nothing was copied while it worked"
    mirror.finish()
    assert mirror.done.wait(20)
    opened(tmp_path / "e", store)
    assert contents(tmp_path / "e") == contents(root)
