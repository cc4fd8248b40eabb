"""Lightning's Trainer with a StatefulDataLoader; with two ranks, one epoch of DDP."""

import logging
import warnings

import lightning as L
import torch
from common import BATCH, FOLDER, RANK, TOTAL, URL, WORLD, Data, finish, finish_step, loss_of, make_model
from torchdata.stateful_dataloader import StatefulDataLoader
from torchdata.stateful_dataloader.sampler import StatefulDistributedSampler

from stayfast.integrations.lightning import StayfastCallback

warnings.simplefilter("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
torch.set_num_threads(1)
L.seed_everything(7, verbose=False)


class Model(L.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.net = make_model()

    def training_step(self, batch, _index):
        return loss_of(self.net, batch)

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=0.01)


class Record(L.Callback):
    def on_train_batch_end(self, trainer, *_args) -> None:
        finish_step(trainer.global_step - 1)


if WORLD > 1:
    data = Data(BATCH * TOTAL * WORLD)
    sampler = StatefulDistributedSampler(data, WORLD, RANK, seed=7)
    loader = StatefulDataLoader(data, batch_size=BATCH, sampler=sampler, num_workers=2)
else:
    loader = StatefulDataLoader(Data(), batch_size=BATCH, shuffle=True, num_workers=2)
model = Model()
trainer = L.Trainer(
    max_steps=TOTAL,
    callbacks=[Record(), *([StayfastCallback(URL)] if URL else [])],
    accelerator="cpu",
    devices=WORLD,
    strategy="ddp" if WORLD > 1 else "auto",
    use_distributed_sampler=False,
    logger=False,
    enable_checkpointing=False if not URL else None,
    enable_progress_bar=False,
    enable_model_summary=False,
    default_root_dir=FOLDER,
)
trainer.fit(model, loader)
finish(model.net)
