"""A real training run, interrupted again and again: torch is loaded once, every attempt is a forked process.

    python storm.py FOLDER LOADER INTERRUPTIONS SEED

Prints one JSON line: the fingerprint of the final weights, the samples of every step that counted, and what happened.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import signal
import sys
import time
from pathlib import Path

import torch
import torch._dynamo  # what optimizers import at their first step: once here, not in every fork
from torch.utils.data import DataLoader, TensorDataset

import stayfast
from stayfast.integrations.torch import ResumableSampler

STEPS, BATCH = 260, 8


def batches(kind: str, run: stayfast.Run, data: TensorDataset):
    """Endless shuffled batches that know where they are, two ways."""
    if kind == "sampler":
        sampler = ResumableSampler(len(data), seed=3)
        run.track(sampler=sampler)
        return sampler.batches(DataLoader(data, batch_size=BATCH, sampler=sampler))
    from torchdata.stateful_dataloader import StatefulDataLoader

    generator = torch.Generator().manual_seed(9) if kind == "generator" else None
    loader = StatefulDataLoader(data, batch_size=BATCH, shuffle=True, generator=generator)
    run.track(loader=loader)

    def endless():
        while True:
            yield from loader

    return endless()


def train(folder: Path, kind: str) -> None:
    """One attempt."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    numbers = torch.arange(180)
    data = TensorDataset(numbers, torch.randn(180, 16), torch.randn(180, 4))
    layers = [
        torch.nn.Linear(16, 64),
        torch.nn.BatchNorm1d(64),
        torch.nn.ReLU(),
        torch.nn.Dropout(0.2),
        torch.nn.Linear(64, 4),
    ]
    model = torch.nn.Sequential(*layers)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS)
    with stayfast.run(f"file://{folder}/run", total_steps=STEPS) as run, open(folder / "samples", "a") as log:
        run.track(model=model, optimizer=optimizer, schedule=schedule)
        source = batches(kind, run, data)
        for step in run.steps():
            which, x, y = next(source)
            optimizer.zero_grad()
            (model(x) - y).square().mean().backward()
            optimizer.step()
            schedule.step()
            log.write(json.dumps([step, run.attempt, which.tolist()]) + "\n")
            log.flush()
            if step % 7 == 0:
                run.save()
            time.sleep(0.004)
    state = b"".join(value.numpy().tobytes() for value in model.state_dict().values())
    (folder / "final").write_text(hashlib.sha256(state).hexdigest())


def attempt(folder: Path, kind: str, number: int | None, after_steps: int) -> int:
    """Fork, let it run some steps, interrupt it; returns the exit code, 128 + n for a signal."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            train(folder, kind)
            code = 0
        except SystemExit as error:
            code = error.code
        finally:
            os._exit(code)
    if number is not None:
        goal, deadline = steps_done(folder) + after_steps, time.monotonic() + 60
        while steps_done(folder) < goal and time.monotonic() < deadline:
            time.sleep(0.003)
        time.sleep(random.uniform(0.0, 0.01))
        os.kill(pid, number)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return status if status >= 0 else 128 - status


def steps_done(folder: Path) -> int:
    path = folder / "samples"
    return len(path.read_text().splitlines()) if path.exists() else 0


def main() -> None:
    folder, kind, interruptions, seed = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    chance = random.Random(seed)
    codes = []
    for _ in range(interruptions):
        number = chance.choice((signal.SIGTERM, signal.SIGKILL))
        codes.append(attempt(folder, kind, number, chance.randint(2, 30)))
    last = attempt(folder, kind, None, 0)
    lines = [json.loads(line) for line in (folder / "samples").read_text().splitlines()]
    counted = {step: samples for step, _, samples in lines}  # of a repeated step the last run of it counts
    print(
        json.dumps(
            {
                "final": (folder / "final").read_text(),
                "codes": codes,
                "last": last,
                "samples": counted,
                "ran": len(lines),
            }
        )
    )


if __name__ == "__main__":
    main()
