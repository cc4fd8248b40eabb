"""A program is started like a container's first process, and nothing of it outlives it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from stayfast.process.container import ContainedProgram, ContainerOptions, InitServer, start_contained
from stayfast.process.proc import signal_disposition
from stayfast.process.tree import descendants_of, send_signal

WITH_OR_WITHOUT = pytest.mark.parametrize("namespace", [True, False], ids=["namespace", "session"])

HANDLES = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: (print("told", flush=True), sys.exit(75)))
print(os.getpid(), flush=True)
time.sleep(60)
"""

TWO_ON_ONE_CORE = """
import os, time
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
other = os.fork()
until = time.process_time() + 0.5
while time.process_time() < until:
    pass
if other:
    os.waitpid(other, 0)
"""


@pytest.fixture(params=["own", "forked"])
def begin(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[object]:
    open_ones: list[ContainedProgram] = []
    keepers = InitServer() if request.param == "forked" else None

    def go(*command: str, **options: object) -> ContainedProgram:
        wish = ContainerOptions(**options)
        with (tmp_path / "out").open("ab") as out:
            one = start_contained(
                command, cwd=tmp_path, env=os.environ, stdout=out, stderr=out, options=wish, keepers=keepers
            )
        open_ones.append(one)
        return one

    yield go
    for one in open_ones:
        one.close()
    if keepers is not None:
        keepers.close()


def until(condition: object, seconds: float = 20.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "did not happen in time"
        time.sleep(0.01)


def alive(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[0] not in (b"Z", b"X")
    except OSError:
        return False


@WITH_OR_WITHOUT
def test_a_handled_signal_arrives_and_the_code_comes_back(begin, tmp_path: Path, namespace: bool) -> None:
    one = begin(sys.executable, "-c", HANDLES, namespace=namespace)
    until(lambda: signal_disposition(one.pid, signal.SIGTERM) == "handler" and (tmp_path / "out").read_text())
    if one.namespace:
        assert (tmp_path / "out").read_text().split()[0] == "1"
    assert one.signal(signal.SIGTERM)
    assert one.wait(20.0) == 75
    assert "told" in (tmp_path / "out").read_text()


@pytest.mark.skipif(
    not os.path.exists("/proc/self/schedstat"), reason="this kernel does not count who waits for a core"
)
@WITH_OR_WITHOUT
def test_how_long_it_waited_for_a_core_is_told(begin, namespace: bool) -> None:
    """Two who want all of one core have half of it each."""
    one = begin(sys.executable, "-c", TWO_ON_ONE_CORE, namespace=namespace)
    began = time.monotonic()
    assert one.wait(60.0) == 0
    assert 0.15 < one.waited_seconds < time.monotonic() - began


@WITH_OR_WITHOUT
def test_a_signal_without_a_handler_does_not_reach_pid_1(begin, namespace: bool) -> None:
    one = begin("sleep", "60", namespace=namespace)
    assert not one.signal(signal.SIGTERM)
    assert one.wait(0.3) is None
    one.kill_all()
    assert one.wait(20.0) == -signal.SIGKILL


@WITH_OR_WITHOUT
def test_what_was_left_in_the_background_ends_with_the_first_process(begin, namespace: bool) -> None:
    one = begin("bash", "-c", "sleep 61 & (setsid sleep 62 &) ; sleep 0.3", namespace=namespace)
    until(lambda: len(descendants_of(one.pid)) >= 2 or one.poll() is not None)
    tree = one.tree()
    assert one.wait(20.0) == 0
    until(lambda: not any(alive(pid) for pid in tree))


@WITH_OR_WITHOUT
def test_frozen_processes_stand_still_until_thawed(begin, tmp_path: Path, namespace: bool) -> None:
    text = "i=0; while :; do i=$((i+1)); echo $i > count; sleep 0.01; done"
    one = begin("bash", "-c", text, namespace=namespace)
    count = tmp_path / "count"
    until(lambda: count.exists() and count.read_text() > "1")
    one.pause()
    time.sleep(0.1)
    before = count.read_text()
    time.sleep(0.2)
    assert count.read_text() == before
    one.resume()
    until(lambda: count.read_text() not in ("", before))


@pytest.mark.parametrize("keepers", ["None", "InitServer()"])
@WITH_OR_WITHOUT
def test_everything_ends_when_the_starter_is_killed(tmp_path: Path, namespace: bool, keepers: str) -> None:
    program = f"""
import os, time
from stayfast.process.container import InitServer, ContainerOptions, start_contained
wish = ContainerOptions(namespace={namespace})
one = start_contained(["bash", "-c", "sleep 63 & sleep 64"], cwd=".", env=os.environ, options=wish, keepers={keepers})
while len(one.tree()) < 3: time.sleep(0.01)
print(*one.tree(), flush=True)
time.sleep(60)
"""
    starter = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, cwd=tmp_path)
    assert starter.stdout is not None
    tree = [int(word) for word in starter.stdout.readline().split()]
    assert len(tree) == 3
    starter.kill()
    starter.wait()
    until(lambda: not any(alive(pid) for pid in tree))


def test_a_keeper_gives_its_program_the_folder_the_environment_and_the_streams(tmp_path: Path) -> None:
    folder, out, err = tmp_path / "földer", tmp_path / "out", tmp_path / "err"
    folder.mkdir()
    text = "pwd -P; echo $ODD >&2; cat; echo $(ls /proc/self/fd)"
    environment = {"PATH": os.environ["PATH"], "ODD": "a\udcffb"}
    keepers = InitServer()
    with out.open("wb") as stdout, err.open("wb") as stderr:
        one = start_contained(
            ["sh", "-c", text], cwd=folder, env=environment, stdout=stdout, stderr=stderr, keepers=keepers
        )
    assert one.wait(20.0) == 0
    one.close()
    where, descriptors = out.read_text().splitlines()
    assert where == os.path.realpath(folder)
    assert descriptors == "0 1 2 3", "nothing of ours is left open in the program"
    assert err.read_bytes() == b"a\xffb\n"
    gone = start_contained(["true"], cwd=tmp_path / "nowhere", env=environment, keepers=keepers)
    assert gone.start_error == 2
    gone.close()
    keepers.close()


def test_a_command_that_is_not_there_says_so(begin) -> None:
    one = begin("/no/such/program")
    assert one.wait(20.0) == 127
    assert one.start_error == 2


def test_the_host_name_is_the_pods(begin, tmp_path: Path) -> None:
    one = begin(sys.executable, "-c", "import socket; print(socket.gethostname())", hostname="trainer-2")
    if not one.namespace:
        pytest.skip(f"no namespace: {one.namespace_refusal}")
    assert one.wait(20.0) == 0
    assert (tmp_path / "out").read_text().strip() == "trainer-2"


HOST_ADDRESSES = """
import os, socket
name = socket.gethostname()
for family in (socket.AF_INET, socket.AF_INET6)[: 1 + os.path.exists("/proc/net/if_inet6")]:
    with socket.create_server((name, 0), family=family) as served:
        socket.create_connection((name, served.getsockname()[1]), timeout=20).close()
print(name, socket.getfqdn(), socket.gethostbyname("localhost"))
print(os.listdir(os.environ.get("TMPDIR", ".")))
"""


def test_the_host_name_has_an_address(begin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a pod: launchers connect to the name of their own host."""
    (tmp_path / "scratch").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "scratch"))
    before = Path("/etc/hosts").read_bytes(), Path("/proc/self/mountinfo").read_text()
    one = begin(sys.executable, "-c", HOST_ADDRESSES, hostname="trainer-2")
    if not one.namespace:
        pytest.skip(f"no namespace: {one.namespace_refusal}")
    assert one.wait(60.0) == 0, (tmp_path / "out").read_text()
    assert (tmp_path / "out").read_text().splitlines() == ["trainer-2 trainer-2 127.0.0.1", "[]"]
    after = Path("/etc/hosts").read_bytes(), Path("/proc/self/mountinfo").read_text()
    assert after == before, "nothing is mounted outside of the namespace"


def test_without_a_namespace_the_host_name_stays_the_machines(begin, tmp_path: Path) -> None:
    text = "import socket; print(socket.gethostname())"
    one = begin(sys.executable, "-c", text, hostname="trainer-2", namespace=False)
    assert one.wait(20.0) == 0
    assert (tmp_path / "out").read_text().strip() == os.uname().nodename


def test_the_host_name_of_an_ordinary_user_has_an_address(as_nobody) -> None:
    program = f"""
import os, sys
from stayfast.process.container import ContainerOptions, start_contained
wish = ContainerOptions(hostname="trainer-2")
os.environ["TMPDIR"] = sys.argv[1]
one = start_contained([sys.executable, "-c", {HOST_ADDRESSES!r}], cwd=".", env=os.environ, options=wish)
print(one.wait(60), one.namespace, one.namespace_refusal)
"""
    (as_nobody.folder / "scratch").mkdir()
    (as_nobody.folder / "scratch").chmod(0o777)
    ended = as_nobody("-c", program, str(as_nobody.folder / "scratch"))
    if " True None" not in ended.stdout:
        pytest.skip(f"no namespace: {ended.stdout}")
    assert ended.stdout.splitlines() == ["trainer-2 trainer-2 127.0.0.1", "[]", "0 True None"], ended


def test_an_ordinary_user_gets_a_namespace_or_a_reason(as_nobody) -> None:
    program = """
import os, sys
from stayfast.process.container import start_contained
one = start_contained(["sh", "-c", "echo $$ > mine; id -u > who"], cwd=".", env=os.environ)
print(one.wait(20), one.namespace, one.namespace_refusal)
"""
    ended = as_nobody("-c", program)
    assert ended.stdout.startswith("0 "), ended
    assert (as_nobody.folder / "who").read_text().strip() == "65534"
    if " True None" in ended.stdout:
        assert (as_nobody.folder / "mine").read_text().strip() == "1"


@pytest.mark.parametrize("why_not", ["None", "'not allowed'"], ids=["namespace", "session"])
@pytest.mark.parametrize("deed", ["kill_now", "pause", "resume", "kill_all"])
def test_a_program_without_a_number_costs_its_starter_nothing(deed: str, why_not: str) -> None:
    """A keeper that was refused its namespace never names a process, and 0 is the starter's own group."""
    program = f"""
import socket
from stayfast.process.container import ContainedProgram
ours, theirs = socket.socketpair()
ContainedProgram(None, ours, namespace_refusal={why_not}).{deed}()
print("alive")
"""
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, start_new_session=True, check=False
    )
    assert (ended.stdout.strip(), ended.returncode) == ("alive", 0), ended.stderr


def test_no_signal_goes_to_a_group() -> None:
    for number in (0, -1, -os.getpid()):
        with pytest.raises(ValueError, match="no process"):
            send_signal(number, signal.SIGCONT)
