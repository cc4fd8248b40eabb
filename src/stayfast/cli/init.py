"""``stayfast init``: a small project that runs here as it is, survives being killed, and can be planned."""

from __future__ import annotations

import argparse
import json
import re
from pathlib import Path

from stayfast.cli.main import add_output
from stayfast.errors import UsageError

_SPEC = """\
# What `stayfast plan` and `stayfast render` read. Editors: stayfast plan --schema prints the JSON Schema.
name: {name}
kind: {kind}                     # train, batch, sweep or serve
image: us-docker.pkg.dev/PROJECT/REPOSITORY/{name}:v1
command: [{command}]

accelerator:
  type: {accelerator}                      # l4, t4, a100-40gb, a100-80gb, h100, h100-mega, h200, b200,
                                # rtx-pro-6000, tpu-v5e or tpu-v6e
  count: {count}                      # per node
nodes: 1                        # nodes that must run together

work:                           # how much there is to do: hours, or {units} with seconds each
{work}
deadline: 72h                   # from submission to done; leave out if there is none

tolerance:
  interruptible: true           # may be stopped and resumed
  # longest_wait: 10m           # how long it may wait for capacity
{state}
location:
  region: us-central1
  # zones: [us-central1-a, us-central1-c]

# budget: 500                   # US dollars
capacity: auto                  # or spot, flex-start, on-demand, hybrid
"""

_TRAIN = '''\
"""Fits a line by gradient descent; kill it whenever you like and start it again.

    python train.py                                     keeps its checkpoints in ./checkpoints
    RUN_URL=gs://… python train.py                      keeps them in a bucket
    STAYFAST_CHECKPOINT_SECONDS=0.2 stayfast rehearse --compare result.json -- python train.py

By itself a run saves every 30 s or less often: of four seconds, a kill without a word would take all.
"""

import json
import os
import random
import time

import stayfast

URL = os.environ.get("RUN_URL", "file://./checkpoints")
PAUSE_SECONDS = float(os.environ.get("PAUSE_SECONDS", "0.02"))  # stands for the work of a real step
model = {"slope": 0.0, "offset": 0.0}
random.seed(7)

with stayfast.run(URL, total_steps=int(os.environ.get("STEPS", "200"))) as run:
    run.track(model=(lambda: dict(model), model.update))  # or anything with state_dict and load_state_dict
    for step in run.steps():
        x = random.random()  # the generators are tracked too: a resumed run draws what it would have drawn
        error = model["slope"] * x + model["offset"] - (3.0 * x + 1.0)
        model["slope"] -= 0.1 * error * x
        model["offset"] -= 0.1 * error
        time.sleep(PAUSE_SECONDS)

with open("result.json", "w") as file:  # reached only when all steps are done
    json.dump(model, file)
print(f"done: {model['slope']:.6f} x + {model['offset']:.6f}")
'''

_BATCH = '''\
"""Counts letters, one item at a time; kill workers whenever you like.

    stayfast enqueue --queue sqlite://./work.db items.jsonl
    stayfast work tasks:count --queue sqlite://./work.db --sink 'sqlite://./results.db?table=results'
    stayfast audit --queue sqlite://./work.db --sink 'sqlite://./results.db?table=results'
"""

import stayfast


@stayfast.task(each=True)
def count(item):
    return {"letters": sum(letter.isalpha() for letter in item["text"])}
'''


def configure(parser: argparse.ArgumentParser) -> None:
    """The options."""
    parser.epilog = """\
examples:
  stayfast init train my-run        a loop, and stayfast.yaml to plan with
  stayfast init batch my-batch      a task, a hundred items, and stayfast.yaml"""
    parser.add_argument("kind", choices=("train", "batch"), help="a loop with steps, or a task over items")
    parser.add_argument("directory", metavar="DIR", help="made if it is not there; nothing in it is overwritten")
    add_output(parser)


def run(args: argparse.Namespace) -> int:
    """Write the files, all or none."""
    target = Path(args.directory)
    files = _files(args.kind, _name(target))
    taken = [name for name in files if (target / name).exists()]
    if taken:
        raise UsageError(f"{target} has {', '.join(taken)} already", help="name another directory")
    made: list[Path] = []
    try:
        target.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            with (target / name).open("x", encoding="utf-8") as file:
                made.append(target / name)
                file.write(text)
    except OSError as error:
        for path in made:
            path.unlink(missing_ok=True)
        raise UsageError(f"{target} cannot be written ({error.strerror})", help="name another directory") from error
    if args.output == "json":
        print(json.dumps({"directory": str(target), "files": list(files)}))
        return 0
    print(f"wrote {', '.join(files)} to {target}")
    first = "python train.py" if args.kind == "train" else "stayfast enqueue --queue sqlite://./work.db items.jsonl"
    print(f"next: cd {target}")
    if args.kind == "train":  # first, because a finished run has nothing left to lose
        print("      STAYFAST_CHECKPOINT_SECONDS=0.2 stayfast rehearse --compare result.json -- python train.py")
    print(f"      {first}")
    print("      stayfast plan -f stayfast.yaml")
    print("      stayfast render -f stayfast.yaml -d deploy")
    return 0


def _name(target: Path) -> str:
    """A Kubernetes name from the directory's."""
    words = re.sub(r"[^a-z0-9]+", "-", target.resolve().name.lower()).strip("-")
    name = words if words[:1].isalpha() else f"run-{words}".rstrip("-")
    return name[:50].rstrip("-")


def _files(kind: str, name: str) -> dict[str, str]:
    if kind == "train":
        work = "  steps: 100000\n  seconds_per_step: 1.7"
        state = (
            f"\nstate:\n  size: 14GB                    # of one checkpoint\n  checkpoints: gs://BUCKET/runs/{name}\n"
        )
        spec = _SPEC.format(
            name=name, kind="train", command="python, train.py", accelerator="h100", count=8, units="steps", work=work,
            state=state,
        )  # fmt: skip
        return {"stayfast.yaml": spec, "train.py": _TRAIN}
    work = "  items: 1000000\n  seconds_per_item: 0.1"
    state = (
        "\nqueue: pubsub://PROJECT/SUBSCRIPTION?topic=TOPIC\nsink: gs://BUCKET/results\n"
        "# Here on this machine: sqlite://./work.db and sqlite://./results.db?table=results\n"
    )
    command = 'stayfast, work, "tasks:count"'
    spec = _SPEC.format(
        name=name, kind="batch", command=command, accelerator="l4", count=1, units="items", work=work, state=state
    )
    items = "".join(
        json.dumps({"key": f"item-{index:04d}", "text": "stay fast " * (index % 7)}) + "\n" for index in range(100)
    )
    return {"stayfast.yaml": spec, "tasks.py": _BATCH, "items.jsonl": items}
