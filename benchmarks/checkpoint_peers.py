"""The peers that ``checkpoint_gpu.py`` measures beside the engine, and the training they all save."""

from __future__ import annotations

import os
import shutil
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch

DEVICE = "cuda"


class Gpt(torch.nn.Module):
    """Just enough of a transformer to have its tensors and to keep the GPU busy."""

    def __init__(self, hidden: int, layers: int, vocabulary: int) -> None:
        super().__init__()
        self.embedding = torch.nn.Embedding(vocabulary, hidden)
        layer = lambda: torch.nn.TransformerEncoderLayer(  # noqa: E731
            hidden, 12, 4 * hidden, dropout=0.0, batch_first=True, norm_first=True
        )
        self.layers = torch.nn.ModuleList([layer() for _ in range(layers)])

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embedding(tokens)
        for layer in self.layers:
            x = layer(x)
        return x.float().pow(2).mean()


class Training:
    """A model, an optimizer, and one step."""

    def __init__(self, gigabytes: float, batch: int) -> None:
        hidden = 1536
        per_layer = 12 * hidden * hidden + 13 * hidden
        layers = max(1, round((gigabytes * 1e9 / 12 - 32000 * hidden) / per_layer))
        torch.manual_seed(0)
        self.model = Gpt(hidden, layers, 32000).to(DEVICE)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4)
        self.tokens = torch.randint(0, 32000, (batch, 512), device=DEVICE)
        self.step()
        torch.cuda.synchronize()

    def step(self) -> None:
        self.optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = self.model(self.tokens)
        loss.backward()
        self.optimizer.step()

    def state(self) -> dict[str, Any]:
        return {"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict()}

    def tensors(self) -> list[torch.Tensor]:
        found = list(self.model.state_dict().values())
        for row in self.optimizer.state.values():
            found += [value for value in row.values() if value.is_cuda]
        return found


def seconds(action: Callable[[], Any]) -> float:
    torch.cuda.synchronize()
    start = time.perf_counter()
    action()
    torch.cuda.synchronize()
    return time.perf_counter() - start


def median(values: list[float]) -> float:
    return statistics.median(values)


# -- peers


def fsync_tree(path: str) -> None:
    for base, _, files in os.walk(path):
        for name in files:
            fd = os.open(os.path.join(base, name), os.O_RDONLY)
            os.fsync(fd)
            os.close(fd)
        fd = os.open(base, os.O_RDONLY)
        os.fsync(fd)
        os.close(fd)


def clean(path: str) -> str:
    shutil.rmtree(path, ignore_errors=True)
    os.makedirs(path)
    return path


def peer_torch_save(training: Training, path: str) -> dict[str, float]:
    file = os.path.join(clean(path), "state.pt")
    stall = seconds(lambda: torch.save(training.state(), file))
    total = stall + seconds(lambda: fsync_tree(path))

    def load() -> None:
        state = torch.load(file, mmap=True, map_location="cpu", weights_only=True)
        training.model.load_state_dict(state["model"])
        training.optimizer.load_state_dict(state["optimizer"])

    load()
    return {"stall_seconds": stall, "durable_seconds": total, "restore_warm_seconds": seconds(load)}


def peer_safetensors(training: Training, path: str) -> dict[str, float]:
    from safetensors.torch import load_file, save_file

    file = os.path.join(clean(path), "state.safetensors")
    flat = {f"m.{key}": value for key, value in training.model.state_dict().items()}
    for index, row in enumerate(training.optimizer.state.values()):
        flat |= {f"o.{index}.{key}": value for key, value in row.items() if key != "step"}
    stall = seconds(lambda: save_file(flat, file))
    total = stall + seconds(lambda: fsync_tree(path))

    def load() -> None:
        loaded = load_file(file, device="cuda")
        with torch.no_grad():
            for key, value in loaded.items():
                flat[key].copy_(value)

    load()
    return {"stall_seconds": stall, "durable_seconds": total, "restore_warm_seconds": seconds(load)}


def peer_dcp(training: Training, path: str) -> dict[str, float]:
    import torch.distributed.checkpoint as dcp

    clean(path)
    writer = dcp.FileSystemWriter(path, thread_count=8, sync_files=True, overwrite=True)
    stall = seconds(lambda: dcp.save(training.state(), storage_writer=writer))
    total = stall + seconds(lambda: fsync_tree(path))

    def load() -> None:
        dcp.load(training.state(), storage_reader=dcp.FileSystemReader(path))

    load()
    return {"stall_seconds": stall, "durable_seconds": total, "restore_warm_seconds": seconds(load)}


def peer_dcp_async(training: Training, path: str, kind: str, kept: dict[str, Any]) -> dict[str, float]:
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.state_dict_saver import AsyncCheckpointerType

    clean(path)
    start = time.perf_counter()
    options: dict[str, Any] = {}
    if kind == "process":
        # Its writer stages too, and with a cache that outlives one save. (A ``DefaultStager`` is closed after a save.)
        options["async_checkpointer_type"] = AsyncCheckpointerType.PROCESS
        if "writer" not in kept:
            kept["writer"] = dcp.FileSystemWriter(
                path, thread_count=8, sync_files=True, overwrite=True, cache_staged_state_dict=True
            )
        writer = kept["writer"]
    else:
        writer = dcp.FileSystemWriter(path, thread_count=8, sync_files=True, overwrite=True)
    torch.cuda.synchronize()
    future = dcp.async_save(training.state(), checkpoint_id=path, storage_writer=writer, **options)
    if hasattr(future, "upload_completion"):
        if future.staging_completion is not None:
            future.staging_completion.result()
        torch.cuda.synchronize()
        stall = time.perf_counter() - start
        future.upload_completion.result()
    else:
        torch.cuda.synchronize()
        stall = time.perf_counter() - start
        future.result()
    fsync_tree(path)
    return {"stall_seconds": stall, "durable_seconds": time.perf_counter() - start}


def peers(training: Training, folder: str, repeats: int, names: Sequence[str]) -> dict[str, Any]:
    import torch.distributed as dist

    if not dist.is_initialized():
        os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
        os.environ.setdefault("MASTER_PORT", "29511")
        dist.init_process_group("cpu:gloo,cuda:nccl", rank=0, world_size=1)
    kept: dict[str, Any] = {}
    table: dict[str, Callable[[str], dict[str, float]]] = {
        "torch.save": lambda path: peer_torch_save(training, path),
        "safetensors": lambda path: peer_safetensors(training, path),
        "dcp": lambda path: peer_dcp(training, path),
        "dcp async thread": lambda path: peer_dcp_async(training, path, "thread", kept),
        "dcp async process": lambda path: peer_dcp_async(training, path, "process", kept),
    }
    table = {name: measure for name, measure in table.items() if name in names}
    rows: dict[str, list[dict[str, float]]] = {name: [] for name in table}
    failures: dict[str, str] = {}
    for turn in range(repeats + 1):  # the first turn warms caches and starts processes
        for name, measure in table.items():
            if name in failures:
                continue
            path = os.path.join(folder, "peer")
            try:
                row = measure(path)
            except Exception as error:  # noqa: BLE001 - one peer's failure must not cost the others' numbers
                failures[name] = f"{type(error).__name__}: {error}"
                continue
            finally:
                shutil.rmtree(path, ignore_errors=True)
            if turn:
                rows[name].append(row)
    result: dict[str, Any] = {}
    for name, found in rows.items():
        keys = found[0] if found else {}
        result[name] = {key: median([row[key] for row in found]) for key in keys} or {"failed": failures.get(name, "?")}
    return result
