"""Wrong: the result is written in place, and its existence means that all is done."""

import json
import os
import signal
import sys
import time

told = []
signal.signal(signal.SIGTERM, lambda *_: told.append(True))
STEPS = int(os.environ.get("STEPS", "25"))
PAUSE = 0.03

if os.path.exists("result.txt"):
    sys.exit(0)

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
    state["sum"] = state["sum"] * 31 % 1000003 + state["step"]
    state["step"] += 1
    if state["step"] % 5 == 0:
        save()
    if told:
        save()
        sys.exit(75)

with open("result.txt", "w") as file:
    file.write(f"{state['sum']}\n")
