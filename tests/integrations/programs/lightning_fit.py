"""A Lightning training with dropout, a schedule, accumulation, validation and shuffled data, taken away often."""

import logging
import os
import runpy
import signal
import sys
import time
import warnings

import lightning as L
import torch
from fork_ranks import child, end, lines, refusal, say, signal_after
from torchdata.stateful_dataloader import StatefulDataLoader

from stayfast.integrations.lightning import StayfastCallback
from stayfast.runtime.checkpoint.policies import EverySteps

warnings.simplefilter("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
folder = sys.argv[1]
EPOCHS, SAMPLES, BATCH = 3, 40, 4
TOTAL = EPOCHS * SAMPLES // BATCH


class Data(torch.utils.data.Dataset):
    def __len__(self):
        return SAMPLES

    def __getitem__(self, index):
        return index, torch.randn(6, generator=torch.Generator().manual_seed(index)) + 0.01 * torch.randn(6)


class Model(L.LightningModule):
    def __init__(self, log: str) -> None:
        super().__init__()
        self.log_path = log
        self.save_hyperparameters({"weird": object()})
        self.net = torch.nn.Sequential(
            torch.nn.Linear(6, 16), torch.nn.BatchNorm1d(16), torch.nn.Dropout(0.3), torch.nn.Linear(16, 1)
        )

    def training_step(self, batch, _index):
        index, x = batch
        with open(self.log_path, "a") as file:
            file.write("-".join(str(int(i)) for i in index) + "\n")
        time.sleep(0.01)
        return (self.net(x) - x.sum(1, keepdim=True)).square().mean()

    def validation_step(self, batch, _index):
        if not self.trainer.sanity_checking:
            with open(self.log_path.replace(".order", ".validated"), "a") as file:
                file.write(f"{self.trainer.current_epoch}\n")
            time.sleep(0.05)
        self.log("loss", self.net(batch[1]).square().mean() + torch.rand(()))

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=0.01)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, TOTAL)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


def fit(name: str, every: int = 1000, loader_type: type = StatefulDataLoader) -> None:
    torch.set_num_threads(1)
    L.seed_everything(5, verbose=False)
    model = Model(f"{folder}/{name}.order")
    loader = loader_type(Data(), batch_size=BATCH, shuffle=True)
    validation = torch.utils.data.DataLoader(Data(), batch_size=10)
    trainer = L.Trainer(
        max_epochs=EPOCHS,
        accumulate_grad_batches=2,
        callbacks=[StayfastCallback(f"file://{folder}/{name}", cadence=EverySteps(every))],
        accelerator="cpu",
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=folder,
    )
    trainer.fit(model, loader, validation)
    state = {"model": model.state_dict(), "step": trainer.global_step, "epoch": trainer.current_epoch}
    torch.save(state, f"{folder}/{name}.pt")


def same(name: str) -> bool:
    base, other = torch.load(f"{folder}/base.pt"), torch.load(f"{folder}/{name}.pt")
    equal = all(torch.equal(base["model"][key], other["model"][key]) for key in base["model"])
    return equal and base["step"] == other["step"] and base["epoch"] == other["epoch"]


say(base=end([child(lambda: fit("base"))]), batches=len(lines(f"{folder}/base.order")))
codes = []
for count in (1, 7, 10, 15, 20, 29):  # among them the last batch of an epoch, before its validation
    codes.append(signal_after(child(lambda: fit("term")), f"{folder}/term.order", count, signal.SIGTERM))
codes.append(end([child(lambda: fit("term"))])[0])
order = lines(f"{folder}/term.order")
say(term=codes, same=same("term"), order=order == lines(f"{folder}/base.order"), batches=len(order))

codes = []
for count in (8, 19):
    pid = child(lambda: fit("kill", every=3))
    codes.append(signal_after(pid, f"{folder}/kill.order", count, signal.SIGKILL))
codes.append(end([child(lambda: fit("kill", every=3))])[0])
say(kill=codes, same=same("kill"), repeated=len(lines(f"{folder}/kill.order")) - TOTAL)

# Within a validation: it is given up, and what follows is the same.
codes = [signal_after(child(lambda: fit("val")), f"{folder}/val.validated", 2, signal.SIGTERM)]
given_up = len(lines(f"{folder}/val.validated"))
codes.append(end([child(lambda: fit("val"))])[0])
say(val=codes, same=same("val"), order=lines(f"{folder}/val.order") == lines(f"{folder}/base.order"), given_up=given_up)

say(again=end([child(lambda: fit("term"))]), batches=len(lines(f"{folder}/term.order")) - TOTAL)
end([child(lambda: refusal(lambda: fit("plain", loader_type=torch.utils.data.DataLoader)))])
os.environ["RUN_URL"] = f"file://{folder}/guide"
say(guide=end([child(lambda: runpy.run_path(sys.argv[2]))]))
