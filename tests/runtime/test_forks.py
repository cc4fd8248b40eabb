"""A forked child holds nothing of ours: no lock, no descriptor, no lock of a thread that it does not have."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from runtime_children import python

from stayfast.filesystem import SystemFS
from stayfast.forks import add_descriptor, close_descriptor, forks_held_off

RUNS = int(os.environ.get("STAYFAST_FORK_RUNS", "2"))


@contextmanager
def forked_child() -> Iterator[None]:
    """A child of this process that lives until the block ends."""
    told, tell = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(tell)
        os.read(told, 1)
        os._exit(0)
    os.close(told)
    try:
        yield
    finally:
        os.close(tell)
        os.waitpid(pid, 0)


TRY_LOCK = """
import fcntl, os, sys
fd = os.open(sys.argv[1], os.O_RDONLY)
try:
    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    print("free")
except BlockingIOError:
    print("held")
"""

LOCK_AND_FORK = """
    import os, sys, time
    from stayfast.filesystem import SystemFS
    with SystemFS().lock(sys.argv[1], timeout_seconds=1.0):
        pid = os.fork()
        if pid == 0:
            time.sleep(20)
            os._exit(0)
        print("forked", pid, flush=True)
        time.sleep(20)
"""


def tried(folder: Path) -> str:
    ended = subprocess.run([sys.executable, "-c", TRY_LOCK, str(folder)], capture_output=True, text=True, timeout=30)
    return ended.stdout.strip()


def test_a_fork_takes_the_lock_from_nobody(tmp_path: Path) -> None:
    with SystemFS().lock(str(tmp_path), timeout_seconds=1.0), forked_child():
        assert tried(tmp_path) == "held"
    assert tried(tmp_path) == "free"


@pytest.mark.parametrize("inside", [True, False])
def test_a_child_lets_the_lock_go(tmp_path: Path, inside: bool) -> None:
    """With its parent killed inside the lock, or after its parent has left the lock."""
    source = LOCK_AND_FORK
    if not inside:
        source = source.replace('        print("forked"', '    if True:\n        print("forked"')
    holder = python(source, str(tmp_path))
    child = int(holder.wait_for("forked").split()[1])
    try:
        if inside:
            holder.send(signal.SIGKILL)
            holder.process.wait(20)
        assert tried(tmp_path) == "free"
    finally:
        os.kill(child, signal.SIGKILL)
        holder.process.kill()
        holder.process.wait(20)


DESCRIPTORS = """
    import os, sys, time
    import stayfast
    from stayfast.runtime.checkpoint.policies import EverySteps

    def descriptors():
        paths = [f"/proc/self/fd/{number}" for number in os.listdir("/proc/self/fd")]
        return {(path, os.readlink(path)) for path in paths if os.path.lexists(path)}

    def from_child():
        told, tell = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(told)
            held = {(path, to) for path, to in descriptors() if path != f"/proc/self/fd/{tell}"}
            os.write(tell, repr(sorted(held - before)).encode())
            with stayfast.run(None, 1) as own:  # neither is the parent's run open here, nor a lock of its threads
                list(own.steps())
            os._exit(0)
        os.close(tell)
        found = b""
        while part := os.read(told, 65536):
            found += part
        os.close(told)
        assert os.waitpid(pid, 0)[1] == 0
        return eval(found)

    state = {"w": b"x" * (4 << 20)}
    before = descriptors()
    with stayfast.run(sys.argv[1], 60, cadence=EverySteps(1)) as run:
        run.track(state=(lambda: state, state.update))
        for step in run.steps():
            state["w"] = os.urandom(4 << 20)  # a save is nearly always in flight
            held = from_child()
            assert not held, held
    print("done")
"""


def test_a_child_has_no_descriptor_of_ours_and_can_open_a_run_of_its_own(tmp_path: Path) -> None:
    ended = python(DESCRIPTORS, f"file://{tmp_path}/run", STAYFAST_METRICS_PORT=free_port()).end(120)
    assert ended.code == 0, ended.err
    assert "done" in ended.out


def test_a_fork_waits_for_a_file_that_is_being_opened(tmp_path: Path) -> None:
    """The descriptor exists before the call that opens it returns: a fork in between would leave it in the child."""
    is_open, may_register, found = threading.Event(), threading.Event(), []

    def open_slowly() -> None:
        with forks_held_off():
            fd = os.open(tmp_path, os.O_RDONLY)
            is_open.set()
            may_register.wait(10)
            found.append(add_descriptor(fd))

    opener = threading.Thread(target=open_slowly)
    opener.start()
    assert is_open.wait(10)
    threading.Timer(0.2, may_register.set).start()
    pid = os.fork()
    if pid == 0:
        os._exit(0 if found and not os.path.lexists(f"/proc/self/fd/{found[0]}") else 3)
    opener.join()
    close_descriptor(found[0])
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


BUSY_THREAD = """
    import os, sys, threading
    from stayfast.filesystem import SystemFS

    folder, over, counted = sys.argv[1], threading.Event(), []

    def work():
        fs = SystemFS()
        while not over.is_set():
            fs.listdir(folder)
            fs.close(fs.open(folder + "/some"))
            fs.fsync_dir(folder)
            counted.append(1)

    def ours():
        found = []
        for number in os.listdir("/proc/self/fd"):
            try:
                to = os.readlink("/proc/self/fd/" + number)
            except FileNotFoundError:  # the listing itself
                continue
            found += [to] if to.startswith(folder) else []
        return found

    open(folder + "/some", "w").close()
    worker = threading.Thread(target=work)
    worker.start()
    held = []
    for _ in range(150):
        pid = os.fork()
        if pid == 0:
            os._exit(len(ours()))
        held.append(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
    over.set()
    worker.join()
    assert len(counted) > 150, len(counted)  # it was busy all the time
    print("held by", sum(map(bool, held)), "children")
"""


def test_children_forked_beside_a_busy_thread_hold_no_file_of_its(tmp_path: Path) -> None:
    """A thread lists, opens and closes files through the file system while the main thread forks."""
    (tmp_path / "files").mkdir()
    for number in range(200):  # a listing that takes a while
        (tmp_path / "files" / str(number)).touch()
    ended = python(BUSY_THREAD, str(tmp_path / "files")).end(120)
    assert ended.code == 0, ended.err
    assert ended.out == "held by 0 children\n"


def test_a_file_system_that_hangs_stops_no_fork() -> None:
    is_inside, over = threading.Event(), threading.Event()

    def hang() -> None:
        with forks_held_off():
            is_inside.set()
            over.wait(30)

    hanging = threading.Thread(target=hang)
    hanging.start()
    assert is_inside.wait(10)
    pid = os.fork()
    if pid == 0:
        with forks_held_off():  # free here, although its holder was not copied
            os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert hanging.is_alive()
    over.set()
    hanging.join()
    with forks_held_off():
        pass


def free_port() -> int:
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


LOADERS = """
    import sys, torch
    from torch.utils.data import DataLoader, TensorDataset
    import stayfast
    from stayfast.runtime.checkpoint.policies import EverySteps

    torch.set_num_threads(1)
    model, data, kept = torch.nn.Linear(64, 64), TensorDataset(torch.randn(32, 64)), []
    with stayfast.run(sys.argv[1], 24, cadence=EverySteps(1)) as run:
        run.track(model=model)
        for step in run.steps():
            if step % 4 == 0:  # two more workers, which live until the end of the program
                kept.append(iter(DataLoader(data, batch_size=8, num_workers=2)))
            model(next(kept[-1])[0]).sum().backward()
            run.save()
            sum(range(100_000))  # the saver waits for the interpreter, also inside its lock
    print("done")
"""


@pytest.mark.timeout(60 + 60 * RUNS)
def test_saves_at_every_step_beside_loader_workers_never_hang(tmp_path: Path) -> None:
    """`make test-matrix` sets STAYFAST_FORK_RUNS to 100."""
    pytest.importorskip("torch")
    for number in range(RUNS):
        ended = python(LOADERS, f"file://{tmp_path}/run-{number}").end(120)
        assert ended.code == 0, ended.err
        assert "could not be saved" not in ended.err
