"""A run over sharded state: 4 ranks, a notice, then 2 ranks, then 1; every rank sees the same batch.

Averaging equal gradients over 4, 2 or 1 ranks is exact, so the result must equal plain training bit for bit.
"""

import os
import signal
import sys
import time
import warnings

import torch
from fork_ranks import end, say, start
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, init_device_mesh

import stayfast
from stayfast.integrations.dcp import sharded

warnings.simplefilter("ignore")
folder = sys.argv[1]
url = f"file://{folder}/run"
STEPS = 40


def build():
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(6, 10), torch.nn.GELU(), torch.nn.Linear(10, 3))
    model.register_buffer("seen", torch.zeros(()))
    return model


def optimizer_of(model):
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.05)
    return optimizer, torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS)


def train(step: int, model, optimizer, schedule) -> None:
    x = torch.randn(4, 6, generator=torch.Generator().manual_seed(step))
    model(x).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
    schedule.step()
    model.seen += step


def work(rank: int) -> None:
    size = int(os.environ["WORLD_SIZE"])
    model = build()
    mesh = init_device_mesh("cpu", (size,))
    fully_shard(model[0], mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer, schedule = optimizer_of(model)
    with stayfast.run(url, total_steps=STEPS) as run:
        run.track(state=sharded(model, optimizer), schedule=schedule)
        for step in run.steps():
            train(step, model, optimizer, schedule)
            if rank == 0:
                with open(f"{folder}/steps", "a") as log:
                    log.write(f"{step}\n")
            time.sleep(0.03)
    whole = {k: v.full_tensor() if isinstance(v, DTensor) else v for k, v in model.state_dict().items()}
    if rank == 0:
        torch.save(whole, f"{folder}/final.pt")


def reference(_rank: int) -> None:
    model = build()
    optimizer, schedule = optimizer_of(model)
    for step in range(STEPS):
        train(step, model, optimizer, schedule)
    torch.save(model.state_dict(), f"{folder}/plain.pt")


def steps() -> list[int]:
    return [int(line) for line in open(f"{folder}/steps")] if os.path.exists(f"{folder}/steps") else []


say(reference=end(start(1, reference, f"{folder}/meet-0")))
for number, (size, until, signals) in enumerate([(4, 8, True), (2, 20, True), (1, STEPS, False)], start=1):
    pids = start(size, work, f"{folder}/meet-{number}")
    waited = time.monotonic()
    while signals and len(steps()) < until and time.monotonic() < waited + 60:
        time.sleep(0.02)
    if signals:
        os.kill(pids[-1], signal.SIGTERM)
    say(size=size, codes=end(pids), steps=len(steps()))
ours, plain = torch.load(f"{folder}/final.pt"), torch.load(f"{folder}/plain.pt")
say(same={key: torch.equal(ours[key], plain[key]) for key in plain}, steps_once=steps() == list(range(STEPS)))
