"""Wrong on a small disk: every temporary file has a name of its own, and nobody removes those of killed attempts."""

import json
import os
import signal
import sys
import time

told = []
signal.signal(signal.SIGTERM, lambda *_: told.append(True))
STEPS = 20

state = {"step": 0, "sum": 0, "weights": "x" * 100_000}
if os.path.exists("state.json"):
    with open("state.json") as file:
        state = json.load(file)

while state["step"] < STEPS:
    time.sleep(0.03)
    state["sum"] = state["sum"] * 31 % 1000003 + state["step"]
    state["step"] += 1
    name = f"state-{time.monotonic_ns()}.tmp"
    with open(name, "w") as file:
        json.dump(state, file)
    os.replace(name, "state.json")
    if told:
        sys.exit(75)

with open("result.txt", "w") as file:
    file.write(f"{state['sum']}\n")
