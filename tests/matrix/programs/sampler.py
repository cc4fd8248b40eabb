"""A DataLoader with stayfast's ResumableSampler."""

from common import BATCH, RANK, TOTAL, URL, WORLD, Data, distributed, finish, finish_step, learn, make_model, prepare
from torch.optim import AdamW
from torch.utils.data import DataLoader

import stayfast
from stayfast.integrations.torch import ResumableSampler

prepare()
data = Data()
sampler = ResumableSampler(data, seed=7, replicas=WORLD, rank=RANK)
loader = DataLoader(data, batch_size=BATCH, sampler=sampler, num_workers=2)
module = make_model()
model = distributed(module)
optimizer = AdamW(model.parameters(), lr=0.01)


def without_run() -> None:
    batches = sampler.batches(loader)
    for step in range(TOTAL):
        learn(model, optimizer, next(batches))
        finish_step(step)


def resumable() -> None:
    with stayfast.run(URL, total_steps=TOTAL) as run:
        run.track(model=module, optimizer=optimizer, sampler=sampler)
        run.restore()
        batches = sampler.batches(loader)
        for step in run.steps():
            learn(model, optimizer, next(batches))
            finish_step(step)


resumable() if URL else without_run()
finish(module)
