"""Logistic regression by stochastic gradient descent, in NumPy alone; kill it whenever you like."""

import hashlib
import json
import os
import time

import numpy as np

import stayfast

URL = os.environ.get("RUN_URL", "file://" + os.path.abspath("run"))
PAUSE_SECONDS = float(os.environ.get("PAUSE_SECONDS", "0.02"))  # stands for the work of a real step

data = np.random.default_rng(1)
features = data.normal(size=(512, 16))
labels = (features @ data.normal(size=16) > 0).astype(np.float64)

model = {"weights": np.zeros(16), "bias": np.zeros(1)}
order = np.random.default_rng(7)  # a generator of our own: NumPy's global one is tracked anyway


def restore_order(state):
    order.bit_generator.state = state


with stayfast.run(URL, total_steps=120) as run:
    run.track(
        model=(lambda: model, model.update),  # a pair of functions: get, set
        order=(lambda: order.bit_generator.state, restore_order),
    )
    for step in run.steps():
        rows = order.integers(0, len(features), size=32)
        predicted = 1 / (1 + np.exp(-(features[rows] @ model["weights"] + model["bias"])))
        error = predicted - labels[rows]
        model["weights"] = model["weights"] - 0.5 * features[rows].T @ error / len(rows)
        model["bias"] = model["bias"] - 0.5 * error.mean(keepdims=True)
        print(f"attempt {run.attempt} step {step}", flush=True)
        time.sleep(PAUSE_SECONDS)

accuracy = float(((features @ model["weights"] + model["bias"] > 0) == labels).mean())
digest = hashlib.sha256(model["weights"].tobytes() + model["bias"].tobytes()).hexdigest()
with open("result.json", "w") as file:
    json.dump({"accuracy": accuracy, "weights": digest}, file)
print(f"done: accuracy {accuracy:.3f}")
