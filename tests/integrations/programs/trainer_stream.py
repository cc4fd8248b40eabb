"""A Hugging Face Trainer on data without a length: exact within the first pass, refused after it."""

import signal
import sys
import time
import warnings

import torch
from fork_ranks import child, end, lines, refusal, say, signal_after
from transformers import BertConfig, BertForMaskedLM, Trainer, TrainerCallback, TrainingArguments
from transformers.utils import logging

from stayfast.integrations.transformers import StayfastCallback

warnings.simplefilter("ignore")
logging.set_verbosity_error()
folder = sys.argv[1]


class Stream(torch.utils.data.IterableDataset):
    """24 samples, 8 batches; ``passes`` times."""

    def __init__(self, passes: int) -> None:
        self.passes = passes

    def __iter__(self):
        for index in list(range(24)) * self.passes:
            words = torch.randint(2, 30, (8,), generator=torch.Generator().manual_seed(index))
            yield {"input_ids": words, "labels": words.clone()}


class Log(TrainerCallback):
    def __init__(self, path: str) -> None:
        self.path = path

    def on_step_end(self, args, state, control, **kwargs):
        with open(self.path, "a") as file:
            file.write(f"{state.global_step}\n")
        time.sleep(0.03)


def train(name: str, passes: int, alone: bool = False) -> None:
    torch.set_num_threads(1)
    torch.manual_seed(7)
    config = BertConfig(vocab_size=30, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16)
    trainer = Trainer(
        model=BertForMaskedLM(config),
        args=TrainingArguments(
            output_dir=f"{folder}/out",
            max_steps=20,
            per_device_train_batch_size=3,
            save_strategy="no",
            report_to=[],
            use_cpu=True,
            disable_tqdm=True,
        ),
        train_dataset=Stream(passes),
        callbacks=[Log(f"{folder}/{name}.steps")],
    )
    if alone:
        trainer.train()
    else:
        StayfastCallback(f"file://{folder}/{name}").train(trainer)
    torch.save(trainer.model.state_dict(), f"{folder}/{name}.pt")


codes = end([child(lambda: train("alone", 100, alone=True))])
codes.append(signal_after(child(lambda: train("term", 1)), f"{folder}/term.steps", 3, signal.SIGTERM))
codes += end([child(lambda: refusal(lambda: train("term", 1)))])
refused_at = len(lines(f"{folder}/term.steps"))
codes.append(signal_after(child(lambda: train("term", 100)), f"{folder}/term.steps", 11, signal.SIGTERM))
codes += end([child(lambda: train("term", 100))])
one, other = torch.load(f"{folder}/alone.pt"), torch.load(f"{folder}/term.pt")
same = all(torch.equal(one[key], other[key]) for key in one)
say(codes=codes, refused_at=refused_at, steps=[int(line) for line in lines(f"{folder}/term.steps")], same=same)
