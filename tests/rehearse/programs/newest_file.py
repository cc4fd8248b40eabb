"""Wrong: a new file per checkpoint, and the newest is taken without a look at it."""

import json
import os
import signal
import sys
import time

told = []
signal.signal(signal.SIGTERM, lambda *_: told.append(True))
STEPS = int(os.environ.get("STEPS", "25"))
PAUSE = 0.03

state = {"step": 0, "sum": 0}
found = sorted(name for name in os.listdir(".") if name.startswith("checkpoint-"))
if found:
    with open(found[-1]) as file:
        state = json.load(file)


def save():
    with open(f"checkpoint-{state['step']:04d}.json", "w") as file:
        json.dump(state, file)


while state["step"] < STEPS:
    time.sleep(PAUSE)
    state["sum"] = state["sum"] * 31 % 1000003 + state["step"]
    state["step"] += 1
    if state["step"] % 5 == 0:
        save()
    if told:
        save()
        sys.exit(75)

with open("result.tmp", "w") as file:
    file.write(f"{state['sum']}\n")
os.replace("result.tmp", "result.txt")
