"""The file store beyond the common suite: power-safe order, hostile places, full disks, frozen and dead writers."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import mmap
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import stayfast
from stayfast.clock import ManualClock
from stayfast.errors import (
    AccessDeniedError,
    ConflictError,
    StoreError,
    StoreFullError,
    StoreUnavailableError,
    UrlError,
)
from stayfast.filesystem import SystemFS
from stayfast.storage.stores import file as file_module
from stayfast.storage.stores.file import FileStore
from stayfast.storage.stores.file_directories import LEFTOVER_SECONDS
from stayfast.storage.stores.open_store import open_store
from stayfast.storage.stores.protocol import ABSENT, TEMPORARY

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="mounting needs root")


class RecordingFS(SystemFS):
    """The real disk; remembers the calls that decide durability, and fails the one it is told to."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.fail: dict[str, OSError] = {}

    def _note(self, call: str) -> None:
        self.calls.append(call)
        if call in self.fail:
            raise self.fail[call]

    def write(self, fd: int, data: Any, offset: int) -> None:
        self._note("write")
        super().write(fd, data, offset)

    def set_mtime(self, fd: int, mtime_ns: int) -> None:
        self._note("stamp")
        super().set_mtime(fd, mtime_ns)

    def fsync(self, fd: int) -> None:
        self._note("fsync")
        super().fsync(fd)

    def fsync_dir(self, path: str) -> None:
        self._note(f"fsync_dir {os.path.basename(path)}")
        super().fsync_dir(path)

    def link(self, source: str, target: str) -> None:
        self._note("link")
        super().link(source, target)

    def replace(self, source: str, target: str) -> None:
        self._note("replace")
        super().replace(source, target)

    def unlink(self, path: str) -> None:
        if not os.path.basename(path).startswith(TEMPORARY):
            self._note(f"unlink {os.path.basename(path)}")
        super().unlink(path)

    def mkdir(self, path: str) -> None:
        self._note(f"mkdir {os.path.basename(path)}")
        super().mkdir(path)


def temporaries(root: Path) -> list[Path]:
    return [path for path in root.rglob("*") if path.name.startswith(".tmp-")]


def way_down(path: Path) -> list[str]:
    """Every directory above: any of them may have been made a moment ago by an attempt that is dead by now."""
    return [f"fsync_dir {parent.name}" for parent in reversed(path.parents)]


def test_content_is_durable_before_its_name_and_the_name_before_the_answer(tmp_path: Path) -> None:
    fs = RecordingFS()
    store = FileStore(f"{tmp_path}/root", fs=fs)
    store.put("d/part", b"x", if_generation=ABSENT)
    assert fs.calls == [
        *way_down(tmp_path),
        "mkdir root",
        f"fsync_dir {tmp_path.name}",
        "mkdir d",
        "fsync_dir root",
        "write",
        "stamp",
        "fsync",
        "link",
        "fsync_dir d",
    ]
    fs.calls.clear()
    store.put("d/part", b"y")
    assert fs.calls == ["write", "stamp", "fsync", "replace", "fsync_dir d"]
    assert temporaries(tmp_path) == [], "a second name would keep the space of what is deleted"


def test_bytes_and_generation_are_of_the_same_object(tmp_path: Path) -> None:
    """A reader that is overtaken between the two must not get a generation that lets it replace what it never saw."""

    class Overtaken(SystemFS):
        def open(self, path: str, *, direct: bool = False) -> int:
            fd = super().open(path, direct=direct)
            FileStore(str(tmp_path)).put("object", b"new")
            return fd

    old = FileStore(str(tmp_path)).put("object", b"old")
    blob = FileStore(str(tmp_path), fs=Overtaken()).get("object")
    assert (blob.data, blob.generation) == (b"old", old)


@pytest.mark.parametrize("number", [errno.EIO, errno.EMFILE, errno.ESTALE])
def test_what_cannot_be_read_is_not_missing(tmp_path: Path, number: int) -> None:
    """A missing part is damage, and the checkpoint before it is used: an outage must never look like that."""

    class Failing(SystemFS):
        def open(self, path: str, *, direct: bool = False) -> int:
            raise OSError(number, os.strerror(number))

    FileStore(str(tmp_path)).put("object", b"x")
    store = FileStore(str(tmp_path), fs=Failing())
    with pytest.raises(StoreUnavailableError):
        store.get("object")
    with pytest.raises(StoreUnavailableError):
        store.read_into("object", memoryview(bytearray(1)))


def test_a_direct_write_that_is_refused_goes_through_the_page_cache(tmp_path: Path) -> None:
    class Refusing(SystemFS):
        direct: list[bool] = []

        def create(self, path: str, *, direct: bool = False) -> int:
            self.direct.append(direct)
            return super().create(path)

        def write(self, fd: int, data: Any, offset: int) -> None:
            if self.direct[-1]:
                raise OSError(errno.EINVAL, "Invalid argument")
            super().write(fd, data, offset)

    data = memoryview(mmap.mmap(-1, file_module.DIRECT_FROM_BYTES))
    data[:3] = b"abc"
    fs = Refusing()
    FileStore(str(tmp_path), fs=fs).put("object", data)
    assert fs.direct == [True, False]
    assert (tmp_path / "object").read_bytes() == bytes(data)
    assert temporaries(tmp_path) == []


def test_whoever_deletes_makes_durable_first_what_he_has_read(tmp_path: Path) -> None:
    """What was read says that the object is not needed any more; it may be a name that a power cut takes back."""
    FileStore(str(tmp_path)).put("head/HEAD", b"x")
    fs = RecordingFS()
    store = FileStore(str(tmp_path), fs=fs)
    for name in ("one", "two"):
        store.put(f"d/{name}", b"x")
    store.get("head/HEAD")
    fs.calls.clear()
    fs.fail["fsync_dir head"] = OSError(errno.EIO, "Input/output error")
    for _ in range(2):
        with pytest.raises(StoreUnavailableError):
            store.delete("d/one")
    assert fs.calls == ["fsync_dir head"] * 2, "what could not be made durable is not forgotten, and nothing is deleted"
    fs.fail.clear()
    fs.calls.clear()
    store.delete("d/one")
    store.delete("d/two")
    assert fs.calls == ["fsync_dir head", "unlink one", "fsync_dir d", "unlink two", "fsync_dir d"]


def test_a_generation_given_under_the_lock_is_durable_like_any_other(tmp_path: Path) -> None:
    fs = RecordingFS()
    store = FileStore(str(tmp_path), fs=fs, clock=ManualClock(wall=1e9))
    FileStore(str(tmp_path), clock=ManualClock(wall=2e9)).put("object", b"other")
    real, fs.stat = fs.stat, lambda path: None  # type: ignore[method-assign,assignment]
    lock = fs.lock

    def locked(path: str, *, timeout_seconds: float) -> Any:
        fs.stat = real  # type: ignore[method-assign]
        return lock(path, timeout_seconds=timeout_seconds)

    fs.lock = locked  # type: ignore[method-assign]
    generation = store.put("object", b"mine")
    assert fs.calls[-4:] == ["stamp", "fsync", "replace", f"fsync_dir {tmp_path.name}"]
    assert int(generation) == 2_000_000_000_000_000_001


def test_every_sync_reaches_the_kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the others record is what we ask of the disk; this is whether the disk hears of it."""
    synced: list[str] = []
    real = os.fsync
    monkeypatch.setattr(os, "fsync", lambda fd: (synced.append(os.readlink(f"/proc/self/fd/{fd}")), real(fd)))
    FileStore(f"{tmp_path}/store").put("d/object", b"x")
    *above, content, folder = synced
    assert above == [str(parent) for parent in reversed((tmp_path / "store" / "d").parents)]
    assert os.path.dirname(content) == folder == f"{tmp_path}/store/d"
    assert os.path.basename(content).startswith(TEMPORARY)


def test_reads_and_writes_that_stop_short_are_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write, read = os.pwrite, os.preadv
    monkeypatch.setattr(os, "pwrite", lambda fd, data, at: write(fd, data[:7], at))
    monkeypatch.setattr(os, "preadv", lambda fd, views, at, *flags: read(fd, [views[0][:5]], at, *flags))
    store = FileStore(str(tmp_path))
    data = bytes(range(100))
    store.put("object", data)
    assert (tmp_path / "object").read_bytes() == data
    assert store.get("object").data == data
    assert store.get("object", offset=3, length=20).data == data[3:23]
    buffer = bytearray(200)
    assert store.read_into("object", memoryview(buffer), offset=50) == 50
    assert buffer[:50] == data[50:]


def test_a_lock_is_for_one_and_a_new_file_is_new(tmp_path: Path) -> None:
    """Two writers under one lock would both find their generation; one temporary file for two would be half of each."""
    fs = SystemFS()
    with (
        fs.lock(str(tmp_path), timeout_seconds=1.0),
        pytest.raises(TimeoutError),
        SystemFS().lock(str(tmp_path), timeout_seconds=0.02),
    ):
        pytest.fail("both hold it")
    with SystemFS().lock(str(tmp_path), timeout_seconds=1.0):
        pass
    (tmp_path / "file").write_bytes(b"somebody's")
    with pytest.raises(FileExistsError):
        fs.create(str(tmp_path / "file"))
    assert (tmp_path / "file").read_bytes() == b"somebody's"


def test_what_cannot_be_looked_at_is_not_absent(tmp_path: Path) -> None:
    fs = SystemFS()
    assert fs.stat(str(tmp_path / "nobody")) is None
    with pytest.raises(OSError, match="too long"):
        fs.stat(str(tmp_path / ("x" * 300)))


def test_a_file_system_that_makes_the_name_before_it_refuses_direct_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.open

    def refusing(path: str, flags: int, mode: int = 0o777) -> int:
        if flags & os.O_DIRECT:
            os.close(real(path, flags & ~os.O_DIRECT, mode))
            raise OSError(errno.EINVAL, "Invalid argument")
        return real(path, flags, mode)

    monkeypatch.setattr(os, "open", refusing)
    fs = SystemFS()
    fs.close(fs.create(str(tmp_path / "new"), direct=True))
    with pytest.raises(FileExistsError):
        fs.create(str(tmp_path / "new"))


@pytest.mark.timeout(30)
def test_one_slash_too_many_is_the_same_place(tmp_path: Path) -> None:
    store = FileStore("/" + str(tmp_path / "run"))
    store.put("a", b"x")
    assert (tmp_path / "run" / "a").read_bytes() == b"x"
    assert store.url == f"file://{tmp_path}/run"


def test_a_directory_made_by_another_process_is_made_durable_too(tmp_path: Path) -> None:
    (tmp_path / "root" / "d").mkdir(parents=True)
    fs = RecordingFS()
    FileStore(f"{tmp_path}/root", fs=fs).put("d/part", b"x")
    above = way_down(tmp_path)
    assert fs.calls[: len(above) + 2] == [*above, f"fsync_dir {tmp_path.name}", "fsync_dir root"]


@pytest.mark.parametrize("number", [errno.EIO, errno.EACCES])
def test_a_new_directory_whose_name_may_not_last_is_not_used(tmp_path: Path, number: int) -> None:
    """Neither at the first try nor, without another sync, at the second."""
    fs = RecordingFS()
    store = FileStore(f"{tmp_path}/root", fs=fs)
    fs.fail[f"fsync_dir {tmp_path.name}"] = OSError(number, os.strerror(number))
    with pytest.raises(StoreError):
        store.put("part", b"x")
    fs.fail.clear()
    fs.calls.clear()
    store.put("part", b"x")
    assert fs.calls.index(f"fsync_dir {tmp_path.name}") < fs.calls.index("write")


def test_the_last_object_leaves_the_root_behind(tmp_path: Path) -> None:
    """It may be a mount, or somebody's own directory."""
    store = FileStore(f"{tmp_path}/root")
    store.put("a/b/part", b"x")
    store.delete("a/b/part")
    assert list((tmp_path / "root").iterdir()) == []


@pytest.mark.parametrize("call", ["write", "fsync", "link", "replace"])
def test_a_failure_before_the_name_leaves_nothing(tmp_path: Path, call: str) -> None:
    fs = RecordingFS()
    store = FileStore(str(tmp_path), fs=fs)
    store.put("object", b"old")
    fs.fail[call] = OSError(errno.EIO, "Input/output error")
    key, condition = ("fresh", ABSENT) if call == "link" else ("object", None)
    with pytest.raises(StoreUnavailableError, match="Input/output error"):
        store.put(key, b"new", if_generation=condition)
    assert store.get("object").data == b"old"
    assert [entry.key for entry in store.keys("")] == ["object"]
    assert temporaries(tmp_path) == []
    assert fs.calls.count("fsync") <= 2, "a failed fsync is never repeated"


def test_a_name_that_may_not_last_is_neither_a_success_nor_a_retry(tmp_path: Path) -> None:
    fs = RecordingFS()
    store = FileStore(str(tmp_path), fs=fs)
    store.put("object", b"old")
    fs.fail[f"fsync_dir {tmp_path.name}"] = OSError(errno.EIO, "Input/output error")
    with pytest.raises(StoreError, match="durable") as caught:
        store.put("object", b"new")
    assert type(caught.value) is StoreError, "anything else would be retried or read back as committed"


def test_generations_increase_when_the_clock_goes_back(tmp_path: Path) -> None:
    clock = ManualClock()
    store = FileStore(str(tmp_path), clock=clock)
    generations = [store.put("object", b"0")]
    for step in (-3600.0, 0.0, 0.0, -86400.0, 10.0):
        clock.jump_wall(step)
        generations.append(store.put("object", b"x", if_generation=generations[-1]))
    numbers = [int(generation) for generation in generations]
    assert numbers == sorted(set(numbers))
    assert store.get("object").generation == generations[-1]


def test_unconditional_puts_never_conflict(tmp_path: Path) -> None:
    """Two writers at the same nanosecond: the later one gets a later generation."""

    class Interfering(SystemFS):
        armed = True

        def lock(self, path: str, *, timeout_seconds: float) -> Any:
            if self.armed:
                self.armed = False
                FileStore(str(tmp_path), clock=ManualClock(wall=2e9)).put("object", b"other")
            return super().lock(path, timeout_seconds=timeout_seconds)

    store = FileStore(str(tmp_path), fs=Interfering(), clock=ManualClock(wall=2e9))
    FileStore(str(tmp_path), clock=ManualClock(wall=1e9)).put("object", b"first")
    generation = store.put("object", b"mine")
    assert store.get("object").data == b"mine"
    assert store.get("object").generation == generation
    assert int(generation) > 2_000_000_000_000_000_000


def test_key_and_directory_cannot_be_the_same(tmp_path: Path) -> None:
    store = FileStore(str(tmp_path))
    store.put("a/b", b"x")
    for condition in (None, ABSENT, "1"):
        with pytest.raises(StoreError, match="directory"):
            store.put("a", b"x", if_generation=condition)
    store.put("file", b"x")
    with pytest.raises(StoreError, match="not a directory"):
        store.put("file/below", b"x")
    store.delete("a")
    assert [entry.key for entry in store.keys("")] == ["a/b", "file"]


def test_foreign_files_are_not_listed(tmp_path: Path) -> None:
    store = FileStore(str(tmp_path))
    store.put("ours", b"x")
    for name in ("new\nline", "ümlaut", " leading", ".tmp-1-2"):
        (tmp_path / name).write_bytes(b"x")
    (tmp_path / "dangling").symlink_to("/nowhere/at/all")
    assert [entry.key for entry in store.keys("")] == ["ours"]


def test_relative_and_broken_roots_are_refused() -> None:
    for root in ("relative", "", "/with\0nul"):
        with pytest.raises(UrlError):
            FileStore(root)


def test_leftovers_of_dead_writers_are_swept_and_young_ones_kept(tmp_path: Path) -> None:
    store = FileStore(str(tmp_path))
    old = time.time() - LEFTOVER_SECONDS - 60
    for name, age in (
        ("checkpoints/dead/.tmp-1-a", old),
        ("checkpoints/live/.tmp-1-b", time.time()),
        (".tmp-1-c", old),
    ):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x" * 1000)
        os.utime(path, (age, age))
    store.put("checkpoints/live/part", b"x")
    os.utime(tmp_path / "checkpoints/live/part", (old, old))
    assert store.remove_leftovers() == 2
    assert [path.name for path in temporaries(tmp_path)] == [".tmp-1-b"]
    assert not (tmp_path / "checkpoints/dead").exists()
    assert store.get("checkpoints/live/part").data == b"x"


def test_nothing_behind_a_link_is_swept(tmp_path: Path) -> None:
    old = time.time() - LEFTOVER_SECONDS - 60
    left = tmp_path / "other" / "results" / ".tmp-1-a"
    left.parent.mkdir(parents=True)
    left.write_bytes(b"x")
    os.utime(left, (old, old))
    run = tmp_path / "run"
    run.mkdir()
    (run / "link").symlink_to(tmp_path / "other")
    (run / "self").symlink_to(run)
    (run / "loop").symlink_to(run / "loop")
    assert FileStore(str(run)).remove_leftovers() == 0
    assert left.exists()


def test_a_swept_writer_fails_and_harms_nobody(tmp_path: Path) -> None:
    class Sweeping(SystemFS):
        def link(self, source: str, target: str) -> None:
            os.unlink(source)
            super().link(source, target)

    with pytest.raises(StoreUnavailableError):
        FileStore(str(tmp_path), fs=Sweeping()).put("part", b"x", if_generation=ABSENT)
    assert list(FileStore(str(tmp_path)).keys()) == []


def test_a_directory_that_vanishes_under_a_writer_is_made_again(tmp_path: Path) -> None:
    store, other = FileStore(str(tmp_path)), FileStore(str(tmp_path))
    stop = threading.Event()

    def churn() -> None:
        while not stop.is_set():
            other.put("d/x", b"x")
            other.delete("d/x")

    thread = threading.Thread(target=churn)
    thread.start()
    try:
        for number in range(100):
            store.put("d/mine", str(number).encode())
            store.delete("d/mine")
    finally:
        stop.set()
        thread.join()


WRITER = """
import sys
from stayfast.storage.stores.file import FileStore
store = FileStore(sys.argv[1])
print("ready", flush=True)
for number in range(10**9):
    store.put("object", bytes(100_000) + str(number).encode())
    store.put(f"parts/{number}", b"x" * 50_000, if_generation="absent")
    print(number, flush=True)
"""


@contextlib.contextmanager
def writing(root: Path) -> Iterator[subprocess.Popen[bytes]]:
    environment = {**os.environ, "PYTHONPATH": str(Path(stayfast.__file__).parents[1])}
    process = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(root)], stdout=subprocess.PIPE, env=environment, bufsize=0
    )
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == b"ready\n"
        yield process
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


@pytest.mark.parametrize("delay", [0.0, 0.003, 0.011, 0.023])
def test_killed_writers_leave_whole_objects_only(tmp_path: Path, delay: float) -> None:
    with writing(tmp_path) as process:
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(delay)
        process.kill()
        acknowledged = [int(line) for line in process.stdout.read().split()]
    store = FileStore(str(tmp_path))
    data = store.get("object").data
    assert data[:100_000] == bytes(100_000)
    assert int(data[100_000:]) >= (acknowledged[-1] if acknowledged else 0)
    parts = {entry.key: entry.size for entry in store.keys("parts/")}
    assert set(parts.values()) <= {50_000}
    assert {f"parts/{number}" for number in acknowledged} <= set(parts)
    store.put("object", b"the next one works")


def test_a_frozen_writer_does_not_stop_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_module, "LOCK_TIMEOUT_SECONDS", 0.2)
    store = FileStore(str(tmp_path))
    with writing(tmp_path) as process:
        outcomes = set()
        for _ in range(10):
            assert process.stdout is not None
            process.stdout.readline()
            process.send_signal(signal.SIGSTOP)
            try:
                store.put("other", b"x")
                store.put(f"mine/{time.time_ns()}", b"x", if_generation=ABSENT)
                outcomes.add("written")
            except StoreUnavailableError as error:
                outcomes.add("locked" if "held the lock" in str(error) else str(error))
            process.send_signal(signal.SIGCONT)
        # Frozen exactly between comparing and renaming, others are told so and nothing is written.
        assert {"written"} <= outcomes <= {"written", "locked"}


@needs_root
def test_full_disk_says_so_and_keeps_what_was_there(tmp_path: Path) -> None:
    with mounted(tmp_path / "small", "tmpfs", "size=2m"):
        store = FileStore(str(tmp_path / "small"))
        store.put("object", b"old")
        for condition in (None, ABSENT):
            key = "object" if condition is None else "fresh"
            with pytest.raises(StoreFullError, match="no space"):
                store.put(key, bytes(4 << 20), if_generation=condition)
        assert store.get("object").data == b"old"
        assert temporaries(tmp_path) == []
        store.put("object", b"new")


@needs_root
def test_read_only_disk_says_so(tmp_path: Path) -> None:
    with mounted(tmp_path / "small", "tmpfs", "size=2m"):
        store = FileStore(str(tmp_path / "small"))
        store.put("object", b"old")
        subprocess.run(["mount", "-o", "remount,ro", str(tmp_path / "small")], check=True)
        with pytest.raises(AccessDeniedError, match="read-only"):
            store.put("object", b"new")
        assert store.get("object").data == b"old"


@needs_root
def test_full_ext4_with_direct_writes_and_whole_second_times(tmp_path: Path) -> None:
    """A disk of 8 MiB with inodes that keep whole seconds: O_DIRECT fills it, generations still increase."""
    image = tmp_path / "disk"
    with open(image, "wb") as file:
        file.truncate(8 << 20)
    made = subprocess.run(["mkfs.ext4", "-q", "-F", "-I", "128", str(image)], capture_output=True)
    if made.returncode:
        pytest.skip(f"mkfs.ext4: {made.stderr.decode()[:100]}")
    with mounted(tmp_path / "small", "ext4", "loop", source=str(image)):
        store = FileStore(str(tmp_path / "small" / "run"))
        generation = store.put("object", b"0")
        for number in range(3):
            fresh = store.put("object", str(number).encode(), if_generation=generation)
            assert int(fresh) > int(generation)
            generation = fresh
        assert store.get("object").generation == generation
        with pytest.raises(ConflictError):
            store.put("object", b"x", if_generation=ABSENT)
        view = aligned(16 << 20)
        assert file_module._can_be_direct(view)
        with pytest.raises(StoreFullError):
            store.put("part", view)
        assert [entry.key for entry in store.keys("")] == ["object"]
        assert temporaries(tmp_path) == []


@contextlib.contextmanager
def mounted(place: Path, kind: str, options: str, source: str = "none") -> Iterator[None]:
    place.mkdir()
    done = subprocess.run(["mount", "-t", kind, "-o", options, source, str(place)], capture_output=True)
    if done.returncode:
        pytest.skip(f"cannot mount {kind} here: {done.stderr.decode()[:100]}")
    try:
        yield
    finally:
        subprocess.run(["umount", str(place)], check=True)


def aligned(size: int) -> memoryview:
    return memoryview(mmap.mmap(-1, size))


def test_direct_writes_of_aligned_buffers_from_threads(tmp_path: Path) -> None:
    store = FileStore(str(tmp_path))
    buffers = [aligned(4 << 20) for _ in range(4)]
    for number, view in enumerate(buffers):
        ctypes.memset(ctypes.addressof(ctypes.c_char.from_buffer(view)), number + 1, len(view))
        assert file_module._can_be_direct(view)
    threads = [threading.Thread(target=store.put, args=(f"part-{n}", view)) for n, view in enumerate(buffers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number, view in enumerate(buffers):
        assert store.get(f"part-{number}").data == bytes([number + 1]) * len(view)
    assert not file_module._can_be_direct(memoryview(bytearray((4 << 20) + 1)))
    assert not file_module._can_be_direct(memoryview(bytes(4 << 20)))


def test_a_url_relative_to_the_current_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "deep").mkdir()
    monkeypatch.chdir(tmp_path / "deep")
    assert open_store("file://./run").url == f"file://{tmp_path}/deep/run"
    assert open_store("file://../a%20b").url == f"file://{tmp_path}/a b"
    with stayfast.run("file://./run", total_steps=1) as run:
        assert list(run.steps()) == [0]
        assert run.url == f"file://{tmp_path}/deep/run", "what is told must hold in every directory"


@pytest.mark.parametrize(
    ("url", "cure"),
    [
        ("run", "for a directory write file://./run;"),
        ("./run", "for a directory write file://./run;"),
        ("/data/run", "for a directory write file:///data/run;"),
        ("file://data/run", "file://./data/run for one below"),
        ("ftp://data/run", "; use file:///path"),
    ],
)
def test_a_wrong_url_says_which_would_be_right(url: str, cure: str) -> None:
    with pytest.raises(UrlError) as caught:
        open_store(url)
    assert cure in str(caught.value)
