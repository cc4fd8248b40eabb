"""FSDP2 on 4 ranks saved by DCP's own writer and by ours; one rank killed in the next save; loaded on 2 ranks."""

import os
import signal
import sys
import warnings

import torch
import torch.distributed.checkpoint as dcp
from fork_ranks import end, say, start
from torch.distributed.checkpoint.state_dict import get_state_dict
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, init_device_mesh

from stayfast.integrations.dcp import StayfastReader, StayfastWriter
from stayfast.storage.stores.file import FileStore

warnings.simplefilter("ignore")
folder = sys.argv[1]
url = f"file://{folder}/ours"


def build(size: int, seed: int):
    torch.manual_seed(seed)
    model = torch.nn.Sequential(torch.nn.Linear(13, 24), torch.nn.LayerNorm(24), torch.nn.Linear(24, 7))
    mesh = init_device_mesh("cpu", (size,))
    fully_shard(model[0], mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model, torch.optim.AdamW(model.parameters(), lr=0.01)


def step(model, optimizer, number: int) -> None:
    x = torch.randn(5, 13, generator=torch.Generator().manual_seed(number))
    model(x).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()


def state_of(model, optimizer) -> dict:
    weights, moments = get_state_dict(model, optimizer)
    return {"model": weights, "optimizer": moments, "step": 7, "notes": {"name": "x", "betas": (0.9, 0.99)}}


def whole(value):
    return value.full_tensor() if isinstance(value, DTensor) else value


def flat(tree, path=""):
    if isinstance(tree, dict):
        for key in sorted(tree):
            yield from flat(tree[key], f"{path}/{key}")
    else:
        yield path, whole(tree)


def save(rank: int) -> None:
    model, optimizer = build(4, seed=1)
    for number in range(2):
        step(model, optimizer, number)
    dcp.save(state_of(model, optimizer), checkpoint_id=f"{folder}/theirs")
    writer = StayfastWriter(url)
    writer.save(state_of(model, optimizer), step=2)
    step(model, optimizer, 2)
    if rank == 2:
        put = FileStore.put

        def die(self, key, data, **options):
            if key.endswith(".bin"):
                os.kill(os.getpid(), signal.SIGKILL)
            return put(self, key, data, **options)

        FileStore.put = die
    writer.save(state_of(model, optimizer), step=3)


def load(rank: int) -> None:
    results = []
    for reader in (StayfastReader(url), dcp.FileSystemReader(f"{folder}/theirs")):
        model, optimizer = build(2, seed=50 + len(results))
        step(model, optimizer, 9)
        state = state_of(model, optimizer) | {"step": 0, "notes": {"name": "", "betas": ()}}
        dcp.load(state, storage_reader=reader)
        results.append(dict(flat(state)))
    ours, theirs = results
    same = [key for key in theirs if _equal(ours[key], theirs[key])]
    if rank == 0:
        say(keys=len(theirs), same=len(same), step=ours["/step"], keys_match=list(ours) == list(theirs))


def _equal(a, b) -> bool:
    return torch.equal(a, b) and a.dtype == b.dtype if isinstance(a, torch.Tensor) else a == b


say(saved=end(start(4, save, f"{folder}/meet-4")))
say(loaded=end(start(2, load, f"{folder}/meet-2")))
