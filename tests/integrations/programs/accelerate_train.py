"""A training with accelerate, written as its users write it, interrupted in one process and in two.

The data set draws noise and the model has dropout, so that a generator that is one number off changes the weights. The
same loop without stayfast gives the result that every interrupted run must reach.
"""

import os
import random
import signal
import sys
import time
import warnings

import accelerate.utils
import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState, GradientState, PartialState
from fork_ranks import child, end, lines, say, start
from torch.utils.data import BatchSampler, DataLoader

import stayfast
from stayfast.integrations.torch import ResumableSampler
from stayfast.runtime.checkpoint.policies import EverySteps

warnings.simplefilter("ignore")
folder = sys.argv[1]
SAMPLES, BATCH, STEPS = 37, 8, 12  # 5 batches in an epoch, the last one short


class Noisy(torch.utils.data.Dataset):
    def __len__(self):
        return SAMPLES

    def __getitem__(self, index):
        x = torch.randn(6, generator=torch.Generator().manual_seed(index))
        return index, x + 0.1 * torch.randn(6) + 0.1 * random.random()


def make(batch_sampler: bool):
    """What the program has before it knows of stayfast: a model, a loader, all prepared."""
    for state in (AcceleratorState, GradientState, PartialState):
        state._reset_state()  # forked: each child begins anew
    accelerator = Accelerator(cpu=True)
    accelerate.utils.set_seed(5)
    model = torch.nn.Sequential(torch.nn.Linear(6, 16), torch.nn.Dropout(0.3), torch.nn.Linear(16, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 2 * STEPS)
    sampler = ResumableSampler(SAMPLES, seed=3)
    if batch_sampler:
        loader = DataLoader(Noisy(), batch_sampler=BatchSampler(sampler, BATCH, drop_last=False))
    else:
        loader = DataLoader(Noisy(), batch_size=BATCH, sampler=sampler)
    return accelerator, sampler, *accelerator.prepare(model, optimizer, schedule, loader)


def step_once(accelerator, model, optimizer, schedule, batch, log: str) -> None:
    index, x = batch
    loss = (model(x) - x.sum(1, keepdim=True)).square().mean()
    accelerator.backward(loss)
    optimizer.step()
    schedule.step()
    optimizer.zero_grad()
    with open(f"{log}.{accelerator.process_index}", "a") as file:
        file.write("-".join(str(int(i)) for i in index) + "\n")
    time.sleep(0.02)


def alone(name: str, batch_sampler: bool) -> None:
    """The program without stayfast: epoch after epoch."""
    accelerator, sampler, model, optimizer, schedule, loader = make(batch_sampler)
    done = 0
    while done < STEPS:
        for batch in loader:
            step_once(accelerator, model, optimizer, schedule, batch, f"{folder}/{name}")
            done += 1
            if done == STEPS:
                break
        sampler.position = len(sampler)
        sampler.finish_epoch()
    finish(name, accelerator, model, schedule)


def kept(name: str, batch_sampler: bool) -> None:
    """The same program with stayfast."""
    accelerator, sampler, model, optimizer, schedule, loader = make(batch_sampler)
    length = len(loader)
    with stayfast.run(f"file://{folder}/{name}.run", total_steps=STEPS, cadence=EverySteps(3)) as run:
        run.track(model=model, optimizer=optimizer, schedule=schedule, sampler=sampler)
        batches = sampler.batches(loader)
        for _ in run.steps():
            step_once(accelerator, model, optimizer, schedule, next(batches), f"{folder}/{name}")
            assert len(loader) == length
    finish(name, accelerator, model, schedule)


def finish(name: str, accelerator, model, schedule) -> None:
    if accelerator.is_main_process:
        model = accelerator.unwrap_model(model)
        state = {"model": model.state_dict(), "rate": schedule.get_last_lr()[0], "next": torch.rand(4)}
        torch.save(state, f"{folder}/{name}.pt")


def launch(size: int, work, name: str) -> list[int]:
    if size == 1:
        return [child(work)]
    return start(size, lambda _: work(), f"{folder}/{name}.{time.monotonic_ns()}.meet")


def interrupted(name: str, size: int, batch_sampler: bool, more: tuple[int, ...], number: int) -> list[list[int]]:
    """Signal all ranks after so many more batches, attempt by attempt; then let it end."""
    codes = []
    for count in more:
        path, deadline = f"{folder}/{name}.0", time.monotonic() + 60
        goal = len(lines(path)) + count
        pids = launch(size, lambda: kept(name, batch_sampler), name)
        while len(lines(path)) < goal and time.monotonic() < deadline:
            time.sleep(0.002)
        for pid in pids:
            os.kill(pid, number)
        codes.append(end(pids))
    codes.append(end(launch(size, lambda: kept(name, batch_sampler), name)))
    return codes


def same(one: str, other: str) -> bool:
    a, b = torch.load(f"{folder}/{one}.pt"), torch.load(f"{folder}/{other}.pt")
    equal = all(torch.equal(a["model"][key], b["model"][key]) for key in a["model"])
    return equal and a["rate"] == b["rate"] and torch.equal(a["next"], b["next"])


for size, batch_sampler in ((1, False), (1, True), (2, False)):
    if size == 2:
        os.environ |= {"WORLD_SIZE": "2", "LOCAL_RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}
    base, name = f"base{size}{batch_sampler}", f"term{size}{batch_sampler}"
    ended = end(launch(size, lambda s=batch_sampler, n=base: alone(n, s), base))
    more = (2, 3, 1, 3) if size == 1 else (2, 2)  # mid-epoch, the last batch of an epoch, the first, mid-epoch
    codes = interrupted(name, size, batch_sampler, more, signal.SIGTERM)
    order = [lines(f"{folder}/{name}.{rank}") == lines(f"{folder}/{base}.{rank}") for rank in range(size)]
    say(base=ended, codes=codes, order=order, same=same(base, name))
for key in ("WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"):
    del os.environ[key]
say(codes=interrupted("kill", 1, False, (4, 4), signal.SIGKILL), same=same("base1False", "kill"))
