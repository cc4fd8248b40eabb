"""``stayfast exec --sync`` around real programs: restarts on empty disks, notices, kills, outages, two at once."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from mirrored import until
from runtime_children import STAYFAST, Child, environment, held

from faults.counts import record
from servers.bucket_server import BucketServer

BASH = """
n=$(cat ckpt/n 2>/dev/null || echo 0)
echo "start $n"
while [ "$n" -lt 120 ]; do
  n=$((n + 1)); echo "$n" > ckpt/n.tmp && mv ckpt/n.tmp ckpt/n
  sleep 0.05
done
echo "done $n" > ckpt/result; touch ckpt/DONE
"""
PERL = """
use strict; $| = 1;
my $stop = 0; $SIG{TERM} = sub { $stop = 1 };
my $n = 0;
if (open(my $f, '<', 'ckpt/state')) { $n = <$f>; close $f }
print "start $n\\n";
while ($n < 120 && !$stop) {
  $n++;
  open(my $f, '>', 'ckpt/state.tmp') or die; print $f $n; close $f; rename 'ckpt/state.tmp', 'ckpt/state';
  select(undef, undef, undef, 0.05);
}
exit 75 if $stop;
open(my $f, '>', 'ckpt/result') or die; print $f "done $n\\n"; close $f; open($f, '>', 'ckpt/DONE'); close $f;
"""


def start(work: Path, url: str, *command: str, options: tuple[str, ...] = (), **variables: object) -> Child:
    """One pod: a fresh working directory whose ``ckpt`` is kept under the URL."""
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir()
    words = [*STAYFAST, "exec", "--sync", f"ckpt={url}", *options, "--", *command]
    variables.setdefault("TMPDIR", work.parent)  # a killed exec leaves its outcome directory there
    return Child(words, environment(**variables), cwd=work, start_new_session=True)


@pytest.mark.parametrize("language", ["bash", "perl"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_program_that_knows_nothing_of_buckets_ends_right(language: str, number: int, tmp_path: Path) -> None:
    """Pod after pod is taken away, each on an empty disk; a SIGKILL takes the whole pod."""
    if shutil.which(language) is None:
        pytest.skip(f"no {language}")
    program = {"bash": ["bash", "-c", BASH], "perl": ["perl", "-e", PERL]}[language]
    url, work = f"file://{tmp_path}/store", tmp_path / "pod"
    starts = []
    for life in range(4):
        child = start(work, url, *program, options=("--done-file", "ckpt/DONE"))
        starts.append(int(child.wait_for("start").split()[1]))
        if life < 2:
            time.sleep(3.0)
            if number == signal.SIGKILL:
                os.killpg(child.pid, signal.SIGKILL)
            else:
                child.send()
        ended = child.end()
        code = ended.code
        if code == 0:
            break
        assert code == (-9 if number == signal.SIGKILL else 75)
        if number == signal.SIGTERM:
            assert ended.report["attempt"] == life + 1, "the store counts the attempts"
    assert code == 0
    assert (work / "ckpt" / "result").read_text() == "done 120\n"
    assert starts == sorted(starts)
    assert starts[-1] > 0


def test_a_sigterm_in_the_middle_of_a_save_gives_the_program_its_grace_and_copies_the_result(tmp_path: Path) -> None:
    program = """
import signal, sys, time
def save(*_):
    with open("ckpt/model", "wb") as file:
        for _ in range(20):
            file.write(b"m" * 50_000)
            time.sleep(0.05)
    sys.exit(75)
signal.signal(signal.SIGTERM, save)
print("ready", flush=True)
time.sleep(60)
"""
    child = start(tmp_path / "pod", f"file://{tmp_path}/store", sys.executable, "-c", program)
    child.wait_for("ready")
    child.send()
    ended = child.end()
    assert ended.code == 75
    assert ended.report["saved"] == "ckpt: copy 0"
    child = start(tmp_path / "pod", f"file://{tmp_path}/store", "stat", "-c", "%s", "ckpt/model")
    assert child.end().out == "1000000\n"


def test_a_program_that_dies_of_the_signal_leaves_no_half_file_in_the_copy(tmp_path: Path) -> None:
    script = "echo whole > ckpt/a; sleep 1.3; exec 3> ckpt/torn; echo half >&3; echo ready; sleep 60 & wait"
    child = start(tmp_path / "pod", f"file://{tmp_path}/store", "bash", "-c", script)
    child.wait_for("ready")
    child.send()
    assert child.end().code == 75
    child = start(tmp_path / "pod", f"file://{tmp_path}/store", "ls", "ckpt")
    assert child.end().out.split() == ["a"]


def test_the_last_copy_never_takes_longer_than_there_is(tmp_path: Path, bucket_server: BucketServer) -> None:
    variables = {"STORAGE_EMULATOR_HOST": bucket_server.url, "STAYFAST_GRACE_SECONDS": 3}
    script = "trap 'head -c 3000000 /dev/urandom > ckpt/model; exit 75' TERM; echo ready; sleep 60 & wait"
    child = start(tmp_path / "pod", "gs://bucket/run", "bash", "-c", script, **variables)
    child.wait_for("ready")
    bucket_server.arm("stall", op="put", times=1000, seconds=60)
    child.send()
    ended = child.end()
    assert ended.code == 75
    assert ended.seconds < 3
    assert [name for name in bucket_server.names() if "inventory" in name] == []


def test_an_outage_is_told_once_and_the_program_goes_on(tmp_path: Path, bucket_server: BucketServer) -> None:
    variables = {"STORAGE_EMULATOR_HOST": bucket_server.url}
    script = (
        "echo up; while [ ! -e ckpt/stop ]; do date +%N > ckpt/t.tmp; mv ckpt/t.tmp ckpt/t; sleep 0.2; done; exit 0"
    )
    child = start(tmp_path / "pod", "gs://bucket/run", "bash", "-c", script, **variables)
    child.wait_for("up")
    until(lambda: any("inventory" in name for name in bucket_server.names()))
    bucket_server.arm("503", op="put", times=100_000)
    until(lambda: "could not be copied" in "".join(child._errors), 40)
    assert child.process.poll() is None
    bucket_server.calm()
    (tmp_path / "pod" / "ckpt" / "stop").touch()
    ended = child.end(60)
    assert ended.code == 0
    assert ended.err.count("could not be copied") == 1
    assert "is copied again" in ended.err


def test_lost_answers_never_lose_or_invent_a_copy(tmp_path: Path, bucket_server: BucketServer) -> None:
    """Every way of losing a request or its answer, on parts, inventories and HEAD.json."""
    variables = {"STORAGE_EMULATOR_HOST": bucket_server.url}
    kinds = ["apply_drop", "lose_request", "apply_503", "apply_reset", "reset", "503", "429"]
    for number, kind in enumerate(kinds):
        for name in ("HEAD", "part", "inventory"):
            bucket_server.arm(kind, op="put", name=name)
        script = f"cat ckpt/n 2>/dev/null; echo {number} > ckpt/n"
        ended = start(tmp_path / "pod", "gs://bucket/run", "bash", "-c", script, **variables).end(60)
        assert ended.code == 0, ended.err
        assert ended.out == (f"{number - 1}\n" if number else "")
        bucket_server.calm()
    injected = sum(bucket_server.injected.values())
    assert injected >= 2 * len(kinds)
    record("sync-answers", injected=injected)


def test_the_attempt_that_was_replaced_stops_and_says_so(tmp_path: Path) -> None:
    """The replacement runs while the old pod still does: the old one copies nothing any more and leaves with 75."""
    url = f"file://{tmp_path}/store"
    script = "echo up; i=0; while :; do i=$((i+1)); echo $0 $i > ckpt/t; mv ckpt/t ckpt/n; sleep 0.1; done"
    old = start(tmp_path / "old", url, "bash", "-c", script, "old")
    old.wait_for("up")
    until((tmp_path / "store" / "checkpoints").exists)
    new = start(tmp_path / "new", url, "bash", "-c", script, "new")
    new.wait_for("up")
    ended = old.end(30)
    assert ended.code == 75
    assert ended.report["cause"] == "superseded"
    assert "another attempt of this run took over" in ended.err
    new.send()
    assert new.end().code == 75
    last = start(tmp_path / "last", url, "cat", "ckpt/n")
    assert last.end().out.startswith("new")


def test_a_finished_program_is_not_finished_before_its_files_are_safe(tmp_path: Path) -> None:
    """The store takes nothing any more: 0 would tell the Job that all is well."""
    program = """
import sys
from stayfast.cli.main import main
from stayfast.runtime.exec import synced_directories as sync
sync.SyncedDirectories.patience_seconds = 1.0
sys.exit(main(sys.argv[1:]))
"""
    pod = tmp_path / "pod"
    (pod / "ckpt").mkdir(parents=True)
    store = tmp_path / "store"
    script = f"rm -rf {store}/checkpoints; touch {store}/checkpoints; echo x > ckpt/a"
    words = [sys.executable, "-c", program, "exec", "--sync", f"ckpt=file://{store}", "--", "sh", "-c", script]
    ended = Child(words, environment(), cwd=pod).end()
    assert ended.code == 75
    assert "the last copy of ckpt is not in" in ended.report["detail"]


def test_a_notice_during_the_restore_leaves_at_once(tmp_path: Path, bucket_server: BucketServer) -> None:
    variables = {"STORAGE_EMULATOR_HOST": bucket_server.url}
    start(tmp_path / "pod", "gs://bucket/run", "sh", "-c", "echo x > ckpt/a", **variables).end()
    bucket_server.arm("stall", op="get", name="part", times=1000, seconds=60)
    child = start(tmp_path / "pod", "gs://bucket/run", "echo", "started", **variables)
    until(lambda: bucket_server.injected["stall"])
    child.send()
    ended = child.end()
    assert ended.code == 75
    assert ended.seconds < 5
    assert "started" not in ended.out
    assert "before the program was started" in ended.report["detail"]


def test_several_directories_each_with_a_url_of_its_own(tmp_path: Path) -> None:
    def run(*command: str) -> str:
        pairs = [f"--sync={name}=file://{tmp_path}/store-{name}" for name in ("a", "b")]
        work = tmp_path / "pod"
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir()
        ended = Child([*STAYFAST, "exec", *pairs, "--", *command], environment(), cwd=work).end()
        assert ended.code == 0, ended.err
        return ended.out

    run("sh", "-c", "echo one > a/x; echo two > b/x")
    assert run("cat", "a/x", "b/x") == "one\ntwo\n"


@pytest.mark.parametrize(
    ("pairs", "words"),
    [
        (["ckpt"], "is not DIR=URL"),
        (["=gs://b/r"], "is not DIR=URL"),
        (["ckpt=ftp://x/y"], "no known scheme"),
        (["ckpt=gs://bucket/r?x=1"], "query or fragment"),
        (["ckpt=file:///tmp/x/{index}"], "JOB_COMPLETION_INDEX"),
        (["a=file:///tmp/sf-x", "a/b=file:///tmp/sf-y"], "lie in each other"),
        (["a=file:///tmp/sf-x", "b=file:///tmp/sf-x/"], "the same URL"),
        (["/etc/hostname=file:///tmp/sf-x"], "is not a directory"),
        (["/tmp/sf-dir=file:///tmp/sf-dir/inner"], "lies inside"),
    ],
)
def test_what_makes_no_sense_is_refused_before_anything_starts(pairs: list[str], words: str, tmp_path: Path) -> None:
    options = [word for pair in pairs for word in ("--sync", pair)]
    ended = Child([*STAYFAST, "exec", *options, "--", "echo", "ran"], environment(), cwd=tmp_path).end()
    assert ended.code == 2
    assert words in ended.err
    assert ended.err.count("\n") == 1
    assert ended.out == ""
    assert held("exec", "--sync-keep", "0", "--sync", "a=file:///tmp/sf-x", "--", "true").end().code == 2


def test_a_bucket_that_does_not_exist_is_a_failure_and_one_that_is_away_is_not(
    tmp_path: Path, bucket_server: BucketServer
) -> None:
    variables = {"STORAGE_EMULATOR_HOST": bucket_server.url}
    ended = start(tmp_path / "pod", "gs://nowhere/run", "echo", "ran", **variables).end(60)
    assert ended.code == 1
    assert "the program was not started" in ended.report["detail"]
    assert "ran" not in ended.out
    program = (
        "import sys; from stayfast.runtime.exec import synced_directories as sync; sync.BEGIN_SECONDS = 0; "
        "from stayfast.cli.main import main"
    )
    words = [sys.executable, "-c", f"{program}; sys.exit(main(sys.argv[1:]))", "exec"]
    words += ["--sync", "ckpt=gs://bucket/run", "--", "echo", "ran"]
    away = environment(STORAGE_EMULATOR_HOST="http://127.0.0.1:9")
    ended = Child(words, away, cwd=tmp_path).end(120)
    assert ended.code == 75
    assert "ran" not in ended.out
    assert "the program was not started" in ended.report["detail"]


def test_a_hundred_kills_in_the_middle_of_uploads(tmp_path: Path) -> None:
    """See ``kill_loop.py``: writer and mirror die together, and what comes back was finished."""
    seed = int(os.environ.get("STAYFAST_SEED") or random.SystemRandom().getrandbits(31))
    print("seed", seed)
    script = Path(__file__).with_name("kill_loop.py")
    for url, kills, more in ((f"file://{tmp_path}/s1", 100, []), (f"file://{tmp_path}/s2", 15, ["--stay"])):
        words = [sys.executable, str(script), url, str(tmp_path), str(kills), str(seed), *more]
        ended = subprocess.run(words, env=environment(), capture_output=True, text=True, timeout=240)
        assert ended.returncode == 0, ended.stderr[-3000:]
        result = json.loads(ended.stdout.splitlines()[-1])
        assert result["kills"] == kills
        assert result["reached"] > 0, "nothing was ever committed: the run is void"
        record("sync-kills", injected=kills)


def test_an_ordinary_exec_loads_nothing_of_it() -> None:
    program = (
        "import sys; bare = set(sys.modules); "  # what the interpreter's own site loads is not ours
        "from stayfast.cli.main import main; main(['exec', '--', 'true']); new = set(sys.modules) - bare; "
        "print([name for name in new if 'mirror' in name or name in ('logging', 'threading', 'dataclasses')])"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program], env=environment(), capture_output=True, text=True, timeout=30, check=True
    )
    assert ended.stdout.strip() == "[]"
