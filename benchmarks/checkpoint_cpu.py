"""Checkpoint engine on a CPU machine, beside torch.save, safetensors and a raw direct write, in one run.

    PYTHONPATH=src python benchmarks/checkpoint_cpu.py --dir /data/bench [--megabytes 1000] [--record]

All rows are measured interleaved, round after round, and the median over the rounds is shown: buffered writes vary by
a factor of eight between rounds, so single numbers mean nothing. Durable: from the call to bytes that survive a power
cut; for stayfast that includes the snapshot, all checksums, and the commit of HEAD.json. Stall: what the training loop
waits for. Raw: one O_DIRECT write of the same bytes to one file, by the same number of threads, and one fsync.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import shutil
import statistics
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from reporting import machine, parse, write

from stayfast.clock import SystemClock
from stayfast.runtime.checkpoint.checkpointer import Checkpointer
from stayfast.runtime.checkpoint.inventory import default_algorithm
from stayfast.runtime.checkpoint.snapshot import map_pages, prefault
from stayfast.runtime.run_record.commit_protocol import claim, commit, run_protocol
from stayfast.runtime.run_record.record import AttemptRecord, CheckpointRecord
from stayfast.storage.stores.file import FileStore

BLOCK = 32 << 20
WHEN = "2026-01-01T00:00:00.000Z"


def build_state(megabytes: int) -> dict[str, Any]:
    """Many tensors of the sizes a transformer has, and some NumPy arrays, filled with noise."""
    generator = np.random.default_rng(0)
    hidden = 1024
    sizes = [(hidden, hidden), (hidden,), (4 * hidden, hidden), (4 * hidden,), (hidden, 4 * hidden), (hidden,)]
    model: dict[str, Any] = {}
    total = 0
    while total < megabytes * 10**6:
        for shape in sizes:
            raw = generator.integers(0, 256, 4 * int(np.prod(shape)), dtype=np.uint8)
            model[f"layer.{len(model)}.weight"] = torch.from_numpy(raw).view(torch.float32).reshape(shape)
            total += raw.nbytes
    return {"model": model, "table": generator.integers(0, 1 << 60, 1 << 20), "step": 1, "order": list(range(1000))}


def seconds(action: Callable[[], Any]) -> float:
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


class Raw:
    """What to compare with: a memory copy and a direct write of the same number of bytes."""

    def __init__(self, size: int, folder: str, threads: int) -> None:
        self.size = -(-size // BLOCK) * BLOCK
        self.path = os.path.join(folder, "raw.bin")
        self.executor = ThreadPoolExecutor(threads)
        self._pages = []
        self.views, self.addresses = [], []
        for _ in range(2):
            pages, view, address = map_pages(self.size)
            prefault(address, self.size, self.executor)
            self._pages.append(pages)
            self.views.append(view)
            self.addresses.append(address)

    def copy(self) -> None:
        """One block, for which the C library writes past the cache: faster than any copy of separate tensors."""
        ctypes.memmove(self.addresses[0], self.addresses[1], self.size)

    def copy_each(self, tensors: dict[str, Any]) -> None:
        """The tensors themselves, one after the other, on one thread."""
        place = self.addresses[0]
        for tensor in tensors.values():
            length = tensor.numel() * tensor.element_size()
            ctypes.memmove(place, tensor.data_ptr(), length)
            place += length

    def write(self) -> None:
        view = self.views[0]
        fd = os.open(self.path, os.O_CREAT | os.O_WRONLY | os.O_TRUNC | getattr(os, "O_DIRECT", 0))
        try:
            list(self.executor.map(lambda at: os.pwrite(fd, view[at : at + BLOCK], at), range(0, self.size, BLOCK)))
            os.fsync(fd)
        finally:
            os.close(fd)


class Subject:
    """Our engine with the commit of HEAD around it."""

    def __init__(self, folder: str, threads: int) -> None:
        self.store = FileStore(folder)
        self.engine = Checkpointer(self.store, threads=threads)
        self.clock = SystemClock()
        self.count = 0
        self.held = run_protocol(claim("bench", AttemptRecord(1, WHEN), self.token), self.store, self.clock)
        self.stall = 0.0
        self.newest: CheckpointRecord | None = None

    def token(self) -> str:
        self.count += 1
        return f"token-{self.count}"

    def save(self, state: dict[str, Any]) -> None:
        self.count += 1
        start = time.perf_counter()
        snapshot = self.engine.snapshot(self.count, state)
        self.stall = time.perf_counter() - start
        persisted = self.engine.persist(snapshot, 1)
        self.newest = CheckpointRecord(self.count, 1, WHEN, persisted.size, persisted.inventory_sha256)
        new = replace(self.held.head, checkpoints=(self.newest,))
        self.held = run_protocol(commit(self.held, new, self.token), self.store, self.clock)
        self.engine.mark_committed(persisted)

    def forget(self) -> None:
        """So that the next save is a full one again."""
        for entry in list(self.store.keys("checkpoints/")):
            self.store.delete(entry.key)
        self.engine._base = None


def fsync(path: str) -> None:
    fd = os.open(path, os.O_RDONLY)
    os.fsync(fd)
    os.close(fd)


def load_torch(path: str, tensors: dict[str, Any]) -> None:
    """The peer's restore: into the same tensors, unverified."""
    saved = torch.load(path, mmap=True, weights_only=False)
    for name, value in saved["model"].items():
        tensors[name].copy_(value)


def measure(folder: str, megabytes: int, rounds: int, threads: int) -> dict[str, Any]:
    state = build_state(megabytes)
    tensors = {**state["model"], "table": torch.from_numpy(state["table"])}
    size = sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())
    raw, subject = Raw(size, folder, threads), Subject(os.path.join(folder, "ours"), threads)
    rows: dict[str, list[float]] = {}

    def note(name: str, value: float) -> None:
        rows.setdefault(name, []).append(value)

    first = seconds(lambda: subject.save(state))
    subject.forget()
    pt, st = os.path.join(folder, "state.pt"), os.path.join(folder, "state.safetensors")
    from safetensors.torch import save_file

    victim = next(iter(state["model"].values()))
    for _ in range(rounds):
        note("raw write+fsync", seconds(raw.write))
        note("stayfast durable", seconds(lambda: subject.save(state)))
        note("stayfast stall", subject.stall)
        victim.add_(1.0)  # one tensor of many: about 0.4 % of the state
        note("stayfast durable, 1 % changed", seconds(lambda: subject.save(state)))
        note("stayfast restore, verified", seconds(lambda: subject.engine.restore(subject.newest, into=state)))
        subject.forget()
        note("memcpy, one block", seconds(raw.copy))
        note("memcpy, each tensor", seconds(lambda: raw.copy_each(tensors)))
        note("torch.save+fsync", seconds(lambda: (torch.save(state, pt), fsync(pt))))
        note("torch.load(mmap) and copy", seconds(lambda: load_torch(pt, tensors)))
        os.unlink(pt)
        note("safetensors+fsync", seconds(lambda: (save_file(tensors, st), fsync(st))))
        os.unlink(st)
        time.sleep(0.2)
    subject.engine.close()
    medians = {name: statistics.median(values) for name, values in rows.items()}
    return {"state_bytes": size, "rounds": rounds, "first_save_seconds": first, "seconds": medians, "all": rows}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dir", required=True, help="a folder on the disk to measure")
    parser.add_argument("--megabytes", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, default=4)
    args = parse(parser)
    folder = os.path.join(os.path.abspath(args.dir), "stayfast-bench")
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    try:
        report = measure(folder, args.megabytes, args.rounds, args.threads)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    report |= {
        **machine(),
        "cpus": len(os.sched_getaffinity(0)),
        "torch": torch.__version__,
        "algorithm": default_algorithm(),
    }
    for name, value in report["seconds"].items():
        spread = report["all"][name]
        print(f"{name:<32}{value:>9.3f} s   ({min(spread):.3f} to {max(spread):.3f})")
    write("checkpoint_cpu", report, record=args.record)
    return 0


if __name__ == "__main__":
    sys.exit(main())
