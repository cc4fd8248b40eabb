"""torchdata's StatefulDataLoader, tracked by the run."""

from common import BATCH, RANK, TOTAL, URL, WORLD, Data, distributed, finish, finish_step, learn, make_model, prepare
from torch import Generator
from torch.optim import AdamW
from torchdata.stateful_dataloader import StatefulDataLoader
from torchdata.stateful_dataloader.sampler import StatefulDistributedSampler

import stayfast

prepare()
data = Data()
sampler = StatefulDistributedSampler(data, WORLD, RANK, seed=7)
loader = StatefulDataLoader(data, batch_size=BATCH, sampler=sampler, num_workers=2, generator=Generator())
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
    length = len(loader)
    with stayfast.run(URL, total_steps=TOTAL) as run:
        run.track(model=module, optimizer=optimizer, loader=loader)
        batches = None
        for step in run.steps():
            if batches is None or step % length == 0:
                sampler.set_epoch(step // length)
                batches = iter(loader)
            batch = next(batches, None)
            if batch is None:  # the checkpoint was taken after the last batch of an epoch
                batches = iter(loader)
                batch = next(batches)
            learn(model, optimizer, batch)
            finish_step(step)


resumable() if URL else unmodified()
finish(module)
