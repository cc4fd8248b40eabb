"""A Hugging Face Trainer on a tiny random model with dropout, random masking and evaluations, taken away often."""

import os
import runpy
import signal
import sys
import time
import warnings

import torch
from fork_ranks import child, end, lines, refusal, say, signal_after
from transformers import BertConfig, BertForMaskedLM, Trainer, TrainerCallback, TrainingArguments
from transformers.utils import logging

from stayfast.integrations.transformers import StayfastCallback
from stayfast.runtime.checkpoint.policies import EverySteps

warnings.simplefilter("ignore")
logging.set_verbosity_error()
folder = sys.argv[1]
SAMPLES, BATCH, ACCUMULATE, EPOCHS = 30, 3, 2, 3
TOTAL = EPOCHS * SAMPLES // BATCH // ACCUMULATE


class Data(torch.utils.data.Dataset):
    def __init__(self, size: int) -> None:
        self.size = size

    def __len__(self):
        return self.size

    def __getitem__(self, index):
        words = torch.randint(2, 30, (8,), generator=torch.Generator().manual_seed(index))
        return {"input_ids": words, "labels": words.clone()}


class Collate:
    """Masks at random, from the global generator, as DataCollatorForLanguageModeling does."""

    def __call__(self, rows):
        batch = {name: torch.stack([row[name] for row in rows]) for name in ("input_ids", "labels")}
        batch["input_ids"] = batch["input_ids"].masked_fill(torch.rand(batch["input_ids"].shape) < 0.3, 1)
        return batch


class Log(TrainerCallback):
    def __init__(self, path: str) -> None:
        self.path = path

    def on_step_end(self, args, state, control, **kwargs):
        with open(self.path, "a") as file:
            file.write(f"{state.global_step}\n")
        time.sleep(0.02)

    def on_prediction_step(self, args, state, control, **kwargs):
        with open(self.path.replace(".steps", ".evaluated"), "a") as file:
            file.write(f"{state.global_step}\n")
        time.sleep(0.05)


class Logged(BertForMaskedLM):
    path = ""

    def forward(self, input_ids, labels=None, **rest):
        if self.training:
            with open(self.path, "a") as file:
                file.write(f"{int((input_ids * torch.arange(1, input_ids.numel() + 1).view_as(input_ids)).sum())}\n")
        return super().forward(input_ids, labels=labels, **rest)


def train(name: str, every: int = 1000, begin=StayfastCallback.train, **arguments) -> None:
    torch.set_num_threads(1)
    torch.manual_seed(1)
    config = BertConfig(vocab_size=30, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16)
    model = Logged(config)
    Logged.path = f"{folder}/{name}.batches"
    survive = StayfastCallback(f"file://{folder}/{name}", cadence=EverySteps(every))
    trainer = Trainer(
        model=model,
        args=TrainingArguments(
            output_dir=f"{folder}/{name}-out",
            num_train_epochs=EPOCHS,
            per_device_train_batch_size=BATCH,
            gradient_accumulation_steps=ACCUMULATE,
            learning_rate=0.01,
            warmup_steps=3,
            eval_strategy="epoch",
            save_strategy="no",
            remove_unused_columns=False,
            report_to=[],
            disable_tqdm=True,
            use_cpu=True,
            logging_steps=4,
            seed=7,
            **arguments,
        ),
        train_dataset=Data(SAMPLES),
        eval_dataset=Data(24),
        data_collator=Collate(),
        callbacks=[Log(f"{folder}/{name}.steps"), survive],
    )
    begin(survive, trainer)
    state = {"model": model.state_dict(), "step": trainer.state.global_step, "lr": trainer.lr_scheduler.get_last_lr()}
    torch.save(state, f"{folder}/{name}.pt")


def same(name: str) -> bool:
    base, other = torch.load(f"{folder}/base.pt"), torch.load(f"{folder}/{name}.pt")
    equal = all(torch.equal(base["model"][key], other["model"][key]) for key in base["model"])
    return equal and base["step"] == other["step"] and base["lr"] == other["lr"]


say(base=end([child(lambda: train("base"))]), steps=len(lines(f"{folder}/base.steps")))
codes = []
for count in (1, 4, 5, 8, 10, 14):  # 5 and 10 end an epoch, before its evaluation
    codes.append(signal_after(child(lambda: train("term")), f"{folder}/term.steps", count, signal.SIGTERM))
codes.append(end([child(lambda: train("term"))])[0])
batches = lines(f"{folder}/term.batches") == lines(f"{folder}/base.batches")
say(
    term=codes, same=same("term"), steps=lines(f"{folder}/term.steps") == lines(f"{folder}/base.steps"), batches=batches
)

codes = []
for count in (4, 10):
    codes.append(signal_after(child(lambda: train("kill", 2)), f"{folder}/kill.steps", count, signal.SIGKILL))
codes.append(end([child(lambda: train("kill", 2))])[0])
say(kill=codes, same=same("kill"), repeated=len(lines(f"{folder}/kill.steps")) - TOTAL)
# Within an evaluation: it is given up, and what follows is the same.
codes = [signal_after(child(lambda: train("val")), f"{folder}/val.evaluated", 1, signal.SIGTERM)]
given_up = len(lines(f"{folder}/val.evaluated"))
codes.append(end([child(lambda: train("val"))])[0])
say(
    val=codes,
    same=same("val"),
    batches=lines(f"{folder}/val.batches") == lines(f"{folder}/base.batches"),
    given_up=given_up,
)

say(again=end([child(lambda: train("term"))]), steps=len(lines(f"{folder}/term.steps")) - TOTAL)
end([child(lambda: refusal(lambda: train("no", begin=lambda _survive, trainer: trainer.train())))])
end([child(lambda: refusal(lambda: train("no", ignore_data_skip=True)))])
os.environ["RUN_URL"] = f"file://{folder}/guide"
say(guide=end([child(lambda: runpy.run_path(sys.argv[2]))]))
