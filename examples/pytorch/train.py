"""A small network on made-up images; after any interruption it ends in the very same weights."""

import hashlib
import json
import os
import time

import torch
from torch.utils.data import DataLoader, TensorDataset

import stayfast
from stayfast.integrations.torch import ResumableSampler

URL = os.environ.get("RUN_URL", "file://" + os.path.abspath("run"))
PAUSE_SECONDS = float(os.environ.get("PAUSE_SECONDS", "0.02"))  # stands for the work of a real step

torch.manual_seed(7)
torch.set_num_threads(1)
images = torch.randn(256, 3, 8, 8)
labels = (images.mean(dim=(1, 2, 3)) > 0).long()
dataset = TensorDataset(images, labels)

model = torch.nn.Sequential(
    torch.nn.Conv2d(3, 8, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Dropout(0.1), torch.nn.Linear(8 * 36, 2)
)
optimizer = torch.optim.AdamW(model.parameters(), lr=0.003)
schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=80)
sampler = ResumableSampler(len(dataset), seed=7)  # knows which samples of the epoch were taken
loader = DataLoader(dataset, batch_size=16, sampler=sampler)

with stayfast.run(URL, total_steps=80) as run:
    run.track(model=model, optimizer=optimizer, schedule=schedule, sampler=sampler)
    run.restore()
    batches = sampler.batches(loader)
    for step in run.steps():
        inputs, wanted = next(batches)
        loss = torch.nn.functional.cross_entropy(model(inputs), wanted)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        print(f"attempt {run.attempt} step {step} loss {loss.item():.4f}", flush=True)
        time.sleep(PAUSE_SECONDS)

digest = hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in model.parameters())).hexdigest()
with open("result.json", "w") as file:
    json.dump({"weights": digest}, file)
print("done")
