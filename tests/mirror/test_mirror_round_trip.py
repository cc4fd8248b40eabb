"""A directory into a store and back: every kind of file, every state the directory may be in when it comes back."""

from __future__ import annotations

import errno
import os
import random
import threading
import time
from pathlib import Path

import pytest
from mirrored import contents, copied, keep, memory, mirror_of, opened, until

from stayfast.clock import SystemClock
from stayfast.errors import CorruptError, RunError
from stayfast.runtime.directory_sync import sync as mirror_module
from stayfast.runtime.directory_sync.copy_format import PART_BYTES
from stayfast.runtime.directory_sync.local_state import read_mark
from stayfast.runtime.run_record.commit_protocol import read_head, run_protocol
from stayfast.storage.stores.file import FileStore
from stayfast.storage.stores.memory import MemoryStore
from stayfast.storage.stores.protocol import Store


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A directory with one of everything."""
    root = tmp_path / "source"
    (root / "deep" / "er").mkdir(parents=True)
    (root / "hollow").mkdir()
    (root / "model.bin").write_bytes(random.Random(1).randbytes(2 * PART_BYTES + 12345))
    (root / "exact.bin").write_bytes(b"e" * PART_BYTES)
    (root / "empty").touch()
    (root / "script.sh").write_text("#!/bin/sh\n")
    (root / "script.sh").chmod(0o755)
    (root / "deep" / "er" / "odd \n name\t☃").write_text("odd")
    (root / os.fsdecode(b"not utf-8 \xff\xfe")).write_text("bytes")
    (root / "latest").symlink_to("deep/er")
    (root / "absolute").symlink_to(root / "model.bin")
    (root / "dangling").symlink_to("not-there-yet")
    os.utime(root / "script.sh", ns=(1_600_000_000_123_456_789, 1_600_000_000_123_456_789))
    (root / "hollow").chmod(0o700)
    return root


def stored(store: Store) -> list[str]:
    return [entry.key for entry in store.keys("checkpoints/")]


def test_everything_comes_back(source: Path, tmp_path: Path) -> None:
    store = memory()
    keep(source, store)
    target = tmp_path / "target"
    opened(target, store)
    want, have = contents(source), contents(target)
    assert have.pop("absolute") == ("link", str(target / "model.bin"))
    want.pop("absolute")
    assert have == want


@pytest.mark.parametrize("scheme", ["gs", "s3"])
def test_over_a_bucket(scheme: str, source: Path, tmp_path: Path, bucket_server: object, open_on: object) -> None:
    store = open_on(scheme, bucket_server.url, "run")  # type: ignore[operator,attr-defined]
    keep(source, store)
    target = tmp_path / "target"
    opened(target, open_on(scheme, bucket_server.url, "run"))  # type: ignore[operator,attr-defined]
    assert contents(target).keys() == contents(source).keys()
    assert (target / "model.bin").read_bytes() == (source / "model.bin").read_bytes()


def test_what_did_not_change_is_not_written_again(source: Path) -> None:
    store = memory()
    mirror = keep(source, store)
    before = set(stored(store))
    again = opened(source, store)
    with open(source / "model.bin", "ab") as file:
        file.write(b"more")
    (source / "copy.bin").write_bytes((source / "exact.bin").read_bytes())
    copied(again)
    fresh = [key for key in set(stored(store)) - before if key.endswith(".bin")]
    assert len(fresh) == 2, "the last part of the model, and the tree; the copy of a file is the same content"
    assert mirror.newest != again.newest


def test_deleted_files_stay_deleted(source: Path, tmp_path: Path) -> None:
    store = memory()
    keep(source, store)
    mirror = opened(source, store)
    (source / "model.bin").unlink()
    (source / "latest").unlink()
    copied(mirror)
    opened(tmp_path / "target", store)
    assert "model.bin" not in contents(tmp_path / "target")
    assert "latest" not in contents(tmp_path / "target")


def test_only_so_many_copies_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = memory()
    root = tmp_path / "d"
    root.mkdir()
    for number in range(6):
        mirror = opened(root, store, keep=2)
        (root / "a").write_text(str(number) * 5000)
        mirror.start()
        until(lambda: mirror.newest is not None and mirror.newest.step == number)
        mirror.finish()
        assert mirror.done.wait(10)
    held = run_protocol(read_head(), store, SystemClock())
    assert held is not None
    assert len(held.head.checkpoints) == 2
    folders = {key.split("/")[1] for key in stored(store)}
    assert len(folders) <= 3, "the rest was collected, up to what the last commit left for the next"


@pytest.mark.parametrize("what", ["specials", "outside"])
def test_what_cannot_be_kept_is_named_and_left_out(what: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    root, store = tmp_path / "d", memory()
    root.mkdir()
    (root / "a").write_text("a")
    if what == "specials":
        os.mkfifo(root / "pipe")
    else:
        (root / "out").symlink_to("/etc/passwd")
    keep(root, store)
    opened(tmp_path / "e", store)
    assert list(contents(tmp_path / "e")) == ["a"]
    assert ("pipe" if what == "specials" else "out") in caplog.text


def test_what_lies_there_stays_when_nobody_else_has_committed_since(tmp_path: Path) -> None:
    """A container restarts in its pod: the disk is ahead of the bucket, which was away."""
    root, store = tmp_path / "d", memory()
    root.mkdir()
    (root / "a").write_text("copied")
    keep(root, store)
    opened(root, store)  # an attempt that is killed before it copies anything
    (root / "a").write_text("newer")
    (root / "b").write_text("new")
    mirror = opened(root, store)
    assert (root / "a").read_text() == "newer"
    copied(mirror)
    opened(tmp_path / "e", store)
    assert (tmp_path / "e" / "a").read_text() == "newer"
    assert (tmp_path / "e" / "b").read_text() == "new"


def test_what_lies_there_is_replaced_when_another_attempt_went_on_elsewhere(tmp_path: Path) -> None:
    here, there, store = tmp_path / "here", tmp_path / "there", memory()
    here.mkdir()
    (here / "a").write_text("1")
    (here / "same").write_text("same")
    keep(here, store)
    (here / "stale").write_text("of the attempt that was taken away")
    mirror = opened(there, store)
    (there / "a").write_text("2")
    copied(mirror)
    inode = (here / "same").stat().st_ino
    opened(here, store)
    assert (here / "a").read_text() == "2"
    assert not (here / "stale").exists()
    assert (here / "same").stat().st_ino == inode, "what is the same is not fetched again"


def test_what_nobody_knows_is_moved_aside_and_never_deleted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    store = memory()
    (tmp_path / "first").mkdir()
    (tmp_path / "first" / "a").write_text("copy")
    keep(tmp_path / "first", store)
    other = tmp_path / "other"
    other.mkdir()
    (other / "a").write_text("mine")
    (other / "thesis.tex").write_text("years of work")
    opened(other, store)
    assert (other / "a").read_text() == "copy"
    assert (tmp_path / "other.set-aside-1" / "thesis.tex").read_text() == "years of work"
    assert (tmp_path / "other.set-aside-1" / "a").read_text() == "mine"
    assert "other.set-aside-1" in caplog.text


def test_a_directory_without_a_mark_that_holds_the_copy_is_completed(tmp_path: Path) -> None:
    store = memory()
    first, other = tmp_path / "first", tmp_path / "other"
    first.mkdir()
    (first / "a").write_text("a")
    (first / "b").write_text("b")
    keep(first, store)
    other.mkdir()
    (other / "a").write_text("a")
    opened(other, store)
    assert sorted(contents(other)) == ["a", "b"]
    assert not (tmp_path / "other.set-aside-1").exists()


def test_a_restore_that_was_cut_short_is_begun_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed half-way through putting files in their place: the mark says so, and nothing half is trusted."""
    import stayfast.runtime.directory_sync.copy_restorer as module

    store = memory()
    first, other = tmp_path / "first", tmp_path / "other"
    first.mkdir()
    for number in range(5):
        (first / f"f{number}").write_text(str(number))
    keep(first, store)
    original, calls = os.replace, []

    def dies(source: str, target: str) -> None:
        calls.append(target)
        if len(calls) == 3:
            raise KeyboardInterrupt
        original(source, target)

    monkeypatch.setattr(module.os, "replace", dies)
    with pytest.raises(KeyboardInterrupt):
        opened(other, store)
    monkeypatch.setattr(module.os, "replace", original)
    assert len(list(other.glob("f*"))) == 2
    opened(other, store)
    assert sorted(contents(other)) == [f"f{number}" for number in range(5)]
    mark = read_mark(str(other))
    assert mark is None or mark.attempt == 3


def test_a_damaged_copy_is_passed_over_with_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    root, store = tmp_path / "d", MemoryStore()
    root.mkdir()
    (root / "a").write_text("one")
    keep(root, store)
    mirror = opened(root, store)
    (root / "a").write_text("two")
    copied(mirror)
    assert mirror.newest is not None
    folder = f"checkpoints/{mirror.newest.name}/"
    part = next(entry.key for entry in store.keys(folder) if b"two" in store.get(entry.key).data)
    store.put(part, store.get(part).data.replace(b"two", b"tow"))
    target = tmp_path / "e"
    again = opened(target, store)
    assert (target / "a").read_text() == "one"
    assert mirror.newest.name in caplog.text
    held = run_protocol(read_head(), store, SystemClock())
    assert held is not None
    assert held.head.newest == again.newest, "the good one goes first from now on"


def test_when_no_copy_is_whole_nothing_is_started(tmp_path: Path) -> None:
    root, store = tmp_path / "d", MemoryStore()
    root.mkdir()
    (root / "a").write_text("one")
    keep(root, store)
    for entry in list(store.keys("checkpoints/")):
        if entry.key.endswith(".bin"):
            store.delete(entry.key)
    with pytest.raises(CorruptError, match="none of the copies"):
        opened(tmp_path / "e", store)
    assert list((tmp_path / "e").iterdir()) == []


def test_a_full_disk_is_one_sentence_and_no_half_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import errno

    import stayfast.runtime.directory_sync.copy_restorer as module

    root, store = tmp_path / "d", memory()
    root.mkdir()
    (root / "a").write_bytes(b"a" * 100_000)
    keep(root, store)

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(module.os, "posix_fallocate", full)
    with pytest.raises(RunError, match="no room for the copy"):
        opened(tmp_path / "e", store)
    assert list((tmp_path / "e").iterdir()) == []


def test_a_finished_file_is_in_the_store_within_seconds_and_a_half_one_is_not(tmp_path: Path) -> None:
    root, store = tmp_path / "d", memory()
    mirror = opened(root, store)
    mirror.start()
    os.rename(_written(root / "whole.tmp", b"w" * 1000), root / "whole")
    with open(root / "half", "wb") as half:
        while mirror.newest is None:
            half.write(b"h" * 1000)
            half.flush()
            time.sleep(0.05)
        opened(tmp_path / "e", FrozenStore(store))
        assert list(contents(tmp_path / "e")) == ["whole"]
        assert (tmp_path / "e" / "whole").read_bytes() == b"w" * 1000
    mirror.finish()
    assert mirror.done.wait(10)
    opened(tmp_path / "f", store)
    assert sorted(contents(tmp_path / "f")) == ["half", "whole"]


class FrozenStore(MemoryStore):
    """A store as it is now: what a restore does to it is not seen by whoever copies into the original."""

    def __init__(self, other: MemoryStore) -> None:
        super().__init__()
        self._objects.update(other._objects)
        self.url = other.url


def _written(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


def test_records_and_the_state_that_counts_them_are_never_torn_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Records through a file that stays open, a state file by rename: no copy holds a state ahead of its records."""
    import stayfast.runtime.directory_sync.change_tracker as cut

    monkeypatch.setattr(cut, "PATIENCE_SECONDS", 0.5)
    monkeypatch.setattr(cut, "PATIENCE_GROWING_SECONDS", 0.3)
    monkeypatch.setattr(mirror_module, "BETWEEN_COPIES_SECONDS", 0.05)
    root, store = tmp_path / "d", memory()
    standing = threading.Lock()
    mirror = opened(root, store, freeze=lambda: standing)
    mirror.start()
    stop = threading.Event()

    def program() -> None:
        with open(root / "records", "w") as records:
            number = 0
            while not stop.is_set():
                number += 1
                with standing:
                    records.write(f"record {number}\n")
                    records.flush()
                with standing:
                    (root / "state.tmp").write_text(str(number))
                with standing:
                    os.replace(root / "state.tmp", root / "state")
                time.sleep(0.002)

    thread = threading.Thread(target=program)
    thread.start()
    seen = 0
    try:
        for number in range(200):
            before = mirror.newest
            until(lambda: mirror.newest != before)
            target = tmp_path / f"t{number}"
            opened(target, FrozenStore(store))
            if (target / "state").exists():
                count = int((target / "state").read_text())
                lines = (target / "records").read_text().splitlines()
                assert len(lines) >= count
                assert lines == [f"record {n + 1}" for n in range(len(lines))]
                seen += 1
            if seen == 4:
                break
    finally:
        stop.set()
        thread.join()
    assert seen == 4
    mirror.finish()
    assert mirror.done.wait(10)


def test_without_inotify_it_looks_now_and_then(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import stayfast.runtime.directory_sync.inotify as watch

    class NoKernel:
        def __init__(self, *_: object, **__: object) -> None:
            raise OSError("none")

    monkeypatch.setattr(watch.ctypes, "CDLL", NoKernel)
    root, store = tmp_path / "d", memory()
    mirror = opened(root, store)
    mirror.start()
    (root / "a").write_text("a")
    until(lambda: mirror.newest is not None)
    mirror.finish()
    assert mirror.done.wait(10)


def test_memory_stays_bounded_by_parts_not_by_files(tmp_path: Path) -> None:
    """A file of 200 MB goes through a few buffers of 8 MB each."""
    import subprocess
    import sys

    program = f"""
import sys
sys.path[:0] = {sys.path!r}
from pathlib import Path
from mirrored import opened, copied
from stayfast.storage.stores.file import FileStore
root = Path({str(tmp_path)!r}) / "d"
root.mkdir()
with open(root / "large", "wb") as file:
    for number in range(200):
        file.write(number.to_bytes(1, "big") * (1 << 20))
store = FileStore({str(tmp_path)!r} + "/store")
copied(opened(root, store))
opened(Path({str(tmp_path)!r}) / "e", store)
print(next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM")) // 1024)
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=True)
    assert int(ended.stdout) < 150
    assert (tmp_path / "e" / "large").stat().st_size == 200 << 20


def test_the_store_is_not_looked_for_in_vain(tmp_path: Path) -> None:
    """Nothing written, nothing copied: no empty copies one after the other."""
    store = FileStore(str(tmp_path / "store"))
    mirror = mirror_of(tmp_path / "d", store)
    mirror.claim_and_restore()
    copied(mirror)
    assert mirror.newest is None
    assert stored(store) == []


def test_a_file_that_may_not_be_read_is_named_and_holds_nothing_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    import stayfast.runtime.directory_sync.copy_uploader as upload

    original = os.open

    def refuses(path: str, *rest: object, **more: object) -> int:
        if str(path).endswith("secret"):
            raise PermissionError(13, "Permission denied")
        return original(path, *rest, **more)  # type: ignore[arg-type]

    root, store = tmp_path / "d", memory()
    root.mkdir()
    (root / "a").write_text("a")
    (root / "secret").write_text("s")
    monkeypatch.setattr(upload.os, "open", refuses)
    keep(root, store)
    monkeypatch.setattr(upload.os, "open", original)
    opened(tmp_path / "e", store)
    assert list(contents(tmp_path / "e")) == ["a"]
    assert "secret" in caplog.text


def test_a_directory_that_vanishes_is_not_taken_for_an_empty_one(tmp_path: Path) -> None:
    root, store = tmp_path / "d", memory()
    root.mkdir()
    (root / "a").write_text("a")
    keep(root, store)
    mirror = opened(root, store)
    os.rename(root, tmp_path / "gone")
    copied(mirror)
    opened(tmp_path / "e", store)
    assert list(contents(tmp_path / "e")) == ["a"]


@pytest.mark.parametrize("folder", ["deep", ""])
def test_a_folder_that_cannot_be_read_is_not_taken_for_an_empty_one(
    folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk that fails for a moment, or no descriptor left: what was copied of it before stays in the copy."""
    source, store = tmp_path / "source", memory()
    (source / "deep" / "er").mkdir(parents=True)
    for name in ("top", "deep/one", "deep/er/two"):
        (source / name).write_text(name)
    mirror = opened(source, store)
    copied(mirror)
    scandir = os.scandir

    def failing(path: str) -> object:
        if os.path.realpath(path) == os.path.realpath(source / folder):
            raise OSError(errno.EIO, "Input/output error")
        return scandir(path)

    mirror = opened(source, store)
    (source / "top").write_text("changed")
    monkeypatch.setattr(os, "scandir", failing)
    copied(mirror)
    monkeypatch.undo()
    keep(tmp_path / "back", store)
    names = sorted(name for name, row in contents(tmp_path / "back").items() if row[0] == "file")  # type: ignore[index]
    assert names == ["deep/er/two", "deep/one", "top"]
    assert (tmp_path / "back" / "top").read_text() == ("changed" if folder else "top")


def test_what_was_brought_back_is_durable_before_it_is_marked_as_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a power cut the mark must not vouch for files that never reached the disk."""
    calls: list[object] = []
    write, sync = mirror_module.write_mark, mirror_module.sync_filesystem
    monkeypatch.setattr(mirror_module, "write_mark", lambda *row: (calls.append(row[2]), write(*row)))
    monkeypatch.setattr(mirror_module, "sync_filesystem", lambda path: (calls.append("sync"), sync(path)))
    store = memory()
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "file").write_text("x")
    keep(tmp_path / "source", store)
    assert calls == [1], "nothing was brought back, and nobody has to wait for the disk"
    calls.clear()
    keep(tmp_path / "back", store)
    assert calls == [0, "sync", 2]
    calls.clear()
    monkeypatch.setattr(mirror_module, "sync_filesystem", lambda path: os.stat(path + "/nowhere"))
    with pytest.raises(OSError):
        opened(tmp_path / "again", store)
    assert calls == [0], "what may not last carries no mark"


def test_a_program_that_makes_its_directory_anew_is_followed(tmp_path: Path) -> None:
    import shutil

    root, store = tmp_path / "d", memory()
    mirror = opened(root, store)
    mirror.start()
    (root / "a").write_text("a")
    until(lambda: mirror.newest is not None)
    shutil.rmtree(root)
    root.mkdir()
    (root / "b").write_text("b")
    until(lambda: mirror.newest is not None and mirror.newest.step >= 1)
    mirror.finish()
    assert mirror.done.wait(10)
    opened(tmp_path / "e", store)
    assert list(contents(tmp_path / "e")) == ["b"]


def test_a_link_with_the_directorys_own_path_survives_a_move_and_a_symlinked_directory(tmp_path: Path) -> None:
    real, store = tmp_path / "real", memory()
    real.mkdir()
    (tmp_path / "alias").symlink_to(real)
    (real / "step-5").mkdir()
    (real / "latest").symlink_to(tmp_path / "alias" / "step-5")
    keep(tmp_path / "alias", store)
    opened(tmp_path / "e", store)
    assert os.readlink(tmp_path / "e" / "latest") == str(tmp_path / "e" / "step-5")


def test_a_real_full_disk(tmp_path: Path) -> None:
    """A file system of 1 MB and a copy of 3: one sentence, nothing half, and room again afterwards."""
    import subprocess

    small = tmp_path / "small"
    small.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "none", str(small)], capture_output=True).returncode:
        pytest.skip("mounting needs root")
    try:
        source, store = tmp_path / "source", memory()
        source.mkdir()
        (source / "model").write_bytes(random.Random(3).randbytes(3_000_000))
        keep(source, store)
        with pytest.raises(RunError, match="no room for the copy"):
            opened(small / "d", store)
        assert list((small / "d").iterdir()) == []
        free = os.statvfs(small)
        assert free.f_bavail * free.f_bsize > 900_000
    finally:
        subprocess.run(["umount", "-l", str(small)], check=False)
