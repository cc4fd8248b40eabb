"""A loop with accelerate: model, optimizer and loader are prepared, a resumed run skips the first batches."""

import torch
from accelerate import Accelerator, skip_first_batches
from accelerate.utils import DataLoaderConfiguration
from common import BATCH, TOTAL, URL, Data, finish, finish_step, loss_of, make_model
from torch.utils.data import DataLoader

import stayfast

torch.set_num_threads(1)
accelerator = Accelerator(cpu=True, dataloader_config=DataLoaderConfiguration(use_seedable_sampler=True, data_seed=7))
torch.manual_seed(7)
loader = DataLoader(Data(), batch_size=BATCH, shuffle=True, num_workers=2, generator=torch.Generator())
module = make_model()
model, optimizer, loader = accelerator.prepare(module, torch.optim.AdamW(module.parameters(), lr=0.01), loader)


def learn(batch: torch.Tensor) -> None:
    loss = loss_of(model, batch)
    optimizer.zero_grad()
    accelerator.backward(loss)
    optimizer.step()


def unmodified() -> None:
    for epoch in range(TOTAL // len(loader)):
        loader.set_epoch(epoch)
        for position, batch in enumerate(loader):
            learn(batch)
            finish_step(epoch * len(loader) + position)


def resumable() -> None:
    with stayfast.run(URL, total_steps=TOTAL) as run:
        run.track(model=module, optimizer=optimizer.optimizer)
        batches = None
        for step in run.steps():
            epoch, position = divmod(step, len(loader))
            if batches is None or position == 0:
                loader.set_epoch(epoch)
                rest = skip_first_batches(loader, position)
                rest.set_epoch(epoch)
                batches = iter(rest)
            learn(next(batches))
            finish_step(step)


resumable() if URL else unmodified()
finish(module)
