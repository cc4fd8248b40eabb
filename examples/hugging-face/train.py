"""A ``Trainer`` that survives, on a tiny model with random weights: nothing is downloaded."""

import hashlib
import json
import os
import time

import torch
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainerCallback, TrainingArguments

from stayfast.integrations.transformers import StayfastCallback

URL = os.environ.get("RUN_URL", "file://" + os.path.abspath("run"))
PAUSE_SECONDS = float(os.environ.get("PAUSE_SECONDS", "0.02"))  # stands for the work of a real step


def row(index):
    words = torch.randint(0, 50, (8,), generator=torch.Generator().manual_seed(index))
    return {"input_ids": words, "labels": torch.tensor(index % 2)}


class Tell(TrainerCallback):
    def on_step_end(self, args, state, control, **kwargs):
        print(f"step {state.global_step}", flush=True)
        time.sleep(PAUSE_SECONDS)


torch.manual_seed(7)
torch.set_num_threads(1)
config = BertConfig(vocab_size=50, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16)
model = BertForSequenceClassification(config)
survive = StayfastCallback(URL)
arguments = TrainingArguments(
    "out", num_train_epochs=5, save_strategy="no", report_to=[], use_cpu=True, disable_tqdm=True
)
trainer = Trainer(
    model=model, args=arguments, train_dataset=[row(index) for index in range(96)], callbacks=[Tell(), survive]
)
survive.train(trainer)  # instead of trainer.train()

digest = hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in model.parameters())).hexdigest()
with open("result.json", "w") as file:
    json.dump({"steps": trainer.state.global_step, "weights": digest}, file)
print("done")
