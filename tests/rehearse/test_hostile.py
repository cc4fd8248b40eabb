"""A disk that is full, as programs of several languages meet it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from zoo import PROGRAMS, RESULT

from stayfast.errors import UsageError
from stayfast.proof.rehearse import rehearsal
from stayfast.proof.rehearse.attempt import Attempt, AttemptEnvironment
from stayfast.proof.rehearse.baseline import Baseline, run_baselines
from stayfast.proof.rehearse.facts import AttemptObservation
from stayfast.proof.rehearse.rehearsal import RehearsalOptions, rehearse
from stayfast.proof.rehearse.schedule import InterruptionKind
from stayfast.proof.rehearse.workspace import LINK_FROM_BYTES
from stayfast.proof.syscalls.disk_limit import DiskLimit, used_bytes

PYTHON = sys.executable


@pytest.fixture
def live(tmp_path: Path):
    """One life of a program around which something is hostile: what it printed, and how it ended."""
    (tmp_path / "work").mkdir()

    def run(*command: str, **around: object) -> tuple[str, AttemptObservation]:
        surroundings = AttemptEnvironment(
            command, str(tmp_path), dict(os.environ), grace_seconds=5.0, limit_seconds=120.0,
            allows=lambda _: True, **around,
        )  # fmt: skip
        attempt = Attempt(1, surroundings, None, None)
        if not attempt.program.listener_kind:
            attempt.close()
            pytest.skip(f"system calls cannot be held here: {attempt.program.unwatched}")
        while not attempt.tick():
            pass
        fact = attempt.close()
        return (tmp_path / "attempt-1.log").read_text(), fact

    run.work = tmp_path / "work"
    return run


# -- the disk

WRITES = "import os, sys\nf = open('big', 'wb', buffering=0)\n"
FULL = {
    "write": [PYTHON, "-c", WRITES + "f.write(b'x' * 60_000); f.write(b'x' * 60_000)"],
    "pwrite": [PYTHON, "-c", WRITES + "[os.pwrite(f.fileno(), b'x' * 60_000, at) for at in (0, 60_000)]"],
    "writev": [PYTHON, "-c", WRITES + "os.writev(f.fileno(), [b'x' * 60_000, b'y' * 60_000])"],
    "truncate": [PYTHON, "-c", WRITES + "f.truncate(120_000)"],
    "fallocate": [PYTHON, "-c", WRITES + "os.posix_fallocate(f.fileno(), 60_000, 60_000)"],
    "sendfile": [PYTHON, "-c", "import shutil\nshutil.copyfile('half', 'a')\nshutil.copyfile('half', 'b')"],
    "cp": ["sh", "-c", "cp half a && cp half b"],
    "shell": ["bash", "-c", "for i in 1 2 3; do head -c 40000 /dev/zero; done > out"],
    "perl": ["perl", "-e", "open(my $f, '>', 'o'); print $f 'x' x 120000; close $f or die $!"],
}


@pytest.mark.parametrize("way", FULL)
def test_what_does_not_fit_fails_as_on_a_full_disk(live, way: str) -> None:
    (live.work / "half").write_bytes(b"h" * 60_000)
    out, fact = live(*FULL[way], disk=DiskLimit(str(live.work), 100_000))
    assert fact.code != 0
    assert "No space left on device" in out
    assert used_bytes(str(live.work)) <= 60_000 + 100_000


FITS = {
    "in place": "f = open('half', 'r+b', buffering=0); f.write(b'n' * 60_000); os.pwrite(f.fileno(), b'n' * 60_000, 0)",
    "again and again": "[open('a', 'wb').write(b'x' * 90_000) for _ in range(5)]",
    "after a removal": "open('a', 'wb').write(b'x' * 90_000); os.remove('a'); open('b', 'wb').write(b'x' * 90_000)",
    "by a rename": "[(open('t', 'wb').write(b'x' * 40_000), os.replace('t', 'a')) for _ in range(5)]",
    "elsewhere": "open('../elsewhere', 'wb').write(b'x' * 500_000)",
    "printed": "print('x' * 500_000)",
    "shorter": "open('a', 'wb').write(b'x' * 90_000); os.truncate('a', 5); open('b', 'wb').write(b'x' * 90_000)",
}


@pytest.mark.parametrize("way", FITS)
def test_what_fits_is_written(live, way: str) -> None:
    (live.work / "half").write_bytes(b"h" * 60_000)
    out, fact = live(PYTHON, "-c", f"import os\n{FITS[way]}", disk=DiskLimit(str(live.work), 100_000))
    assert fact.code == 0, out


# -- what it says


def test_where_calls_cannot_be_held_it_says_so(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--disk-limit needs to hold system calls, and that is not possible here"):
        rehearse(RehearsalOptions(command=["true"], directory=str(tmp_path), watch=False, disk_limit_bytes=1000))


def test_a_disk_that_is_too_small_for_the_program_itself(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text("with open('a', 'w') as file: file.write('x' * 5000)")
    with pytest.raises(UsageError, match=r"without any interruption the command leaves with 1: .*No space left"):
        rehearse(RehearsalOptions(command=[PYTHON, "program.py"], directory=str(tmp_path), disk_limit_bytes=1000))


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--disk-limit", "lots"), "--disk-limit lots is no size"),
        (("--disk-limit", "-5M"), "is no size"),
    ],
)
def test_bad_input_is_one_sentence(tmp_path: Path, arguments: tuple[str, ...], sentence: str) -> None:
    words = [PYTHON, "-m", "stayfast", "rehearse", *(f"{arguments[0]}={arguments[1]}",), "--", "true"]
    ended = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert ended.returncode == 2
    assert sentence in ended.stderr
    assert "Traceback" not in ended.stderr


def test_an_ordinary_user_has_it(as_nobody) -> None:
    shutil.copy(PROGRAMS / "leaves_temporaries.py", as_nobody.folder)
    ended = as_nobody(
        "-m", "stayfast", "rehearse", "--trials", "3", "--kills", "2", "--compare", "result.txt", "--grace", "5",
        "--disk-limit", "250K", "--", as_nobody.python, "leaves_temporaries.py",
    )  # fmt: skip
    assert ended.returncode == 1, ended
    assert "resume-crash" in ended.stdout
    assert "No space left on device" in ended.stdout
    assert "--disk-limit 250K" in ended.stdout, "it is told how to see it again"


# -- what it does where calls cannot be held

_NO_LISTENERS = """
import ctypes, os, platform, struct, sys
seccomp = {"x86_64": 317, "aarch64": 277}[platform.machine()]
rows = [(0x20, 0, 0, 0), (0x15, 0, 1, seccomp), (0x06, 0, 0, 0x00050000 | 38), (0x06, 0, 0, 0x7FFF0000)]
data = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *row) for row in rows))
class Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("rows", ctypes.c_void_p)]
libc = ctypes.CDLL(None)
assert libc.prctl(38, 1, 0, 0, 0) == 0
assert libc.prctl(22, 2, ctypes.byref(Program(len(rows), ctypes.addressof(data))), 0, 0) == 0
os.execv(sys.argv[1], sys.argv[1:])
"""  # a sandbox that knows nothing of listeners, as gVisor: seccomp(2) fails with ENOSYS from here on


def test_where_calls_cannot_be_held_the_users_own_large_files_stay_as_they_are(tmp_path: Path) -> None:
    """A link in the place of a copy can be broken in time only by somebody who sees the file opened."""
    before = bytes(2 * LINK_FROM_BYTES)
    (tmp_path / "data.bin").write_bytes(before)
    program = "import time\nwith open('data.bin', 'r+b') as file: file.write(b'new')\ntime.sleep(0.3)\n"
    (tmp_path / "program.py").write_text(program)
    words = [PYTHON, "-m", "stayfast", "rehearse", "--trials", "1", "--kills", "1", "--", PYTHON, "program.py"]
    ended = subprocess.run(
        [PYTHON, "-c", _NO_LISTENERS, *words], cwd=tmp_path, capture_output=True, text=True, timeout=120
    )
    assert "system calls cannot be held here" in ended.stdout, ended
    assert (tmp_path / "data.bin").read_bytes() == before


CHANGES_LARGE_FILES = """
import os, time
with open("link.bin", "r+b") as file:
    file.write(b"new")
os.truncate("short.bin", 0)
os.chmod("mode.bin", 0o600)
os.chmod("link-to-date.bin", 0o600)
os.utime("date.bin", (1, 1))
time.sleep(0.3)
"""


def test_the_users_own_large_files_stay_as_they_are_by_whatever_name(tmp_path: Path) -> None:
    """Written to through a link, cut short, or with another mode or date."""
    before = bytes(2 * LINK_FROM_BYTES)
    names = ["content.bin", "short.bin", "mode.bin", "date.bin"]
    for name in names:
        (tmp_path / name).write_bytes(before)
        (tmp_path / name).chmod(0o644)
    (tmp_path / "deep").mkdir()
    (tmp_path / "link.bin").symlink_to("deep/link.bin")
    (tmp_path / "deep" / "link.bin").symlink_to("../content.bin")
    (tmp_path / "link-to-date.bin").symlink_to("date.bin")
    (tmp_path / "program.py").write_text(CHANGES_LARGE_FILES)
    known = {name: (tmp_path / name).stat() for name in names}
    words = ["rehearse", "--trials", "1", "--kills", "1", "--", PYTHON, "program.py"]
    ended = subprocess.run(
        [PYTHON, "-m", "stayfast", *words], cwd=tmp_path, capture_output=True, text=True, timeout=120
    )
    assert ended.returncode == 0, ended
    for name in names:
        assert (tmp_path / name).read_bytes() == before, name
        now = (tmp_path / name).stat()
        assert (now.st_mode, now.st_mtime_ns) == (known[name].st_mode, known[name].st_mtime_ns), name


@pytest.mark.parametrize(
    "deed",
    [
        "open('link', 'a').write('new')",
        "open('chain', 'a').write('new')",
        "open('made', 'w').write('new')",
        "os.unlink(outside)",
        "os.rename(outside, 'mine')",
    ],
)
def test_what_leads_outside_is_refused_by_its_true_name(tmp_path: Path, deed: str) -> None:
    outside = tmp_path / "outside"
    outside.write_text("precious")
    work = tmp_path / "work"
    work.mkdir()
    (work / "link").symlink_to(outside)
    (work / "chain").symlink_to("link")
    (work / "made").symlink_to(tmp_path / "new")
    (work / "program.py").write_text(f"import os, time\noutside = {str(outside)!r}\n{deed}\ntime.sleep(0.3)\n")
    words = ["rehearse", "--trials", "1", "--kills", "1", "--", PYTHON, "program.py"]
    ended = subprocess.run([PYTHON, "-m", "stayfast", *words], cwd=work, capture_output=True, text=True, timeout=120)
    assert ended.returncode == 2, ended
    named = tmp_path / "new" if "made" in deed else outside
    assert f"writes outside its directory, to {named}" in ended.stderr
    assert outside.read_text() == "precious"
    assert not (tmp_path / "new").exists()


def test_links_that_stay_inside_and_devices_are_fine(tmp_path: Path) -> None:
    program = """
import os, time
os.symlink("state-1", "latest")
with open("latest", "w") as file:  # makes state-1
    file.write("x")
os.symlink("/dev/stdout", "log")
with open("log", "w") as log, open("/dev/stderr", "w") as error, open("/dev/null", "w") as null:
    print("fine", file=log)
try:
    os.close(os.open("/tmp/none-of-ours", os.O_RDONLY))
except OSError:
    pass
try:
    open("latest", "x")
except FileExistsError:
    pass
os.unlink("latest")
os.unlink("log")
assert os.path.exists("state-1")
time.sleep(0.3)
os.rename("state-1", "result")
"""
    (tmp_path / "program.py").write_text(program)
    words = ["rehearse", "--trials", "1", "--kills", "1", "--seed", "1", "--compare", "result", "--", "bash", "-c"]
    restart = f"rm -f latest log state-1; exec {PYTHON} program.py"
    ended = subprocess.run(
        [PYTHON, "-m", "stayfast", *words, restart], cwd=tmp_path, capture_output=True, text=True, timeout=120
    )
    assert "writes outside" not in ended.stderr + ended.stdout, ended
    assert ended.returncode == 0, ended


def test_a_directory_that_all_nodes_share_is_never_used_by_two_runs_at_once(tmp_path: Path) -> None:
    """Nor by the runs beside which a suspicion is judged."""
    for name in ("scratch", "work", "seen"):
        (tmp_path / name).mkdir()
    program = """
import fcntl, os, sys, time
lock = open(os.path.join(sys.argv[1], "lock"), "w")
try:
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
except OSError:
    open(os.path.join(sys.argv[1], "two at once"), "w").close()
time.sleep(0.8)
open("result", "w").write("x")
"""
    (tmp_path / "work" / "program.py").write_text(program)
    found = rehearse(
        RehearsalOptions(
            command=[PYTHON, "program.py", str(tmp_path / "seen")],
            directory=str(tmp_path / "work"),
            ephemeral=[str(tmp_path / "scratch")],
            writable=[str(tmp_path / "seen")],
            kinds=(InterruptionKind.KILL,),
            trials=2,
            kills=1,
        )
    )
    assert [reason.code for reason in found.reasons] == ["no-progress"]
    assert [path.name for path in (tmp_path / "seen").iterdir()] == ["lock"]


def test_a_baseline_that_stood_still_is_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """All its moments would come after the end, and a program that keeps nothing would pass."""
    made = []

    def stalled(*arguments: object, **more: object) -> Baseline:
        baseline = run_baselines(*arguments, **more)  # type: ignore[arg-type]
        made.append(baseline.profile.seconds)
        if len(made) > 1:
            return baseline
        slow = 4 * baseline.profile.seconds
        return baseline._replace(
            fact=baseline.fact._replace(seconds=slow), profile=baseline.profile._replace(seconds=slow)
        )

    monkeypatch.setattr(rehearsal, "run_baselines", stalled)
    options = RehearsalOptions(
        command=(PYTHON, "writes_at_the_end.py"), comparison=RESULT, trials=3, parallel=3, directory=str(PROGRAMS)
    )
    assert [reason.code for reason in rehearse(options).reasons] == ["no-progress"]
    assert len(made) == 2
