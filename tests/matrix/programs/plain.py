"""A DataLoader with a DistributedSampler; a resumed run passes over the batches of the epoch that were taken."""

import os
from itertools import islice

from common import BATCH, RANK, TOTAL, URL, WORLD, Data, distributed, finish, finish_step, learn, make_model, prepare
from torch import Generator
from torch.optim import AdamW
from torch.utils.data import DataLoader, DistributedSampler

import stayfast

prepare()
data = Data()
sampler = DistributedSampler(data, WORLD, RANK, seed=7)
persistent = os.environ.get("MATRIX_PERSISTENT") == "1"
loader = DataLoader(
    data, batch_size=BATCH, sampler=sampler, num_workers=2, persistent_workers=persistent, generator=Generator()
)
module = make_model()
model = distributed(module)
optimizer = AdamW(model.parameters(), lr=0.01)


def unmodified() -> None:
    for epoch in range(TOTAL // len(loader)):
        sampler.set_epoch(epoch)
        for position, batch in enumerate(loader):
            learn(model, optimizer, batch)
            finish_step(epoch * len(loader) + position)


def resumable() -> None:
    with stayfast.run(URL, total_steps=TOTAL) as run:
        run.track(model=module, optimizer=optimizer)
        batches = None
        for step in run.steps():
            epoch, position = divmod(step, len(loader))
            if batches is None or position == 0:
                sampler.set_epoch(epoch)
                batches = islice(iter(loader), position, None)
            learn(model, optimizer, next(batches))
            finish_step(step)


resumable() if URL else unmodified()
finish(module)
