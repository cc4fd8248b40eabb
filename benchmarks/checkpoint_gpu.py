"""Checkpoint engine on a CUDA GPU, beside its peers and raw copies, in one run.

    PYTHONPATH=src python benchmarks/checkpoint_gpu.py --dir /data/bench [--gigabytes 7] [--record]

Everything is measured on the same state (a GPT-like model with AdamW, many tensors) on the same disk, peers interleaved
with us, median of ``--repeats``. Absolute times mean nothing between machines; the ratios in the last columns do.
Stall: what one save adds to the training loop. Durable: from the call to bytes that survive a power cut (fsync; for us
also checksummed, and committed through HEAD.json). Restore: into the tensors of a model on the GPU.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import torch
from checkpoint_peers import Training, clean, median, peers, seconds
from reporting import machine, parse, write

from stayfast.clock import SystemClock
from stayfast.runtime.checkpoint.checkpointer import Checkpointer
from stayfast.runtime.checkpoint.cuda_copies import pin_function
from stayfast.runtime.checkpoint.inventory import default_algorithm
from stayfast.runtime.checkpoint.snapshot import map_pages, prefault
from stayfast.runtime.run_record.commit_protocol import claim, commit, run_protocol
from stayfast.runtime.run_record.record import AttemptRecord, CheckpointRecord
from stayfast.storage.stores.file import FileStore

BLOCK = 32 << 20
PEERS = (("torch.save", "safetensors", "dcp", "dcp async thread"), ("dcp async process",))


# -- floors


class Floors:
    def __init__(self, size: int, folder: str, threads: int) -> None:
        self.size, self.folder = -(-size // BLOCK) * BLOCK, folder
        self.executor = ThreadPoolExecutor(threads)
        self.pages, self.view, self.address = map_pages(self.size)
        prefault(self.address, self.size, self.executor)
        self.pinned = pin_function(torch)(self.address, self.size) is not None
        self.host = torch.frombuffer(self.view, dtype=torch.uint8)

    def device_to_host(self, tensors: list[torch.Tensor]) -> None:
        place = 0
        for tensor in tensors:
            flat = tensor.detach().reshape(-1).view(torch.uint8)
            self.host[place : place + flat.numel()].copy_(flat, non_blocking=True)
            place += -(-flat.numel() // 64) * 64 if place + flat.numel() + 64 < self.size else 0
        torch.cuda.synchronize()

    def write(self) -> None:
        """The same bytes, one file, direct, by as many threads as we use, fsynced."""
        path = os.path.join(self.folder, "floor.bin")
        fd = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_TRUNC | getattr(os, "O_DIRECT", 0))
        try:
            list(
                self.executor.map(lambda at: os.pwrite(fd, self.view[at : at + BLOCK], at), range(0, self.size, BLOCK))
            )
            os.fsync(fd)
        finally:
            os.close(fd)

    def write_many(self) -> None:
        """The same bytes as many files, each written and fsynced by one of the threads."""
        folder = os.path.join(self.folder, "floor")
        os.makedirs(folder, exist_ok=True)

        def one(at: int) -> None:
            path = os.path.join(folder, f"{at:015d}.bin")
            fd = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_TRUNC | getattr(os, "O_DIRECT", 0))
            try:
                os.pwrite(fd, self.view[at : at + BLOCK], 0)
                os.fsync(fd)
            finally:
                os.close(fd)

        list(self.executor.map(one, range(0, self.size, BLOCK)))

    def read(self) -> None:
        """From the page cache into pinned memory, without checking anything, then to the device."""
        fd = os.open(os.path.join(self.folder, "floor.bin"), os.O_RDONLY)
        try:
            list(
                self.executor.map(
                    lambda at: os.preadv(fd, [self.view[at : at + BLOCK]], at), range(0, self.size, BLOCK)
                )
            )
        finally:
            os.close(fd)

    def read_cold(self, block: int) -> None:
        """From the disk itself into pinned memory, without checking anything."""
        fd = os.open(os.path.join(self.folder, "floor.bin"), os.O_RDONLY | getattr(os, "O_DIRECT", 0))
        try:
            blocks = range(0, self.size, block)
            list(self.executor.map(lambda at: os.preadv(fd, [self.view[at : at + block]], at), blocks))
        finally:
            os.close(fd)

    def close(self) -> None:
        self.executor.shutdown()
        if self.pinned:
            torch.cuda.cudart().cudaHostUnregister(self.address)
        os.unlink(os.path.join(self.folder, "floor.bin"))
        shutil.rmtree(os.path.join(self.folder, "floor"), ignore_errors=True)


# -- us


class Stayfast:
    def __init__(self, folder: str, training: Training, options: dict[str, Any]) -> None:
        self.training = training
        self.store = FileStore(folder)
        self.engine = Checkpointer(self.store, **options)
        self.engine.watch_optimizer(training.optimizer)
        self.clock = SystemClock()
        self.token = iter(range(10**9))
        self.held = run_protocol(
            claim("bench", AttemptRecord(1, "2026-01-01T00:00:00.000Z"), lambda: f"t{next(self.token)}"),
            self.store,
            self.clock,
        )
        self.step = 0
        self.newest: CheckpointRecord | None = None
        self.written = 0

    def snapshot(self) -> Any:
        self.step += 1
        return self.engine.snapshot(self.step, self.training.state())

    def finish(self, snapshot: Any) -> None:
        persisted = self.engine.persist(snapshot, 1)
        row = CheckpointRecord(
            persisted.step, 1, "2026-01-01T00:00:00.000Z", persisted.size, persisted.inventory_sha256
        )
        new = replace(self.held.head, checkpoints=(row,))
        self.held = run_protocol(commit(self.held, new, lambda: f"t{next(self.token)}"), self.store, self.clock)
        self.engine.mark_committed(persisted)
        self.newest, self.written = row, persisted.written_bytes

    def forget(self) -> None:
        """Delete the parts and the memory of them, so that the next save is a full one."""
        for entry in list(self.store.keys("checkpoints/")):
            self.store.delete(entry.key)
        self.engine._base = None


def overlapped(training: Training, ours: Stayfast, repeats: int) -> dict[str, float]:
    """Time of a few steps with and without a snapshot among them, interleaved; the loop runs on as training does."""
    steps, before = 5, 2
    plain, with_save, calls = [], [], []

    def run(save: bool) -> float:
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(before):
            training.step()
        if save:
            called = time.perf_counter()
            snapshot = ours.snapshot()
            calls.append(time.perf_counter() - called)
        for _ in range(steps - before):
            training.step()
        torch.cuda.synchronize()
        total = time.perf_counter() - start
        if save:
            snapshot.release()
        return total

    for _ in range(2 * repeats):
        plain.append(run(save=False))
        with_save.append(run(save=True))
    return {
        "step_seconds": median(plain) / steps,
        "added_seconds": median([b - a for a, b in zip(plain, with_save, strict=True)]),
        "call_seconds": median(calls),
    }


def ours(training: Training, folder: str, floors: Floors, repeats: int, options: dict[str, Any]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    subject = Stayfast(folder, training, options)
    stall: list[float] = []
    durable: list[float] = []

    def save() -> None:
        start = time.perf_counter()
        snapshot = subject.snapshot()
        for part in range(len(snapshot.layout.parts)):
            snapshot.part(part)
        stall.append(time.perf_counter() - start)
        subject.finish(snapshot)

    result["first_durable_seconds"] = seconds(save)
    result["first_stall_seconds"] = stall.pop()
    subject.forget()
    floor_write, floor_many, floor_copy = [], [], []
    for _ in range(repeats):
        training.step()
        floor_copy.append(seconds(lambda: floors.device_to_host(training.tensors())))
        floor_write.append(seconds(floors.write))
        floor_many.append(seconds(floors.write_many))
        shutil.rmtree(os.path.join(floors.folder, "floor"))
        durable.append(seconds(lambda: subject.finish(subject.snapshot())))
        subject.forget()
    for _ in range(repeats):
        torch.cuda.synchronize()
        save()
        subject.forget()
    result |= {"durable_seconds": median(durable), "stall_seconds": median(stall)}
    best = min(median(floor_write), median(floor_many))  # whichever way of writing the disk likes better
    result |= {"floor_write_seconds": best, "floor_copy_seconds": median(floor_copy)}
    result |= {"floor_one_file_seconds": median(floor_write), "floor_many_files_seconds": median(floor_many)}
    result["overlapped"] = overlapped(training, subject, repeats)
    result |= lora(training, subject, repeats)
    result |= restore(training, folder, subject, floors, repeats)
    subject.engine.close()
    return result


def lora(training: Training, subject: Stayfast, repeats: int) -> dict[str, Any]:
    """One in a hundred bytes changes between two saves."""
    subject.finish(subject.snapshot())
    times, written = [], []
    victims, size = [], 0
    total = sum(tensor.numel() for tensor in training.model.parameters())
    for tensor in sorted(training.model.parameters(), key=lambda item: item.numel()):
        if size < total * 3 / 100:
            victims.append(tensor)
            size += tensor.numel()
    for turn in range(repeats + 3):  # two saves to recognise what is frozen, one to take fingerprints of it
        with torch.no_grad():
            for tensor in victims:
                tensor.add_(1e-3)
        times.append(seconds(lambda: subject.finish(subject.snapshot())))
        written.append(subject.written)
        if turn < 3:
            times.pop()
            written.pop()
    return {"lora_durable_seconds": median(times), "lora_written_bytes": int(median([float(w) for w in written]))}


def drop_cache(folder: str) -> None:
    """Make the kernel forget these files; they were fsynced."""
    for entry in FileStore(folder).keys():
        fd = os.open(os.path.join(folder, entry.key), os.O_RDONLY)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(fd)


def warm_cache(folder: str) -> None:
    """Make the kernel know them: a plain read of everything."""
    for entry in FileStore(folder).keys():
        with open(os.path.join(folder, entry.key), "rb") as file:
            while file.read(BLOCK):
                pass


def restore(training: Training, folder: str, subject: Stayfast, floors: Floors, repeats: int) -> dict[str, Any]:
    subject.forget()
    subject.finish(subject.snapshot())
    assert subject.newest is not None
    committed = subject.newest
    expected = {name: value.clone() for name, value in list(training.model.state_dict().items())[:5]}
    warm, floor_read = [], []
    cold: list[float] = []
    floor_cold: dict[int, list[float]] = {BLOCK: [], BLOCK // 2: []}
    for _ in range(repeats):
        for block, times in floor_cold.items():
            times.append(seconds(lambda block=block: floors.read_cold(block)))  # type: ignore[misc]
        drop_cache(folder)
        cold.append(seconds(lambda: subject.engine.restore(committed, into=training.state())))
    warm_cache(folder)
    for _ in range(repeats):
        floor_read.append(seconds(floors.read))
        with torch.no_grad():
            for name in expected:
                training.model.state_dict()[name].zero_()
        warm.append(seconds(lambda: subject.engine.restore(committed, into=training.state())))
        now = training.model.state_dict()
        assert all(torch.equal(now[name], value) for name, value in expected.items()), "restored something else"
    fresh = Checkpointer(FileStore(folder))
    anew = seconds(lambda: fresh.restore(committed))
    fresh.close()
    return {
        "restore_warm_seconds": median(warm),
        "restore_cold_seconds": median(cold),
        "floor_cold_read_seconds": min(median(times) for times in floor_cold.values()),  # whichever the disk prefers
        "restore_new_engine_no_targets_seconds": anew,
        "floor_warm_read_seconds": median(floor_read),
    }


def show(report: dict[str, Any]) -> None:
    us, floor = report["stayfast"], report["floors"]
    rows = [
        ("raw, nothing checked", floor["copy_seconds"], floor["write_seconds"], floor["warm_read_seconds"]),
        *(
            (name, row.get("stall_seconds"), row.get("durable_seconds"), row.get("restore_warm_seconds"))
            for name, row in report["peers"].items()
        ),
        ("stayfast", us["stall_seconds"], us["durable_seconds"], us["restore_warm_seconds"]),
        ("stayfast, overlapped", us["overlapped"]["added_seconds"], us["durable_seconds"], us["restore_warm_seconds"]),
    ]
    print(f"{'':<22}{'stall s':>10}{'durable s':>12}{'restore s':>12}")
    for name, *values in rows:
        cells = "".join(
            f"{value:>{width}.3f}" if value is not None else f"{'-':>{width}}"
            for value, width in zip(values, (10, 12, 12), strict=True)
        )
        print(f"{name:<22}{cells}")
    print(f"first save, pinning included: {us['first_durable_seconds']:.2f} s, stall {us['first_stall_seconds']:.2f} s")
    print(f"host time of the snapshot call: {us['overlapped']['call_seconds']:.4f} s")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dir", required=True, help="a folder on the disk to measure; about three states must fit")
    parser.add_argument("--gigabytes", type=float, default=7.0)
    parser.add_argument("--batch", type=int, default=64, help="sequences of 512; a step should outlast the copy")
    parser.add_argument("--threads", type=int, help="of the engine; default: its own choice")
    parser.add_argument("--part-mebibytes", type=int, default=32)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--no-peers", action="store_true")
    args = parse(parser)
    if not torch.cuda.is_available():
        print("no CUDA device here", file=sys.stderr)
        return 2
    folder = os.path.join(os.path.abspath(args.dir), "stayfast-bench")
    clean(folder)
    training = Training(args.gigabytes, args.batch)
    size = sum(tensor.numel() * tensor.element_size() for tensor in training.tensors())
    floors = Floors(size, folder, 8)
    options = {"threads": args.threads, "part_bytes": args.part_mebibytes << 20}
    us = ours(training, os.path.join(folder, "ours"), floors, args.repeats, options)
    shutil.rmtree(os.path.join(folder, "ours"), ignore_errors=True)
    floors.close()
    floor = {
        "copy_seconds": us["floor_copy_seconds"],
        "write_seconds": us["floor_write_seconds"],
        "warm_read_seconds": us["floor_warm_read_seconds"],
    }
    peer: dict[str, Any] = {}
    for names in [()] if args.no_peers else [(), *PEERS]:  # a peer that hangs must not cost what was measured before it
        peer |= peers(training, folder, max(1, args.repeats // 2), names) if names else {}
        tell(args.record, training, size, floor, us, peer)
    shutil.rmtree(folder, ignore_errors=True)
    return 0


def tell(record: bool, training: Training, size: int, floor: Any, us: Any, peer: dict[str, Any]) -> None:
    """Print and keep what is known so far."""
    report = {
        **machine(),
        "gpu": torch.cuda.get_device_name(),
        "cpus": len(os.sched_getaffinity(0)),
        "torch": torch.__version__,
        "algorithm": default_algorithm(),
        "state_bytes": size,
        "tensors": len(training.tensors()),
        "floors": floor,
        "stayfast": us,
        "peers": peer,
    }
    show(report)
    write("checkpoint_gpu", report, record=record)


if __name__ == "__main__":
    sys.exit(main())
