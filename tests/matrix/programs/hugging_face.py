"""Hugging Face's Trainer with two loader workers."""

import warnings

import torch
from common import BATCH, FOLDER, TOTAL, URL, Data, finish, finish_step, loss_of, make_model
from transformers import Trainer, TrainerCallback, TrainingArguments
from transformers.utils import logging

from stayfast.integrations.transformers import StayfastCallback

warnings.simplefilter("ignore")
logging.set_verbosity_error()
torch.set_num_threads(1)
torch.manual_seed(7)


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = make_model()

    def forward(self, x):
        return {"loss": loss_of(self.net, x)}


class Rows(Data):
    def __getitem__(self, index):
        return {"x": super().__getitem__(index)}


class Record(TrainerCallback):
    def on_step_end(self, args, state, control, **_kwargs) -> None:
        finish_step(state.global_step - 1)


model = Model()
trainer = Trainer(
    model=model,
    args=TrainingArguments(
        output_dir=f"{FOLDER}/out",
        max_steps=TOTAL,
        per_device_train_batch_size=BATCH,
        learning_rate=0.01,
        dataloader_num_workers=2,
        dataloader_pin_memory=False,
        remove_unused_columns=False,
        save_strategy="no",
        logging_strategy="no",
        report_to=[],
        disable_tqdm=True,
        use_cpu=True,
        seed=7,
    ),
    train_dataset=Rows(),
    callbacks=[Record()],
)
StayfastCallback(URL).train(trainer) if URL else trainer.train()
finish(model.net)
