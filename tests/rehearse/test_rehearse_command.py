"""The command as a person and a CI job meet it: output, exit codes, refusals, and nothing left behind."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from xml.etree import ElementTree

import pytest
from zoo import PROGRAMS, RESULT

from stayfast.errors import UsageError
from stayfast.proof.rehearse.rehearsal import RehearsalOptions, rehearse
from stayfast.proof.rehearse.schedule import InterruptionKind
from stayfast.proof.rehearse.slow_baseline import SlowBaseline

LONGER = ("env", "STEPS=40", sys.executable)
SMALL = ("--trials", "3", "--grace", "5", "--parallel", "3")


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    """A directory with the programs, and a place for copies of its own."""
    work = tmp_path / "work"
    shutil.copytree(PROGRAMS, work)
    copies = tmp_path / "copies"
    copies.mkdir()
    yield work
    assert list(copies.iterdir()) == [], "something was left behind"


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "stayfast", "rehearse", *arguments]


def run(home: Path, *arguments: str, timeout: float = 200.0) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "TMPDIR": str(home.parent / "copies")}
    return subprocess.run(
        command(*arguments), cwd=home, env=environment, capture_output=True, text=True, timeout=timeout
    )


def codes(ended: subprocess.CompletedProcess[str]) -> set[str]:
    return {reason["code"] for reason in json.loads(ended.stdout)["reasons"]}


def program(name: str) -> tuple[str, ...]:
    return ("--", sys.executable, f"{name}.py")


def test_a_program_that_survives(home: Path) -> None:
    before = sorted(path.name for path in home.iterdir())
    ended = run(home, *SMALL, "--compare", "result.txt", "--output", "json", *program("right_by_hand"))
    assert ended.returncode == 0, ended.stderr
    slow = [line for line in ended.stderr.splitlines() if line.startswith("baseline, run ")]  # on a busy machine
    assert ended.stderr.splitlines() == slow
    told = json.loads(ended.stdout)
    assert told["verdict"] == "survives"
    assert told["reasons"] == []
    assert told["trials"] == 3
    assert told["kills"] == len([row for row in told["attempts"] if row["kill"] is not None]) >= 3
    assert {row["exit_code"] for row in told["attempts"]} <= {0, 75, 137}
    assert told["measures"]["safe_seconds_max"] < 5.0
    assert sorted(path.name for path in home.iterdir()) == before, "the directory itself is not touched"


def test_a_reason_can_be_seen_again(home: Path) -> None:
    ended = run(home, *SMALL, "--compare", "result.txt", "--seed", "4", "--json", *program("torn_checkpoint"))
    assert ended.returncode == 1, ended.stderr
    (reason,) = json.loads(ended.stdout)["reasons"]
    assert reason["code"] == "resume-crash"
    assert reason["seed"] == 4
    assert reason["kill"] in reason["kills"]
    assert "JSONDecodeError" in reason["detail"]
    words = reason["reproduce"].split()
    assert words[:2] == ["stayfast", "rehearse"]
    assert ["--only-kill", ",".join(map(str, reason["kills"]))] == words[4:6]
    again = run(home, *words[2 : words.index("--")], "--json", *program("torn_checkpoint"))
    told = json.loads(again.stdout)
    assert [row["code"] for row in told["reasons"]] == ["resume-crash"]
    assert told["trials"] == 1
    assert {row["kill"] for row in told["attempts"]} - {None} == set(reason["kills"])


def test_one_that_is_done_before_its_late_grace_is_over_is_asked_early(home: Path) -> None:
    """It never hears SIGTERM; the one that comes late leaves it less to do than the grace lasts."""
    once = ("--kinds", "term", "--kills", "1", "--trials", "1", "--grace", "0.8")
    ended = run(home, *once, "--compare", "result.txt", "--output", "json", "--", *LONGER, "ignores_sigterm.py")
    assert codes(ended) == {"grace-overrun"}
    told = json.loads(ended.stdout)
    (reason,) = told["reasons"]
    shown = [row for row in told["attempts"] if row["trial"] == reason["trial"]]
    assert [row["needed_sigkill"] for row in shown][:1] == [True], "what it is told from can be seen"


def test_text_page_and_junit(home: Path) -> None:
    files = ("--html", "../page.html", "--junit", "../junit.xml")
    ended = run(home, *SMALL, "--compare", "result.txt", *files, *program("exits_zero"))
    assert ended.returncode == 1
    assert "exit-zero-unfinished: left with 0 before the work was done" in ended.stdout
    assert "again: stayfast rehearse --seed 0 --only-kill" in ended.stdout
    page = (home.parent / "page.html").read_text()
    assert "exit-zero-unfinished" in page
    assert page.count('class="row"') == 3
    suite = ElementTree.parse(home.parent / "junit.xml").getroot()
    assert suite.get("tests") == "3"
    failures = suite.findall("testcase/failure")
    assert len(failures) == int(suite.get("failures") or 0) >= 1
    assert {failure.get("type") for failure in failures} == {"exit-zero-unfinished"}


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ((), "there is no command to rehearse"),
        (("--kills", "0", "--", "true"), "--kills 0 is too small"),
        (("--kinds", "meteor", "--", "true"), "--kinds meteor is not known"),
        (("--records", "out.jsonl", "--", "true"), "--records and --key belong together"),
        (("--grace", "nan", "--", "true"), "is no length"),
        (("--ephemeral", "/tmp", "--", "true"), "--ephemeral /tmp is not an empty directory"),
        (("--ephemeral", "../x", "--", "true"), "--ephemeral ../x leads out of the directory"),
        (("--", "/no/such/program"), "cannot start '/no/such/program': No such file or directory"),
        (("--", "false"), "without any interruption the command leaves with 1"),
        (("--compare", "nothing", "--", "true"), "matches nothing that the uninterrupted run has left"),
        (("--compare", "../x", "--", "true"), "leads out of the directory"),
        (("--", "python", "train.py", "gs://bucket/run"), "every trial would write to gs://bucket/run"),
        (("--only-kill", "99", "--", "true"), "--only-kill 99 is not one of the kills 1 to 27"),
        (("--records", "hangs_on_resume.py", "--key", "id", "--", "true"), "--records hangs_on_resume.py: line 1"),
        (("--check", "exit 3", "--", "true"), "the uninterrupted run does not pass itself"),
    ],
)
def test_bad_input_is_one_sentence(home: Path, arguments: tuple[str, ...], sentence: str) -> None:
    ended = run(home, *arguments)
    assert ended.returncode == 2, ended
    assert sentence in ended.stderr
    assert ended.stderr.count("\n") == 1
    assert ended.stdout == ""


def test_a_result_that_differs_by_itself_is_no_proof(home: Path) -> None:
    ended = run(home, *SMALL, "--compare", "result.json", *program("time_stamps"))
    assert ended.returncode == 2
    assert "result.json differs first at byte" in ended.stderr
    assert "between two uninterrupted runs" in ended.stderr
    check = """python3 -c 'import json; assert json.load(open("result.json"))["sum"] > 0'"""
    ended = run(home, *SMALL, "--check", check, *program("time_stamps"))
    assert ended.returncode == 0, ended.stdout + ended.stderr


def test_what_differs_without_an_interruption_too_is_no_proof(home: Path) -> None:
    """As where somebody changes what the program reads during the rehearsal."""
    mark = home.parent / "mark"
    (home / "program.py").write_text(
        "import os, sys, time\n"
        "time.sleep(0.6)\n"
        "open('result.txt', 'w').write('new' if os.path.exists(sys.argv[1]) else 'old')\n"
    )
    options = RehearsalOptions(
        command=(sys.executable, "program.py", str(mark)),
        comparison=RESULT,
        kinds=(InterruptionKind.KILL,),
        kills=1,
        trials=2,
        parallel=1,
        directory=str(home),
    )
    with pytest.raises(UsageError, match="'new' instead of 'old', and that without any interruption"):
        rehearse(options, progress=lambda said: mark.touch() if said == "1 of 2 trials" else None)


def test_a_directory_in_which_all_is_done_is_pointed_out(home: Path) -> None:
    words = (*SMALL, "--compare", "result.txt", "--json", *program("right_by_hand"))
    (home / "result.txt").write_text("of another program")
    ended = run(home, *words)
    assert "was there before" not in ended.stdout, ended
    subprocess.run([sys.executable, "right_by_hand.py"], cwd=home, check=True)
    ended = run(home, *words)
    assert ended.returncode == 0, ended
    assert any("result.txt was there before and is the same" in note for note in json.loads(ended.stdout)["notes"])


def test_a_write_outside_is_refused_and_does_not_happen(home: Path) -> None:
    outside = home.parent / "outside.txt"
    ended = run(home, *SMALL, *program("outside"), str(outside))
    assert ended.returncode == 2
    assert f"the program writes outside its directory, to {outside}" in ended.stderr
    assert not outside.exists()


def test_with_a_place_per_trial_it_is_allowed(home: Path) -> None:
    ended = run(home, *SMALL, "--json", *program("outside"), str(home.parent / "outside-{trial}.txt"))
    assert ended.returncode == 0, ended.stderr
    assert len(list(home.parent.glob("outside-*.txt"))) >= 2 + 3
    ended = run(home, *SMALL, "--writable", str(home.parent), *program("outside"), str(home.parent / "shared.txt"))
    assert ended.returncode == 0, ended.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda number: number.name)
@pytest.mark.parametrize("after_seconds", [0.0, 3.0])
def test_interrupted_itself_it_leaves_nothing(home: Path, number: signal.Signals, after_seconds: float) -> None:
    environment = {**os.environ, "TMPDIR": str(home.parent / "copies"), "MARK": str(home)}
    rehearsal = subprocess.Popen(
        command("--trials", "50", "--parallel", "4", *program("leaves_children")),
        cwd=home, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    until = time.monotonic() + 60
    while not list((home.parent / "copies").iterdir()) and time.monotonic() < until:
        time.sleep(0.01)
    time.sleep(after_seconds)
    rehearsal.send_signal(number)
    out, err = rehearsal.communicate(timeout=60)
    assert rehearsal.returncode == 128 + number, err
    assert out == ""
    assert processes_with(f"MARK={home}") == []


def processes_with(variable: str) -> list[int]:
    """Everything that was started with this in its environment and still runs."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                if variable.encode() in Path("/proc", name, "environ").read_bytes().split(b"\0"):
                    found.append(int(name))
            except OSError:
                continue
    return found


@pytest.mark.parametrize("name", ["right_by_hand", "torn_checkpoint", "exits_zero"])
def test_without_a_namespace_the_verdict_is_the_same(home: Path, name: str) -> None:
    codes = {"right_by_hand": [], "torn_checkpoint": ["resume-crash"], "exits_zero": ["exit-zero-unfinished"]}
    ended = run(home, *SMALL, "--no-namespace", "--compare", "result.txt", "--json", *program(name))
    told = json.loads(ended.stdout)
    assert [reason["code"] for reason in told["reasons"]] == codes[name], told["reasons"]
    assert told["pid_namespace"] is False


def test_a_wrapper_hides_the_signal_without_a_namespace_too(home: Path) -> None:
    line = f"STEPS=60 {sys.executable} right_by_hand.py; echo done"
    options = ("--trials", "2", "--kills", "1", "--grace", "0.4", "--no-namespace", "--kinds", "term")
    ended = run(home, *options, "--compare", "result.txt", "--json", "--", "sh", "-c", line)
    assert [reason["code"] for reason in json.loads(ended.stdout)["reasons"]] == ["grace-overrun"], ended


def test_as_an_ordinary_user(as_nobody) -> None:
    for name in ("right_by_hand.py", "torn_checkpoint.py"):
        shutil.copy(PROGRAMS / name, as_nobody.folder)
    for name, codes in (("right_by_hand", []), ("torn_checkpoint", ["resume-crash"])):
        ended = as_nobody(
            "-m", "stayfast", "rehearse", *SMALL, "--compare", "result.txt", "--json",
            "--", as_nobody.python, f"{name}.py",
        )  # fmt: skip
        told = json.loads(ended.stdout)
        assert [reason["code"] for reason in told["reasons"]] == codes, told
        assert told["watched"] == "system calls"
    ended = as_nobody(
        "-m", "stayfast", "rehearse", *SMALL, "--no-namespace", "--compare", "result.txt", "--json",
        "--", as_nobody.python, "torn_checkpoint.py",
    )  # fmt: skip
    told = json.loads(ended.stdout)
    assert [reason["code"] for reason in told["reasons"]] == ["resume-crash"], told
    assert (told["pid_namespace"], told["watched"]) == (False, "system calls")


def test_an_absolute_ephemeral_directory(home: Path) -> None:
    scratch = home.parent / "scratch"
    text = f"""
import os, signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: sys.exit(75))
os.makedirs({str(scratch)!r}, exist_ok=True)
assert os.listdir({str(scratch)!r}) == []
open({str(scratch / "here")!r}, "w").close()
time.sleep(0.1)
open("out", "w").close()
"""
    options = ("--trials", "2", "--compare", "out", "--ephemeral", str(scratch), "--json")
    ended = run(home, *options, "--", sys.executable, "-c", text)
    assert codes(ended) <= {"no-progress"}, ended.stdout  # it keeps nothing, and an assertion would be a crash
    assert list(scratch.iterdir()) == []


def test_large_files_are_shared_until_they_are_written(home: Path) -> None:
    data = home / "data.bin"
    data.write_bytes(b"a" * (3 << 20))
    text = "import os; f = open('data.bin', 'r+b'); f.write(b'changed'); f.close(); os.stat('data.bin').st_size"
    ended = run(home, *SMALL, "--compare", "data.bin", "--", sys.executable, "-c", text)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert data.read_bytes()[:7] == b"a" * 7, "the original is as it was"


def test_the_pod_has_another_name_each_time_and_its_scratch_space_is_empty(home: Path) -> None:
    text = """
import os, socket, tempfile, time
assert os.listdir(tempfile.gettempdir()) == []
open(os.path.join(tempfile.gettempdir(), "x"), "w").close()
open("names", "a").write(os.environ["HOSTNAME"] + chr(10))
time.sleep(0.3)
names = open("names").read().split()
assert len(names) == len(set(names)), names
"""
    ended = run(home, "--trials", "2", "--kinds", "kill", "--json", "--", sys.executable, "-c", text)
    assert codes(ended) <= {"no-progress"}, ended.stdout
    assert json.loads(ended.stdout)["kills"] >= 2


HANGS = """
import os, socket, time
print("connecting", flush=True)
time.sleep(float(os.environ["HANG"]))
open("result.txt", "w").write("x")
"""
SOON = """
import sys
import stayfast.proof.rehearse.slow_baseline as slowness
slowness.FIRST_SECONDS = 2.0
from stayfast.cli.main import main
sys.exit(main(sys.argv[1:]))
"""


def test_a_baseline_that_hangs_is_reported_while_it_runs(home: Path) -> None:
    (home / "hangs.py").write_text(HANGS)
    environment = {**os.environ, "TMPDIR": str(home.parent / "copies"), "HANG": "600"}
    rehearsal = subprocess.Popen(
        [sys.executable, "-c", SOON, "rehearse", "--parallel", "1", *program("hangs")],
        cwd=home, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert rehearsal.stderr is not None
    first, second = rehearsal.stderr.readline(), rehearsal.stderr.readline()
    rehearsal.send_signal(signal.SIGINT)
    rehearsal.communicate(timeout=60)
    for line in (first, second):
        assert line.startswith("stayfast: baseline, run 1 of 2: "), line
        assert "1 process; " in line
        assert "s ago: connecting" in line
    assert "hangs.py) waits" in second
    assert "try --no-namespace" in second


def test_a_baseline_is_described_by_the_time_it_takes_ten_times_as_long(tmp_path: Path) -> None:
    """For a program of any length from a second on: the first line after 10 s, the next after twice as long."""
    (tmp_path / "log").touch()
    attempt = SimpleNamespace(age_seconds=0.0, program=SimpleNamespace(tree=list), log=str(tmp_path / "log"))
    lines: list[str] = []
    slow = SlowBaseline("baseline", attempt, lines.append)
    for age in range(200):
        attempt.age_seconds = age
        slow.tick()
    assert [line.split(" so far")[0] for line in lines] == [f"baseline: {age} s" for age in (10, 20, 40, 80, 160)]


def test_a_baseline_that_works_for_long_is_no_hang(home: Path) -> None:
    text = "import time\nend = time.monotonic() + 12\nwhile time.monotonic() < end: sum(range(10000))\n"
    (home / "works.py").write_text(text)
    environment = {**os.environ, "TMPDIR": str(home.parent / "copies")}
    words = [sys.executable, "-c", SOON, "rehearse", "--parallel", "1", "--trials", "1", "--kills", "1"]
    rehearsal = subprocess.Popen(
        [*words, *program("works")],
        cwd=home, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert rehearsal.stderr is not None
    line = rehearsal.stderr.readline()
    rehearsal.send_signal(signal.SIGINT)
    rehearsal.communicate(timeout=60)
    assert "no output" in line
    assert "--no-namespace" not in line
