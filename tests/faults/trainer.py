"""A small deterministic trainer: shuffled samples, an RNG, weights that depend on every step before. No framework.

Run as a program it is one attempt: ``trainer.py URL SEED TOTAL ACK_FD``.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import sys
from collections.abc import Callable

import holdfast
from faults import planted, subject
from faults.subject import State

Say = Callable[[str, int], None]


def first_state(seed: int) -> State:
    """Before step 0."""
    rng = random.Random(seed)
    order = list(range(40))
    rng.shuffle(order)
    return {
        "frozen": subject.FROZEN,
        "step": -1,
        "weights": rng.randbytes(4200),
        "order": order,
        "rng": rng.getstate(),
    }


def advance(state: State, step: int) -> State:
    """One step: what it does depends on the state alone."""
    rng = random.Random()
    rng.setstate(state["rng"])
    order = list(state["order"])
    if step % len(order) == 0:
        rng.shuffle(order)
    sample = order[step % len(order)]
    noise = rng.getrandbits(64)
    weights = hashlib.shake_256(state["weights"] + f"{step}/{sample}/{noise}".encode()).digest(4200)
    return {"frozen": subject.FROZEN, "step": step, "weights": weights, "order": order, "rng": rng.getstate()}


def reference(seed: int, total: int) -> list[State]:
    """The uninterrupted run: its state after each step."""
    states = []
    state = first_state(seed)
    for step in range(total):
        state = advance(state, step)
        states.append(state)
    return states


def digest(state: State) -> str:
    """Every bit of a state."""
    body = {name: value.hex() if isinstance(value, bytes) else value for name, value in state.items()}
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()


class Model:
    """Something with a state, as ``run.track`` wants it."""

    def __init__(self, seed: int) -> None:
        self.state = first_state(seed)

    def state_dict(self) -> State:
        return self.state

    def load_state_dict(self, state: State) -> None:
        self.state = state


def attempt(url: str, seed: int, total: int, say: Say) -> None:
    """One process life of the run, through the front door."""
    model = Model(seed)
    with holdfast.run(url, total_steps=total) as run:
        run.track(model=model)
        say("resumed", run.restore() - 1)
        for step in run.steps():
            model.state = advance(model.state, step)
            if step % 2 == 0 or step == total - 1:
                say("begin", step)
            if planted.is_on("acknowledged before commit"):
                say("ack", step)
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
