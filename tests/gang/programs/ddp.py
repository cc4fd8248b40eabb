"""A small data-parallel training: every step has a collective, every rank its own shuffle and noise."""

import hashlib
import os
import sys
import time

import torch
import torch.distributed as dist

import stayfast

url, out, steps, pause = sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4])
dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(1)
model = torch.nn.Linear(32, 32)
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
torch.manual_seed(100 + rank)
with stayfast.run(url, total_steps=steps) as run:
    run.track(model=model, optimizer=optimizer)
    for step in run.steps():
        x = torch.randn(8, 32)
        loss = (model(x) - x.flip(1)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        for p in model.parameters():
            dist.all_reduce(p.grad)
        optimizer.step()
        with open(f"{out}.steps-{rank}", "a") as log:
            log.write(f"{step}\n")
        if os.environ.get("SAVE_EVERY") and step % int(os.environ["SAVE_EVERY"]) == 0:
            run.save()
        time.sleep(pause * (1 + rank))
digest = hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in model.parameters())).hexdigest()
with open(f"{out}.final-{rank}", "w") as f:
    f.write(digest)
dist.destroy_process_group()
