"""SQLite files that queues and sinks share: where they may lie, and that their names last."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from stayfast import filesystem
from stayfast.batch.queue.owner_lock import boot_id
from stayfast.errors import UrlError
from stayfast.storage.database import sqlite


def test_the_name_of_a_new_file_is_durable_when_it_is_handed_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    real = os.fsync
    monkeypatch.setattr(os, "fsync", lambda fd: (synced.append(os.readlink(f"/proc/self/fd/{fd}")), real(fd)))
    path = str(tmp_path / "work.db")
    sqlite.connect(path).close()
    assert synced == [str(tmp_path)]
    sqlite.connect(path).close()
    assert synced == [str(tmp_path)], "once: afterwards the file is no news"


def test_every_commit_goes_through_a_log_and_to_the_disk(tmp_path: Path) -> None:
    connection = sqlite.connect(str(tmp_path / "work.db"))
    assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    assert connection.execute("PRAGMA synchronous").fetchone() == (2,)
    connection.close()


def test_a_network_disk_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite, "unsafe_filesystem", lambda path: "NFS")
    with pytest.raises(UrlError, match="NFS"):
        sqlite.connect(str(tmp_path / "work.db"))
    assert not list(tmp_path.iterdir())


def test_the_file_systems_that_cannot_keep_a_promise_are_known_by_their_numbers() -> None:
    """As statfs(2) lists them."""
    assert filesystem._NOT_ATOMIC.keys() >= {0x6969, 0x65735546, 0xFF534D42, 0xFE534D42, 0x01021997}


def test_a_boot_is_told_from_the_next() -> None:
    assert boot_id() == Path("/proc/sys/kernel/random/boot_id").read_text().strip()
