"""Loader workers and signals: a signal to the process group leaves them alive, their owner still ends them."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import pytest
from runtime_children import Child, environment

pytest.importorskip("torch")

# At step 3 the program waits for the signal, then takes more batches than the workers can have prepared, which only
# living workers can deliver, and finishes its step.
PROGRAM = """
import os, subprocess, sys, time
kind, method, url = sys.argv[1:]

import stayfast

class Squares:
    def __len__(self): return 10_000
    def __getitem__(self, index):
        import torch
        return torch.tensor([float(index), float(os.getpid())])

def mark(worker_id):
    import torch
    open(f"worker-{os.getpid()}", "w").close()  # a hook of the program's own keeps working

def loader_of(kind, method):
    from torch.utils.data import DataLoader
    options = dict(batch_size=4, num_workers=2, worker_init_fn=mark, multiprocessing_context=method)
    if kind == "persistent":
        options["persistent_workers"] = True
    if kind == "stateful":
        from torchdata.stateful_dataloader import StatefulDataLoader as DataLoader
    if kind == "sampler":
        from stayfast.integrations.torch import ResumableSampler
        return (sampler := ResumableSampler(10_000)), DataLoader(Squares(), sampler=sampler, **options)
    loader = DataLoader(Squares(), **options)
    if kind == "accelerate":
        from accelerate import Accelerator
        loader = Accelerator(cpu=True).prepare(loader)
    return None, loader

def main():
    with stayfast.run(url, total_steps=5) as run:
        sampler, loader = loader_of(kind, method)  # torch is imported after the run was opened
        batches = sampler.batches(loader) if sampler else iter(loader)
        for step in run.steps():
            next(batches)
            if step == 3:
                print("ready", flush=True)
                while run.notice is None:
                    time.sleep(0.01)
                pids = {int(next(batches)[0][1]) for _ in range(20)}
                assert len(pids) == 2 and os.getpid() not in pids, pids
                assert all(os.path.exists(f"worker-{pid}") for pid in pids)
                print("alive", flush=True)

if __name__ == "__main__":
    main()
"""

KINDS = ("plain", "persistent", "stateful", "sampler", "accelerate")
SHAPES = [(kind, "fork", signal.SIGTERM) for kind in KINDS]
SHAPES += [(kind, "spawn", signal.SIGTERM) for kind in ("plain", "stateful")]
SHAPES += [("plain", "forkserver", signal.SIGTERM)]
SHAPES += [("plain", "fork", number) for number in (signal.SIGINT, signal.SIGUSR1)]


def start(tmp_path: Path, source: str, *arguments: str, **variables: object) -> Child:
    program = tmp_path / "program.py"
    program.write_text(source)
    values = environment(OMP_NUM_THREADS="1", STAYFAST_GRACE_SECONDS="60", **variables)
    return Child([sys.executable, str(program), *arguments], values, start_new_session=True, cwd=tmp_path)


@pytest.mark.parametrize(("kind", "method", "number"), SHAPES)
def test_workers_survive_a_signal_to_the_group(tmp_path: Path, kind: str, method: str, number: signal.Signals) -> None:
    if kind in ("stateful", "accelerate"):
        pytest.importorskip("torchdata" if kind == "stateful" else "accelerate")
    child = start(tmp_path, PROGRAM, kind, method, f"file://{tmp_path}/run", STAYFAST_EXTRA_SIGNAL="SIGUSR1")
    child.wait_for("ready", 90)
    os.killpg(child.pid, number)
    ended = child.end(90)
    assert "alive" in ended.out, ended.err
    assert ended.code == 75, ended.err
    assert ended.report["saved"] == "step 3"
    assert "exited unexpectedly" not in ended.err


OWNED = """
import os, signal, subprocess, sys, time
import stayfast
from torch.utils.data import DataLoader

class Slow:
    def __len__(self): return 8
    def __getitem__(self, index):
        decoder = subprocess.Popen(["sleep", "100"])  # must not inherit what the worker blocks
        decoder.terminate()
        assert decoder.wait(30) == -signal.SIGTERM
        print("worker", os.getpid(), flush=True)
        time.sleep(1000)

if __name__ == "__main__":
    with stayfast.guard():
        batches = iter(DataLoader(Slow(), num_workers=1))
        (worker,) = batches._workers
        if sys.argv[1] == "wait":
            time.sleep(1000)
        while not os.path.exists("go"):
            time.sleep(0.01)
        worker.terminate()
        worker.join(30)
        print("code", worker.exitcode, flush=True)
    import multiprocessing.process
    print("start", multiprocessing.process.BaseProcess.start.__module__, flush=True)
"""


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def test_the_owner_ends_a_worker_and_the_shield_goes_with_the_run(tmp_path: Path) -> None:
    child = start(tmp_path, OWNED, "end")
    pid = int(child.wait_for("worker", 60).split()[1])
    os.kill(pid, signal.SIGTERM)
    time.sleep(0.5)
    assert is_alive(pid)
    (tmp_path / "go").touch()
    ended = child.end(60)
    assert "code 0" in ended.out, ended.err
    assert "start multiprocessing.process" in ended.out
    assert not is_alive(pid)


def test_an_orphan_ends_by_itself_amid_its_work(tmp_path: Path) -> None:
    child = start(tmp_path, OWNED, "wait")
    pid = int(child.wait_for("worker", 60).split()[1])
    child.send(signal.SIGKILL)
    until = time.monotonic() + 30
    while is_alive(pid) and time.monotonic() < until:
        time.sleep(0.1)
    left = is_alive(pid)
    if left:
        os.kill(pid, signal.SIGKILL)
    assert not left
    child.process.wait(10)


STUCK = """
import os, re, time, stayfast
from torch.utils.data import DataLoader

class Stuck:
    def __len__(self): return 8
    def __getitem__(self, index):
        if index == 4:
            while not os.path.exists("go"):
                time.sleep(0.01)
            print("stuck", flush=True)
            re.match("(a+)+$", "a" * 60 + "b")  # it ends after centuries, and no other thread runs meanwhile
        return index

with stayfast.run(None, 2) as run:
    batches = iter(DataLoader(Stuck(), num_workers=2))
    for step in run.steps():
        next(batches)
open("go", "w").close()
time.sleep(1)
print("end", flush=True)
"""


def test_a_worker_whose_interpreter_is_held_does_not_keep_the_program_from_ending(tmp_path: Path) -> None:
    ended = start(tmp_path, STUCK).end(60)
    assert "stuck" in ended.out, ended.err
    assert "end" in ended.out, ended.err
    assert ended.code == 0, ended.err
    assert "Killed" not in ended.err
