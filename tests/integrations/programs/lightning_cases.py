"""Lightning with two ranks, and with manual optimization, interrupted at chosen batches.

Every case runs first without stayfast: that is the result which the interrupted run must reach. A rank sends the signal
to itself in the middle of a batch, so that the moment is exact.
"""

import logging
import os
import signal
import sys
import warnings

import lightning as L
import torch
from fork_ranks import child, end, lines, refusal, say, start
from torch.utils.data import DistributedSampler
from torchdata.stateful_dataloader import StatefulDataLoader

from stayfast.integrations.lightning import StayfastCallback

warnings.simplefilter("ignore")
for name in ("lightning.pytorch", "lightning.fabric"):
    logging.getLogger(name).setLevel(logging.ERROR)
folder = sys.argv[1]
EPOCHS, BATCH = 3, 4


class Data(torch.utils.data.Dataset):
    def __init__(self, size: int) -> None:
        self.size = size

    def __len__(self):
        return self.size

    def __getitem__(self, index):
        return index, torch.randn(6, generator=torch.Generator().manual_seed(index)) + 0.01 * torch.randn(6)


class Model(L.LightningModule):
    def __init__(self, log: str, stop_at: int, manual: bool) -> None:
        super().__init__()
        self.path, self.stop_at, self.automatic_optimization = log, stop_at, not manual
        self.net = torch.nn.Sequential(torch.nn.Linear(6, 16), torch.nn.Dropout(0.3), torch.nn.Linear(16, 1))

    def training_step(self, batch, number):
        index, x = batch
        loss = (self.net(x) - x.sum(1, keepdim=True)).square().mean()
        path = f"{self.path}.{self.global_rank}"
        with open(path, "a") as file:
            file.write("-".join(str(int(i)) for i in index) + f":{loss.item().hex()}\n")
        if len(lines(path)) >= self.stop_at > 0:
            os.kill(os.getpid(), signal.SIGTERM)
        if self.automatic_optimization:
            return loss
        optimizer = self.optimizers()
        self.manual_backward(loss)
        if number % 3 == 2:
            optimizer.step()
            optimizer.zero_grad()
        return None

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=0.01)


class Ranks(L.LightningDataModule):
    """Its sampler is the program's own, or the one that Lightning makes for a shuffled loader."""

    def __init__(self, own: bool) -> None:
        super().__init__()
        self.own = own

    def train_dataloader(self):
        data = Data(37)
        if self.own:
            return StatefulDataLoader(data, batch_size=BATCH, sampler=DistributedSampler(data, seed=3))
        return StatefulDataLoader(data, batch_size=BATCH, shuffle=True)


def fit(name: str, stop_at: int, *, size: int = 1, manual: bool = False, own: bool = True, alone: bool = False) -> None:
    torch.set_num_threads(1)
    L.seed_everything(5, verbose=False)
    model = Model(f"{folder}/{name}", stop_at, manual)
    trainer = L.Trainer(
        max_epochs=EPOCHS,
        callbacks=[] if alone else [StayfastCallback(f"file://{folder}/{name}.run")],
        accelerator="cpu",
        devices=size,
        strategy="ddp" if size > 1 else "auto",
        logger=False,
        enable_progress_bar=False,
        enable_checkpointing=not alone,
        enable_model_summary=False,
        default_root_dir=folder,
    )
    if size > 1:
        trainer.fit(model, datamodule=Ranks(own))
    else:
        trainer.fit(model, StatefulDataLoader(Data(40), batch_size=BATCH, shuffle=True))
    if trainer.global_rank == 0:
        torch.save({"model": model.state_dict(), "next": torch.rand(4)}, f"{folder}/{name}.pt")


def launch(name: str, stop_at: int = -1, *, size: int = 1, **options) -> list[int]:
    if size == 1:
        return end([child(lambda: fit(name, stop_at, **options))])

    def work(rank: int) -> None:
        rank_of = {"LOCAL_RANK": rank, "GROUP_RANK": 0, "LOCAL_WORLD_SIZE": size, "TORCHELASTIC_RUN_ID": "x"}
        os.environ |= {key: str(value) for key, value in rank_of.items()}
        os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}
        refusal(lambda: fit(name, stop_at, size=size, **options))

    return end(start(size, work, f"{folder}/{name}.{stop_at}.meet"))


def compare(name: str, moments: tuple[int, ...], **options) -> None:
    base = launch(f"{name}-alone", alone=True, **options)
    codes = [launch(name, moment, **options) for moment in moments] + [launch(name, **options)]
    one, other = torch.load(f"{folder}/{name}-alone.pt"), torch.load(f"{folder}/{name}.pt")
    same = all(torch.equal(one["model"][key], other["model"][key]) for key in one["model"])
    order = [lines(f"{folder}/{name}-alone.{rank}") == lines(f"{folder}/{name}.{rank}") for rank in range(len(base))]
    say(base=base, codes=codes, order=order, same=same and torch.equal(one["next"], other["next"]))


compare("manual", (2, 10, 11, 14, 25), manual=True)  # 10 batches in an epoch; an optimizer step after every third
compare("ranks", (2, 5, 6, 8, 10, 13, 15), size=2)  # 5 batches in an epoch
launch("injected", size=2, own=False)
