"""The demo's training: a small network learns a function, with shuffled data, noise and momentum.

Everything that a real training loop has to get back exactly is here: weights, optimizer state, the order of the
samples and the random numbers.
"""

from __future__ import annotations

import hashlib
import math
import os
import random
import struct
import sys
import time
from typing import Any

import stayfast

INPUTS, HIDDEN, SAMPLES, BATCH = 4, 12, 256, 8


class Network:
    """One hidden layer, trained by gradient descent with momentum."""

    def __init__(self) -> None:
        chance = random.Random(7)
        size = HIDDEN * (INPUTS + 2)
        self.weights = [chance.gauss(0, 0.5) for _ in range(size)]
        self.momentum = [0.0] * size

    def state_dict(self) -> dict[str, Any]:
        return {"weights": list(self.weights), "momentum": list(self.momentum)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.weights, self.momentum = list(state["weights"]), list(state["momentum"])

    def learn(self, rows: list[tuple[list[float], float]]) -> None:
        """One step on one batch; dropout draws from the global generator, which the run keeps too."""
        gradient = [0.0] * len(self.weights)
        for inputs, wanted in rows:
            self._accumulate(inputs, wanted, gradient)
        for number, slope in enumerate(gradient):
            self.momentum[number] = 0.9 * self.momentum[number] + slope / len(rows)
            self.weights[number] -= 0.05 * self.momentum[number]

    def _accumulate(self, inputs: list[float], wanted: float, gradient: list[float]) -> None:
        width = INPUTS + 2
        active = []
        output = 0.0
        for unit in range(HIDDEN):
            if random.random() < 0.1:
                continue
            base = unit * width
            total = self.weights[base + INPUTS]
            total += sum(w * x for w, x in zip(self.weights[base : base + INPUTS], inputs, strict=True))
            active.append((base, math.tanh(total)))
            output += self.weights[base + INPUTS + 1] * active[-1][1]
        error = output - wanted
        for base, level in active:
            back = error * self.weights[base + INPUTS + 1] * (1 - level * level)
            for number, value in enumerate(inputs):
                gradient[base + number] += back * value
            gradient[base + INPUTS] += back
            gradient[base + INPUTS + 1] += error * level

    def fingerprint(self) -> str:
        """Equal only if every weight is, to the last bit."""
        return hashlib.sha256(struct.pack(f"{len(self.weights)}d", *self.weights)).hexdigest()


class Shuffle:
    """An endless pass over the samples in shuffled order that knows where it is."""

    def __init__(self) -> None:
        self.order: list[int] = []
        self.place = 0

    def state_dict(self) -> dict[str, Any]:
        return {"order": list(self.order), "place": self.place}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.order, self.place = list(state["order"]), state["place"]

    def batch(self) -> list[int]:
        if self.place + BATCH > len(self.order):
            self.order = random.sample(range(SAMPLES), SAMPLES)
            self.place = 0
        self.place += BATCH
        return self.order[self.place - BATCH : self.place]


def _samples() -> list[tuple[list[float], float]]:
    chance = random.Random(11)
    rows = [[chance.uniform(-1, 1) for _ in range(INPUTS)] for _ in range(SAMPLES)]
    return [(row, math.sin(3 * row[0]) * row[1] + row[2] * row[3]) for row in rows]


def main(url: str, steps: int, log: str) -> None:
    """Train, whatever happens; the fingerprint of the weights goes to stdout at the end."""
    random.seed(5)
    network, shuffle, data = Network(), Shuffle(), _samples()
    pause = float(os.environ.get("STAYFAST_DEMO_PAUSE", "0.01"))
    with stayfast.run(url, total_steps=steps) as run, open(log, "a", encoding="utf-8") as notes:
        run.track(network=network, shuffle=shuffle)
        for step in run.steps():
            network.learn([data[number] for number in shuffle.batch()])
            notes.write(f"{step} {run.attempt} {time.time():.3f}\n")
            notes.flush()
            time.sleep(pause)  # a GPU would be busy here
            if step % 20 == 19:
                run.save()
    print(network.fingerprint())  # noqa: T201 - the program's one result


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3])
