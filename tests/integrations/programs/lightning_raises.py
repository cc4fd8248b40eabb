"""Lightning: an exception in a training step after a notice."""

import os
import signal
import sys
import time

import lightning as L
import torch
from torchdata.stateful_dataloader import StatefulDataLoader

from stayfast.integrations.lightning import StayfastCallback

how = sys.argv[2]
cb = StayfastCallback(sys.argv[1])


class M(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.l = torch.nn.Linear(4, 1)
        self.n = 0

    def training_step(self, b, i):
        self.n += 1
        if how == "raise" and self.global_step == 5:
            os.kill(os.getpid(), signal.SIGTERM)
            while cb.run.notice is None:
                time.sleep(0.01)
            raise RuntimeError("DataLoader worker (pid 1) exited unexpectedly")
        return self.l(b[0]).sum()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


dl = StatefulDataLoader(torch.utils.data.TensorDataset(torch.randn(20, 4)), batch_size=2)
t = L.Trainer(
    max_epochs=1, callbacks=[cb], logger=False, enable_progress_bar=False, enable_model_summary=False, accelerator="cpu"
)
m = M()
t.fit(m, dl)
print("steps", t.global_step, "batches", m.n)
