"""A bundle on disk under attack: killed writers, full disks, two writers, garbage in the way."""

from __future__ import annotations

import errno
import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from render_cases import case

from stayfast.errors import UsageError
from stayfast.render import directory as render_files
from stayfast.render.bundle import MARKER
from stayfast.render.directory import compare, write

HERE = Path(__file__).resolve().parent
OLD, NEW = "train-spot", "train-queued-gang"
WRITER = """
import sys
sys.path[:0] = [{here!r}, {source!r}]
from render_cases import case
from stayfast.render.directory import compare, write
old, new = case("train-spot").files, case("train-queued-gang").files
print("ready", flush=True)
while True:
    for files in (old, new):
        write(sys.argv[1], files, compare(sys.argv[1], files), force=False)
"""


def put(directory, name):
    files = case(name).files
    write(str(directory), files, compare(str(directory), files), force=False)


def visible(directory):
    """Files that a person or kubectl sees; a killed writer may leave a hidden one."""
    found = {}
    for folder, _, names in os.walk(directory):
        for name in names:
            if not name.startswith("."):
                path = Path(folder, name)
                found[str(path.relative_to(directory))] = path.read_text(encoding="utf-8")
    return found


def test_a_killed_writer_leaves_whole_files_and_the_next_one_mends_them(tmp_path):
    """SIGKILL at random moments; every file is one version or the other, never a part of either."""
    seed = int(os.environ.get("STAYFAST_SEED", "7"))
    print(f"STAYFAST_SEED={seed}")
    generator = random.Random(seed)
    program = WRITER.format(here=str(HERE), source=str(HERE.parents[1] / "src"))
    versions = [case(OLD).files, case(NEW).files]
    mixed = 0
    for _ in range(6):
        process = subprocess.Popen([sys.executable, "-c", program, str(tmp_path / "out")], stdout=subprocess.PIPE)
        try:
            assert process.stdout.readline() == b"ready\n"
            time.sleep(generator.uniform(0.01, 0.15))
        finally:
            process.send_signal(signal.SIGKILL)
            process.wait()
            process.stdout.close()
        found = visible(tmp_path / "out") if (tmp_path / "out").exists() else {}
        for name, text in found.items():
            assert text in [files.get(name) for files in versions], name
        mixed += found not in [{}, *versions]
        put(tmp_path / "out", OLD)
        assert visible(tmp_path / "out") == versions[0]
        assert compare(str(tmp_path / "out"), versions[0]).is_none
    print(f"{mixed} of 6 kills hit between two versions")


def test_what_a_killed_writer_left_is_swept_up(tmp_path):
    put(tmp_path, OLD)
    left = tmp_path / ".stayfast-abc123"
    left.write_text(f"# {MARKER}: half of somethi")
    assert compare(str(tmp_path), case(OLD).files).is_none, "it may be at work right now"
    os.utime(left, (0, 0))
    assert compare(str(tmp_path), case(OLD).files).extra == [".stayfast-abc123"]
    put(tmp_path, OLD)
    assert not left.exists()


@pytest.mark.parametrize("failing", range(1, 8))
def test_a_full_disk_is_one_sentence_and_leaves_whole_files(tmp_path, monkeypatch, failing):
    """The n-th file cannot be written; what is there is old or new, and nothing is left behind."""
    put(tmp_path, OLD)
    calls = []
    real = os.replace

    def replace(source, target):
        calls.append(target)
        if len(calls) == failing:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(target))
        real(source, target)

    monkeypatch.setattr(render_files.os, "replace", replace)
    with pytest.raises(UsageError, match="cannot be written"):
        put(tmp_path, NEW)
    monkeypatch.undo()
    for name, text in visible(tmp_path).items():
        assert text in (case(OLD).files.get(name), case(NEW).files.get(name)), name
    assert not list(tmp_path.rglob(".stayfast-*"))
    put(tmp_path, NEW)
    assert visible(tmp_path) == case(NEW).files


def test_two_writers_of_the_same_bundle_do_not_disturb_each_other(tmp_path):
    errors = []

    def work():
        try:
            for _ in range(10):
                put(tmp_path, OLD)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert errors == []
    assert visible(tmp_path) == case(OLD).files


@pytest.mark.parametrize(
    "content",
    [b"", b"\x00" * 10, b"\xff\xfe", b"a\n" * 5000, b"\n\n\n# " + MARKER.encode(), MARKER.encode()[:-1]],
    ids=["empty", "nul", "not utf-8", "long", "marker too late", "almost the marker"],
)
def test_garbage_in_the_way_is_somebody_elses(tmp_path, content):
    (tmp_path / "README.md").write_bytes(content)
    assert compare(str(tmp_path), case(OLD).files).foreign == ["README.md"]
    with pytest.raises(UsageError, match=r"README\.md, not made by stayfast render"):
        put(tmp_path, OLD)
    assert (tmp_path / "README.md").read_bytes() == content


def test_a_folder_where_a_file_should_be(tmp_path):
    (tmp_path / "50-workload.yaml").mkdir()
    with pytest.raises(UsageError, match=r"50-workload\.yaml, not made by stayfast render"):
        put(tmp_path, OLD)
    files = case(OLD).files
    with pytest.raises(UsageError, match="cannot be written"):
        write(str(tmp_path), files, compare(str(tmp_path), files), force=True)


def test_a_file_where_a_folder_should_be(tmp_path):
    (tmp_path / "alerts").write_text("mine\n")
    with pytest.raises(UsageError, match="cannot be written"):
        put(tmp_path, OLD)
    assert (tmp_path / "alerts").read_text() == "mine\n"


def test_a_file_that_may_not_be_read(tmp_path):
    if os.geteuid() == 0:
        pytest.skip("root may read everything")
    put(tmp_path, OLD)
    (tmp_path / "README.md").chmod(0)
    with pytest.raises(UsageError, match="cannot be read"):
        compare(str(tmp_path), case(OLD).files)


def test_nothing_is_looked_for_where_nothing_is_generated(tmp_path):
    """A marker in a folder of somebody else is theirs: a copy kept for comparison, say."""
    (tmp_path / "copy").mkdir()
    (tmp_path / "copy" / "50-workload.yaml").write_text(f"# {MARKER}: kept\n")
    put(tmp_path, OLD)
    assert (tmp_path / "copy" / "50-workload.yaml").exists()
    assert compare(str(tmp_path), case(OLD).files).is_none


def test_modes_do_not_depend_on_who_runs_it(tmp_path):
    before = os.umask(0o077)
    try:
        put(tmp_path, OLD)
    finally:
        os.umask(before)
    modes = {name: (tmp_path / name).stat().st_mode & 0o777 for name in case(OLD).files}
    assert modes.pop("pools.sh") == 0o755
    assert set(modes.values()) == {0o644}
