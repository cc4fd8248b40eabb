"""Programs are seen at the very call, held there, and fenced; copies cost little and never touch the original."""

from __future__ import annotations

import itertools
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from zoo import PROGRAMS, PYTHON, RESULT

from stayfast.errors import UsageError
from stayfast.process.proc import signal_disposition
from stayfast.proof.rehearse import moment, workspace
from stayfast.proof.rehearse.attempt import Attempt, AttemptEnvironment, last_error_line
from stayfast.proof.rehearse.baseline import is_steady
from stayfast.proof.rehearse.rehearsal import RehearsalOptions, rehearse
from stayfast.proof.rehearse.schedule import AtEvent, AtResume, AtTime, InterruptionKind, Kill, Profile
from stayfast.proof.syscalls.events import LET_GO, FilePoint, file_family
from stayfast.proof.syscalls.polling import InotifyPoller, watch_files
from stayfast.proof.syscalls.watcher import SyscallWatcher

PROFILE = Profile(seconds=1.0, first_write_seconds=0.1, handler_seconds=None, events={})

WRITES = """
import os, time
time.sleep(0.05)
for number in range(3):
    with open(f"state-{number}.tmp", "w") as file:
        file.write("first")
        file.flush()
        file.write("second")
    os.replace(f"state-{number}.tmp", "state")
    with open("log", "a") as file:
        file.write("line\\n")
"""


def begin(tmp_path: Path, command: list[str], kill: Kill | None = None, *, learn: bool = True) -> Attempt:
    work = tmp_path / "work"
    work.mkdir(exist_ok=True)
    own = os.path.realpath(tmp_path)
    around = AttemptEnvironment(
        command=command,
        folder=str(tmp_path),
        environment=dict(os.environ),
        grace_seconds=5.0,
        limit_seconds=60.0,
        allows=lambda path: workspace.AllowedPaths(command).allows(path, own),
    )
    attempt = Attempt(1, around, kill, PROFILE, learn=learn)
    if not isinstance(attempt.watcher, SyscallWatcher):
        attempt.close()
        pytest.skip(f"system calls cannot be watched: {attempt.program.unwatched}")
    return attempt


def finish(attempt: Attempt) -> object:
    while not attempt.tick():
        pass
    return attempt.close()


LOCKS = """
for name in ("lock", "lock", "state", "state"):
    with open(name, "w") as file:
        file.write("" if name == "lock" else "something")
"""


def test_who_empties_an_empty_file_overwrites_nothing(tmp_path: Path) -> None:
    attempt = begin(tmp_path, [sys.executable, "-c", LOCKS])
    assert finish(attempt).code == 0
    assert attempt.watcher.replaced.keys() == {"lock", "state"}
    assert attempt.watcher.overwrote.keys() == {"state"}


def test_a_link_that_is_removed_and_made_anew_is_met_in_between(tmp_path: Path) -> None:
    text = "import os; os.symlink('a', 'latest'); os.unlink('latest'); os.symlink('b', 'latest')"
    kill = Kill(1, InterruptionKind.KILL, AtEvent("latest", FilePoint.RENAME, 2))
    attempt = begin(tmp_path, [sys.executable, "-c", text], kill)
    assert finish(attempt).code == 128 + signal.SIGKILL
    assert not os.path.lexists(tmp_path / "work" / "latest")


@pytest.mark.parametrize("touches", [0, 1])
def test_a_checkpoint_that_is_moved_away_as_it_is_read_is_met_there(tmp_path: Path, touches: int) -> None:
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "state").write_text("1")
    text = "import os, time; os.rename('state', 'read'); time.sleep(0.2); open('state', 'w').close(); time.sleep(60)"
    kill = Kill(1, InterruptionKind.KILL_DURING_RESUME, AtResume(100.0, touches))
    attempt = begin(tmp_path, [sys.executable, "-c", text], kill)
    assert finish(attempt).code == 128 + signal.SIGKILL
    assert (tmp_path / "work" / "state").exists() == (not touches)


def test_every_point_is_counted(tmp_path: Path) -> None:
    attempt = begin(tmp_path, [sys.executable, "-c", WRITES])
    assert finish(attempt).code == 0
    assert dict(attempt.watcher.counts) == {
        ("state-#.tmp", FilePoint.OPEN): 3,
        ("state-#.tmp", FilePoint.FIRST_WRITE): 3,
        ("state-#.tmp", FilePoint.LATER_WRITE): 3,
        ("state", FilePoint.RENAME): 3,
        ("log", FilePoint.OPEN): 1,
        ("log", FilePoint.FIRST_WRITE): 1,
        ("log", FilePoint.WRITE): 2,
    }


REDIRECTS = """
for i in 1 2 3 4 5 6 7 8; do echo $i; sleep 0.05; done > lines
for i in 1 2 3; do echo $i > marks; sleep 0.05; done
for i in 1 2 3 4 5 6 7 8; do echo $i; sleep 0.05; done >> lines
"""


def test_output_that_a_shell_sends_into_a_file_is_seen_to_grow(tmp_path: Path) -> None:
    attempt = begin(tmp_path, ["bash", "-c", REDIRECTS])
    assert finish(attempt).code == 0
    counts = attempt.watcher.counts
    assert 3 <= counts["lines", FilePoint.LATER_WRITE] <= 7
    assert 3 <= counts["lines", FilePoint.WRITE] <= 7
    assert ("marks", FilePoint.LATER_WRITE) not in counts, "written once each time"
    assert counts["marks", FilePoint.FIRST_WRITE] == 3


@pytest.mark.parametrize("kind", [InterruptionKind.KILL, InterruptionKind.TERM])
def test_a_file_that_a_shell_fills_is_met_half_written(tmp_path: Path, kind: InterruptionKind) -> None:
    program = f"trap 'exit 143' TERM; {REDIRECTS}"
    attempt = begin(tmp_path, ["bash", "-c", program], Kill(1, kind, AtEvent("lines", FilePoint.LATER_WRITE, 2)))
    fact = finish(attempt)
    assert fact.code == {InterruptionKind.KILL: 137, InterruptionKind.TERM: 143}[kind]
    assert fact.at == "at the later-write of lines"
    assert 2 < len((tmp_path / "work" / "lines").read_text().split()) < 8


def test_many_files_that_are_filled_cost_little(tmp_path: Path) -> None:
    attempt = begin(tmp_path, ["bash", "-c", "for i in $(seq 60); do echo > out-$i; done"])
    assert finish(attempt).code == 0
    assert len(attempt.watcher._streams) <= 16


@pytest.mark.parametrize(
    ("printed", "last"),
    [
        ("SyntaxError: no\n    at JSON.parse (<anonymous>)\n\nNode.js v20.20.2\n", "SyntaxError: no"),
        ("ValueError: no\n\n", "ValueError: no"),
        ("", ""),
    ],
)
def test_the_last_words_say_something(tmp_path: Path, printed: str, last: str) -> None:
    (tmp_path / "log").write_text(printed)
    assert last_error_line(str(tmp_path / "log")) == last


def test_a_kill_comes_before_a_claim_is_removed(tmp_path: Path) -> None:
    script = (
        "import os\nfor n in (1, 2):\n  open(f'claim-{n}', 'w').close()\n  os.unlink(f'claim-{n}')\nos.rmdir('none')"
    )
    kill = Kill(1, InterruptionKind.KILL, AtEvent("claim-#", FilePoint.REMOVE, 2))
    attempt = begin(tmp_path, [sys.executable, "-c", script], kill)
    assert finish(attempt).code == 137
    assert os.listdir(tmp_path / "work") == ["claim-2"]


def test_what_is_not_there_is_not_removed(tmp_path: Path) -> None:
    attempt = begin(tmp_path, ["rm", "-f", "none", "/tmp/stayfast-none"])
    assert finish(attempt).code == 0
    assert dict(attempt.watcher.counts) == {}
    assert attempt.watcher.refused == []


def test_what_is_renewed_is_counted(tmp_path: Path) -> None:
    attempt = begin(tmp_path, [sys.executable, "-c", WRITES])
    assert finish(attempt).code == 0
    assert attempt.watcher.renewals == 2  # the second and the third rename to one name


STAYS = """
import tempfile
with open("log", "a") as log, open("state", "w"), tempfile.NamedTemporaryFile(dir="."):
    log.write("begun")
for number in range(3):
    open(f"done-{number}", "a").close()
"""


def test_who_does_everything_again_is_counted_the_same(tmp_path: Path) -> None:
    """Although the log and the marks are there already, and nothing is begun anew but the state."""
    counted = []
    for _ in range(2):
        attempt = begin(tmp_path, [sys.executable, "-c", STAYS])
        assert finish(attempt).code == 0
        counted.append(attempt.watcher.families)
        assert len(attempt.watcher.opened_seconds) == 6
    assert counted[0] == counted[1]
    assert counted[0]["done-#", FilePoint.OPEN] == 3


EVENLY = [(second, second) for second in range(1, 11)]


@pytest.mark.parametrize(
    ("counts", "steady"),
    [
        (EVENLY, True),
        ([(at + 60.0, count) for at, count in EVENLY], True),  # after a long start
        ([(at / 100 + 99.9, count) for at, count in EVENLY], False),  # a result at the end
        ([(at / 100, count) for at, count in EVENLY] + [(100.0, 11)], False),  # set up at the start, and a result
        ([(0.1, 1), (100.0, 2)], False),
        ([(33.0, 2), (66.0, 4), (100.0, 6)], True),  # two checkpoints and a result
        ([(1.0, 1)], False),
        ([], False),
    ],
)
def test_what_grows_with_the_work_tells_how_far_it_is(counts: list[tuple[float, int]], steady: bool) -> None:
    seconds = max((at for at, _ in counts), default=1.0)
    assert is_steady(counts, seconds) is steady


def test_signals_that_are_blocked_for_a_moment_are_not_waited_for_by_the_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As while a library starts its threads: SIGTERM would be lost then, and the handler is still to come."""
    script = "import signal, sys, time; time.sleep(0.7); signal.signal(15, lambda *_: sys.exit(75)); time.sleep(60)"
    looks, other_looks = itertools.count(), itertools.count()

    def blocked_by_turns(pid: int, number: int, turns: Iterator[int] = looks) -> str:
        found = signal_disposition(pid, number)
        return "blocked" if found == "default" and next(turns) % 2 else found

    def notices_by_turns(pid: int, number: int) -> bool:
        return blocked_by_turns(pid, number, other_looks) in ("handler", "blocked")

    monkeypatch.setattr(moment, "signal_disposition", blocked_by_turns)
    monkeypatch.setattr(moment, "would_notice_signal", notices_by_turns)
    monkeypatch.setattr(f"{__name__}.PROFILE", PROFILE._replace(handler_seconds=0.7))
    fact = finish(begin(tmp_path, [sys.executable, "-c", script], Kill(1, InterruptionKind.TERM, AtTime(0.1))))
    assert next(looks) > 5
    assert (fact.code, fact.overran) == (75, False)


@pytest.mark.parametrize(
    ("name", "point", "nth", "left"),
    [
        ("state-#.tmp", FilePoint.OPEN, 2, {"state": "firstsecond", "log": "line\n"}),
        ("state-#.tmp", FilePoint.FIRST_WRITE, 2, {"state": "firstsecond", "log": "line\n", "state-1.tmp": ""}),
        ("state-#.tmp", FilePoint.LATER_WRITE, 2, {"state": "firstsecond", "log": "line\n", "state-1.tmp": "first"}),
        ("state", FilePoint.RENAME, 1, {"state-0.tmp": "firstsecond"}),
        ("log", FilePoint.WRITE, 2, {"state": "firstsecond", "log": "line\nline\n"}),
    ],
)
def test_a_kill_comes_exactly_there(
    tmp_path: Path, name: str, point: FilePoint, nth: int, left: dict[str, str]
) -> None:
    attempt = begin(tmp_path, [sys.executable, "-c", WRITES], Kill(1, InterruptionKind.KILL, AtEvent(name, point, nth)))
    fact = finish(attempt)
    assert (fact.code, fact.delivered) == (137, True)
    assert {path.name: path.read_text() for path in (tmp_path / "work").iterdir()} == left


def test_a_shell_is_killed_between_emptying_and_writing(tmp_path: Path) -> None:
    kill = Kill(1, InterruptionKind.KILL, AtEvent("state", FilePoint.FIRST_WRITE, 1))
    fact = finish(begin(tmp_path, ["bash", "-c", "sleep 0.05; echo one > state; echo two > other"], kill))
    assert fact.code == 137
    assert [path.name for path in (tmp_path / "work").iterdir()] == ["state"]
    assert (tmp_path / "work" / "state").read_text() == ""


def test_a_frozen_program_stands_before_its_call_until_it_is_thawed(tmp_path: Path) -> None:
    kill = Kill(1, InterruptionKind.FREEZE, AtEvent("state", FilePoint.RENAME, 2))
    attempt = begin(tmp_path, [sys.executable, "-c", WRITES], kill)
    while not attempt.fired:
        attempt.tick()
    for _ in range(10):
        attempt.tick()
    assert (tmp_path / "work" / "state-1.tmp").exists()
    assert attempt.moment.held_path == "state"
    attempt.resume()
    while not attempt.tick(alone=False):
        pass
    assert attempt.close().code == 0
    assert not (tmp_path / "work" / "state-1.tmp").exists()


@pytest.mark.skipif(shutil.which("perl") is None, reason="no perl here")
def test_a_signal_never_breaks_off_a_call(tmp_path: Path) -> None:
    text = """
$SIG{TERM} = sub { $n++ };
for (1 .. 300) { open my $f, '>', "a" or die "open: $!"; close $f; rename "a", "b" or die "rename: $!" }
print "signals: $n\\n";
"""
    attempt = begin(tmp_path, ["perl", "-e", text])
    for _ in range(40):
        if attempt.program.poll() is not None:
            break
        if signal_disposition(attempt.program.pid, signal.SIGTERM) == "handler":
            attempt.moment.send_term()
        time.sleep(0.003)
    fact = finish(attempt)
    assert fact.code == 0, fact.last_words


@pytest.mark.parametrize(
    ("name", "known"),
    [
        ("ckpt-00012.json", "ckpt-#.json"),
        ("out/tmpab12cd_x/part", "out/tmp*/part"),
        ("f0e1d2c3b4a59687.bin", "*.bin"),
        ("3fa85f64-5717-4562-b3fc-2c963f66afa6", "*"),
        ("tmpfile", "tmpfile"),
        ("model.pt", "model.pt"),
    ],
)
def test_families(name: str, known: str) -> None:
    assert file_family(name) == known


WITHOUT = {"right_by_hand": set(), "writes_at_the_end": {"no-progress"}, "forgets_rng": {"result-differs"}}


@pytest.mark.parametrize("name", WITHOUT)
def test_notifications_are_enough_for_a_verdict(name: str) -> None:
    result = rehearse(
        RehearsalOptions([PYTHON, f"{name}.py"], RESULT, trials=4, parallel=4, watch=False, directory=str(PROGRAMS))
    )
    assert {reason.code for reason in result.reasons} == WITHOUT[name], result.reasons
    assert result.watched == "notifications"
    assert any("watched by notifications" in note for note in result.notes)


def test_polling_is_enough_where_nothing_else_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stayfast.runtime.directory_sync.inotify.InotifyWatch.is_active", property(lambda _: False))
    options = RehearsalOptions(
        [PYTHON, "forgets_rng.py"], RESULT, trials=4, parallel=4, watch=False, directory=str(PROGRAMS)
    )
    result = rehearse(options)
    assert {reason.code for reason in result.reasons} == {"result-differs"}
    assert result.watched == "polling"


def test_notifications_tell_what_has_just_happened(tmp_path: Path) -> None:
    told = []
    (tmp_path / "there").mkdir()
    (tmp_path / "__pycache__").mkdir()
    listener = watch_files(str(tmp_path), lambda event: told.append((event.point, event.path)) or LET_GO)
    assert isinstance(listener, InotifyPoller)
    try:
        with (tmp_path / "there" / "state.tmp").open("w") as file:
            wait_until(lambda: (FilePoint.FIRST_WRITE, "there/state.tmp") in told)
            file.write("half")
            file.flush()
            wait_until(lambda: (FilePoint.LATER_WRITE, "there/state.tmp") in told)
        wait_until(lambda: (FilePoint.CHANGE, "there/state.tmp") in told)
        os.replace(tmp_path / "there" / "state.tmp", tmp_path / "there" / "state")
        wait_until(lambda: (FilePoint.RENAME, "there/state") in told)
        (tmp_path / "__pycache__" / "x.pyc").write_text("")
        (tmp_path / "new" / "deep").mkdir(parents=True)
        (tmp_path / "new" / "deep" / "log").write_text("line")
        wait_until(lambda: any(path == "new/deep/log" for _, path in told))
        (tmp_path / "there" / "state").open("w").close()
        wait_until(lambda: (FilePoint.FIRST_WRITE, "there/state") in told)
    finally:
        listener.close()
    assert not [path for _, path in told if "pyc" in path]
    assert len(listener.opened_seconds) == sum(point in (FilePoint.CHANGE, FilePoint.RENAME) for point, _ in told)
    assert listener.families["there/state", FilePoint.RENAME] == 1


def wait_until(condition: Callable[[], bool], seconds: float = 20.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "was not told in time"
        time.sleep(0.005)


def test_a_copy_is_whole_and_its_own(tmp_path: Path) -> None:
    source = tmp_path / "source"
    (source / "deep" / "er").mkdir(parents=True)
    (source / "deep" / "er" / "file").write_text("x")
    (source / "empty").mkdir()
    (source / "big").write_bytes(bytes(workspace.LINK_FROM_BYTES))
    (source / "run.sh").write_text("")
    (source / "run.sh").chmod(0o755)
    (source / "link").symlink_to("deep/er/file")
    (source / ".venv").mkdir()
    os.mkfifo(source / "pipe")
    target = tmp_path / "target"
    workspace.WorkspaceCopier(str(source), may_link=True).copy_to(str(target))
    assert (target / "deep" / "er" / "file").read_text() == "x"
    assert (target / "link").readlink() == Path("deep/er/file")
    assert os.access(target / "run.sh", os.X_OK)
    assert (target / ".venv").is_symlink()
    assert not (target / "pipe").exists()
    workspace.unshare_file(str(target / "big"))
    assert (target / "big").stat().st_nlink == 1
    assert (target / "big").read_bytes() == (source / "big").read_bytes()
    (target / "deep").chmod(0o500)
    workspace.remove_tree(str(target))
    assert not target.exists()
    assert (source / "big").exists()
    plain = tmp_path / "plain"
    workspace.WorkspaceCopier(str(source), may_link=False).copy_to(str(plain))
    assert (plain / "big").stat().st_nlink == 1


def test_the_copy_of_a_link_leads_to_the_copy_or_out_of_it_as_the_original_does(tmp_path: Path) -> None:
    source = tmp_path / "source"
    (source / "deep").mkdir(parents=True)
    for name in ("file", "../outside"):
        (source / name).write_text(name)
    links = {"own": "../file", "whole": str(source / "file"), "out": "../../outside", "far": str(tmp_path / "outside")}
    for name, aim in links.items():
        (source / "deep" / name).symlink_to(aim)
    target = tmp_path / "copies" / "of" / "it"
    target.parent.mkdir(parents=True)
    workspace.WorkspaceCopier(str(source), may_link=True).copy_to(str(target))
    for name in ("own", "whole"):
        assert (target / "deep" / name).resolve() == target / "file"
    for name in ("out", "far"):
        assert (target / "deep" / name).resolve() == tmp_path / "outside"


OTHERS_MODES = """
import os
from stayfast.proof.rehearse import workspace
os.makedirs("source/shut")
with open("source/shut/big", "wb") as file:
    file.write(bytes(workspace.LINK_FROM_BYTES))
os.chmod("source/shut/big", 0o640)
workspace.WorkspaceCopier("source", may_link=True).copy_to("target")
assert os.stat("target/shut/big").st_nlink == 2
os.chmod("target/shut", 0o500)
workspace.remove_tree("target")
assert not os.path.exists("target")
assert os.stat("source/shut/big").st_mode & 0o777 == 0o640
"""


def test_what_a_program_has_locked_is_removed_without_a_change_of_the_original(as_nobody) -> None:
    ended = as_nobody("-c", OTHERS_MODES)
    assert ended.returncode == 0, ended


def test_copies_below_what_is_copied_do_not_copy_themselves(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    (tmp_path / "copies").mkdir()
    workspace.WorkspaceCopier(str(tmp_path), may_link=True).copy_to(str(tmp_path / "copies" / "one"))
    assert sorted(path.name for path in (tmp_path / "copies" / "one").iterdir()) == ["file"]


def test_the_fence() -> None:
    fence = workspace.AllowedPaths(["a"], writable=["/data"])
    for path, allowed in {
        "/own/work/x": True,
        "/own": True,
        "/owner/x": False,
        "/dev/null": True,
        "/data/x": True,
        "/etc/x": False,
    }.items():
        assert fence.allows(path, "/own") is allowed, path
    assert workspace.AllowedPaths(["--out", "/etc/{trial}"]).allows("/etc/x", "/own")
    assert workspace.expand_trial_name(["{trial}/a", "b"], "t-1") == ["t-1/a", "b"]


@pytest.mark.parametrize(
    ("command", "environment", "refused"),
    [
        (["a", "s3://b/c"], {}, True),
        (["a", "--url=postgresql://host/db"], {}, True),
        (["a", "gs://b/{trial}"], {}, False),
        (["a"], {"RUN_URL": "gs://b/c"}, True),
        (["a", "file:///x"], {"HTTP_PROXY": "http://proxy"}, False),
    ],
)
def test_remote_urls(command: list[str], environment: dict[str, str], refused: bool) -> None:
    if refused:
        with pytest.raises(UsageError, match="every trial would write to"):
            workspace.check_command(command, environment)
    else:
        workspace.check_command(command, environment)
