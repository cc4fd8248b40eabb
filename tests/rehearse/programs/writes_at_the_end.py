"""Wrong: keeps nothing; every restart begins again."""

import os
import signal
import sys
import time

told = []
signal.signal(signal.SIGTERM, lambda *_: told.append(True))
STEPS = int(os.environ.get("STEPS", "25"))
PAUSE = 0.03

state = {"step": 0, "sum": 0}

while state["step"] < STEPS:
    time.sleep(PAUSE)
    state["sum"] = state["sum"] * 31 % 1000003 + state["step"]
    state["step"] += 1
    if told:
        sys.exit(75)

with open("result.tmp", "w") as file:
    file.write(f"{state['sum']}\n")
os.replace("result.tmp", "result.txt")
