"""Wrong: the state is saved, the random number generator is not."""

import json
import os
import random
import signal
import sys
import time

told = []
signal.signal(signal.SIGTERM, lambda *_: told.append(True))
STEPS = int(os.environ.get("STEPS", "25"))
PAUSE = 0.03

random.seed(7)
state = {"step": 0, "sum": 0}
if os.path.exists("state.json"):
    with open("state.json") as file:
        state = json.load(file)


def save():
    with open("state.json.tmp", "w") as file:
        json.dump(state, file)
        file.flush()
        os.fsync(file.fileno())
    os.replace("state.json.tmp", "state.json")


while state["step"] < STEPS:
    time.sleep(PAUSE)
    state["sum"] = (state["sum"] * 31 + random.randrange(1000)) % 1000003
    state["step"] += 1
    if state["step"] % 5 == 0:
        save()
    if told:
        save()
        sys.exit(75)

with open("result.tmp", "w") as file:
    file.write(f"{state['sum']}\n")
os.replace("result.tmp", "result.txt")
