"""``trainer.fit`` that survives: one callback, and a loader that can say where it is."""

import hashlib
import json
import os
import time

import lightning as L
import torch
from torchdata.stateful_dataloader import StatefulDataLoader

from stayfast.integrations.lightning import StayfastCallback

URL = os.environ.get("RUN_URL", "file://" + os.path.abspath("run"))
PAUSE_SECONDS = float(os.environ.get("PAUSE_SECONDS", "0.02"))  # stands for the work of a real step


class Model(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.Linear(16, 1))

    def training_step(self, batch, index):
        return (self.net(batch) - batch.sum(dim=1, keepdim=True)).square().mean()

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=0.01)

    def on_train_batch_end(self, outputs, batch, index):
        print(f"step {self.global_step}", flush=True)
        time.sleep(PAUSE_SECONDS)


L.seed_everything(7)
torch.set_num_threads(1)
model = Model()
loader = StatefulDataLoader(torch.randn(128, 8), batch_size=4, shuffle=True)
trainer = L.Trainer(
    max_epochs=3, callbacks=[StayfastCallback(URL)], accelerator="cpu", logger=False, enable_progress_bar=False
)
trainer.fit(model, loader)

digest = hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in model.parameters())).hexdigest()
with open("result.json", "w") as file:
    json.dump({"steps": trainer.global_step, "weights": digest}, file)
print("done")
