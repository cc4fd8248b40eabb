"""What the programs of the matrix share: data, a model, a step, the record of steps and of the result."""

import hashlib
import os
import time

import torch

TOTAL, BATCH = 36, 4
PAUSE_SECONDS = float(os.environ["MATRIX_PAUSE_SECONDS"])  # stands for the work of a real step
FOLDER = os.environ["MATRIX_FOLDER"]
URL = os.environ.get("MATRIX_URL")  # without one, the program runs as if stayfast did not exist
RANK = int(os.environ.get("RANK", "0"))
WORLD = int(os.environ.get("WORLD_SIZE", "1"))


class Data(torch.utils.data.Dataset):
    def __init__(self, size: int = 48) -> None:
        self.size = size

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index):
        return torch.randn(6, generator=torch.Generator().manual_seed(index))


def prepare() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(7)
    if WORLD > 1:
        torch.distributed.init_process_group("gloo")


def make_model() -> torch.nn.Module:
    return torch.nn.Sequential(torch.nn.Linear(6, 16), torch.nn.GELU(), torch.nn.Dropout(0.1), torch.nn.Linear(16, 1))


def distributed(model: torch.nn.Module) -> torch.nn.Module:
    return torch.nn.parallel.DistributedDataParallel(model) if WORLD > 1 else model


def loss_of(model: torch.nn.Module, batch: torch.Tensor) -> torch.Tensor:
    return (model(batch) - batch.sum(1, keepdim=True)).square().mean()


def learn(model: torch.nn.Module, optimizer: torch.optim.Optimizer, batch: torch.Tensor) -> None:
    loss = loss_of(model, batch)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


def finish_step(step: int) -> None:
    time.sleep(PAUSE_SECONDS)
    with open(f"{FOLDER}/steps-{RANK}", "a") as file:
        file.write(f"{step}\n")


def finish(model: torch.nn.Module) -> None:
    digest = hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in model.state_dict().values())).hexdigest()
    with open(f"{FOLDER}/result-{RANK}", "w") as file:
        file.write(digest)
    if WORLD > 1 and torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()
