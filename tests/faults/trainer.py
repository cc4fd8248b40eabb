"""A small deterministic trainer: a loader, an RNG, weights that depend on every step before. No framework.

Run as a program it is one attempt: ``trainer.py URL SEED TOTAL ACK_FD``.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import sys
from collections.abc import Callable

import stayfast
from faults import subject
from faults.subject import State

Say = Callable[[str, int], None]


class Loader:
    """Shuffled samples, again and again; its order and place are as much a part of the run as the weights."""

    def __init__(self, seed: int) -> None:
        self.order = list(range(40))
        random.Random(f"{seed}/order").shuffle(self.order)
        self.place = 0

    def __next__(self) -> int:
        if self.place == len(self.order):
            self.place = 0
            random.Random(f"{self.order}").shuffle(self.order)
        self.place += 1
        return self.order[self.place - 1]

    def state_dict(self) -> State:
        return {"order": list(self.order), "place": self.place}

    def load_state_dict(self, state: State) -> None:
        self.order, self.place = list(state["order"]), state["place"]


class Model:
    """Weights that depend on every sample and every random number so far; the numbers come from the program's own
    generator, which nobody tracks by hand."""

    def __init__(self, seed: int) -> None:
        self.state: State = {"frozen": subject.FROZEN, "step": -1, "weights": random.Random(seed).randbytes(4200)}

    def learn(self, step: int, sample: int, noise: int) -> None:
        text = self.state["weights"] + f"{step}/{sample}/{noise}".encode()
        weights = hashlib.shake_256(text).digest(4200)
        self.state = {"frozen": subject.FROZEN, "step": step, "weights": weights}

    def state_dict(self) -> State:
        return self.state

    def load_state_dict(self, state: State) -> None:
        self.state = state


def reference(seed: int, total: int) -> list[State]:
    """The uninterrupted run: its model after each step."""
    model, loader, rng = Model(seed), Loader(seed), random.Random(seed)
    states = []
    for step in range(total):
        model.learn(step, next(loader), rng.getrandbits(64))
        states.append(model.state)
    return states


def digest(state: State) -> str:
    """Every bit of a model."""
    body = {name: value.hex() if isinstance(value, bytes) else value for name, value in state.items()}
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()


def attempt(url: str, seed: int, total: int, say: Say) -> None:
    """One process life of the run, through the front door."""
    model, loader = Model(seed), Loader(seed)
    random.seed(seed)
    with stayfast.run(url, total_steps=total) as run:
        run.track(model=model, loader=loader)
        say("resumed", run.restore() - 1)
        for step in run.steps():
            model.learn(step, next(loader), random.getrandbits(64))
            if step % 2 == 0 or step == total - 1:
                say("begin", step)
            if step % 4 == 0:
                run.save(now=True)
                say("ack", step)
            elif step % 2 == 0:
                run.save()  # beside the loop: nobody is told when
    say("ack", total - 1)
    say("done", total - 1)


def talk(fd: int) -> Say:
    """Acknowledgements through a pipe, each in one write: a killed process leaves whole lines."""
    return lambda kind, step: os.write(fd, f"{kind} {step}\n".encode()) and None


if __name__ == "__main__":
    attempt(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), talk(int(sys.argv[4])))
