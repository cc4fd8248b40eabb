"""Hugging Face Trainer: an exception in a training step after a notice."""

import os
import signal
import sys
import time

import torch
from transformers import Trainer, TrainingArguments

from stayfast.integrations.transformers import StayfastCallback

how = sys.argv[2]
cb = StayfastCallback(sys.argv[1])


class M(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.l = torch.nn.Linear(4, 1)
        self.n = 0

    def forward(self, x=None, labels=None):
        self.n += 1
        if how == "raise" and self.n == 6:
            os.kill(os.getpid(), signal.SIGTERM)
            while cb.run.notice is None:
                time.sleep(0.01)
            raise RuntimeError("DataLoader worker (pid 1) exited unexpectedly")
        return {"loss": (self.l(x) - labels).pow(2).mean()}


data = [{"x": torch.randn(4), "labels": torch.randn(1)} for _ in range(20)]
t = Trainer(
    M(),
    TrainingArguments(
        output_dir=sys.argv[1][7:] + "-out",
        per_device_train_batch_size=2,
        num_train_epochs=1,
        report_to=[],
        use_cpu=True,
        save_strategy="no",
        disable_tqdm=True,
    ),
    train_dataset=data,
)
cb.train(t)
print("steps", t.state.global_step, "calls", t.model.n)
