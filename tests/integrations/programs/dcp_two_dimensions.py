"""FSDP over tensor parallel with a norm and a head outside the plan: 4 ranks, all killed, then worlds of 4, 2 and 1.

The program without stayfast keeps its whole state after every step; what a world restores must equal it bit for bit.
``OLD_LAYOUT`` saves as earlier versions did: every tensor-parallel column writes what is outside the plan.
``DIFFERENT_COPIES`` changes the norm of one column before that. ``WORLDS`` lists the sizes that resume.
"""

import logging
import os
import shutil
import signal
import sys
import warnings
from pathlib import Path

import torch
from fork_ranks import end, say, start
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Replicate, init_device_mesh
from torch.distributed.tensor._utils import compute_local_shape_and_global_offset
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

import stayfast
from stayfast.integrations import dcp_sharded
from stayfast.integrations.dcp import sharded

warnings.simplefilter("ignore")
folder = sys.argv[1]
STEPS, KILLED_AFTER = 9, 4
MESHES = {4: (2, 2), 2: (2, 1), 1: (1, 1)}


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = torch.nn.LayerNorm(5)
        self.up = torch.nn.Linear(5, 6)
        self.down = torch.nn.Linear(6, 5)
        self.head = torch.nn.Linear(5, 3)

    def forward(self, x):
        return self.head(self.down(torch.nn.functional.gelu(self.up(self.norm(x)))))


def build(size: int):
    torch.manual_seed(1)
    model = Model()
    mesh = init_device_mesh("cpu", MESHES[size], mesh_dim_names=("dp", "tp"))
    parallelize_module(model, mesh["tp"], {"up": ColwiseParallel(), "down": RowwiseParallel()})
    fully_shard(model, mesh=mesh["dp"])
    return model, torch.optim.AdamW(model.parameters(), lr=0.05)


def train(step: int, model, optimizer) -> None:
    x = torch.randn(4, 5, generator=torch.Generator().manual_seed(step))
    model(x).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()


def whole(model, optimizer) -> dict[str, torch.Tensor]:
    """Weights and moments, gathered from all ranks."""
    found = {f"model.{name}": value for name, value in model.state_dict().items()}
    for name, parameter in model.named_parameters():
        found |= {f"optimizer.{name}.{key}": value for key, value in optimizer.state[parameter].items()}
    return {name: v.full_tensor() if isinstance(v, DTensor) else v for name, v in found.items()}


def keep(name: str, rank: int, state: dict[str, torch.Tensor]) -> None:
    if rank == 0:
        torch.save(state, f"{folder}/{name}.pt")


def plain(rank: int) -> None:
    model, optimizer = build(4)
    for step in range(STEPS):
        train(step, model, optimizer)
        keep(f"plain-{step}", rank, whole(model, optimizer))


def old_shard(name, tensor, leads, *_):
    """The rule of earlier versions: replicas are left out along the tensor's own mesh alone."""
    if not isinstance(tensor, DTensor):
        return [name, list(tensor.shape), [0] * tensor.dim(), tensor.detach()] if leads else None
    coordinate = tensor.device_mesh.get_coordinate()
    if any(isinstance(p, Replicate) and at for p, at in zip(tensor.placements, coordinate, strict=True)):
        return None
    sizes, offsets = compute_local_shape_and_global_offset(tensor.shape, tensor.device_mesh, tensor.placements)
    if 0 in sizes and tensor.numel():
        return None
    return [name, list(tensor.shape), list(offsets), tensor.to_local().detach()]


def save_and_die(rank: int) -> None:
    if os.environ.get("OLD_LAYOUT"):
        dcp_sharded._shard = old_shard
    model, optimizer = build(4)
    with stayfast.run(f"file://{folder}/run", total_steps=STEPS) as run:
        run.track(state=sharded(model, optimizer))
        for step in run.steps():
            train(step, model, optimizer)
            if step == KILLED_AFTER:
                if os.environ.get("DIFFERENT_COPIES") and rank == 1:
                    with torch.no_grad():
                        model.norm.weight.add_(1)  # this column's copy only
                run.save(now=True)
                torch.distributed.barrier()
                os.kill(os.getpid(), signal.SIGKILL)


def resume(size: int):
    def work(rank: int) -> None:
        log = logging.FileHandler(f"{folder}/log-{size}-{rank}")
        logging.getLogger("stayfast").addHandler(log)
        model, optimizer = build(size)
        with stayfast.run(f"file://{folder}/run-{size}", total_steps=STEPS) as run:
            run.track(state=sharded(model, optimizer))
            run.restore()
            keep(f"restored-{size}", rank, whole(model, optimizer))
            for step in run.steps():
                train(step, model, optimizer)
        keep(f"final-{size}", rank, whole(model, optimizer))

    return work


def same(name: str, other: str) -> bool:
    ours, theirs = torch.load(f"{folder}/{name}.pt"), torch.load(f"{folder}/{other}.pt")
    return ours.keys() == theirs.keys() and all(torch.equal(ours[key], theirs[key]) for key in theirs)


say(codes=end(start(4, plain, f"{folder}/meet-plain")))
say(codes=end(start(4, save_and_die, f"{folder}/meet-save")))
for size in map(int, os.environ.get("WORLDS", "4 2 1").split()):
    shutil.copytree(f"{folder}/run", f"{folder}/run-{size}")
    codes = end(start(size, resume(size), f"{folder}/meet-{size}"))
    whole_again = all(code == 0 for code in codes)
    say(
        size=size,
        codes=codes,
        restored=whole_again and same(f"restored-{size}", f"plain-{KILLED_AFTER}"),
        finished=whole_again and same(f"final-{size}", f"plain-{STEPS - 1}"),
        log="".join(Path(f"{folder}/log-{size}-{rank}").read_text() for rank in range(size)),
    )
state = torch.load(f"{folder}/plain-{KILLED_AFTER}.pt")
say(numbers=sum(value.numel() for value in state.values()))
