"""Wrong: saves inside the handler, with a lock that the interrupted code may hold."""

import json
import os
import signal
import sys
import threading
import time

lock = threading.Lock()
STEPS = int(os.environ.get("STEPS", "25"))
PAUSE = 0.03

state = {"step": 0, "sum": 0}
if os.path.exists("state.json"):
    with open("state.json") as file:
        state = json.load(file)


def save():
    with lock:
        write()


def write():
    with open("state.json.tmp", "w") as file:
        json.dump(state, file)
        file.flush()
        os.fsync(file.fileno())
    os.replace("state.json.tmp", "state.json")


def on_sigterm(*_):
    save()
    sys.exit(75)


signal.signal(signal.SIGTERM, on_sigterm)

while state["step"] < STEPS:
    time.sleep(PAUSE)
    with lock:
        state["sum"] = state["sum"] * 31 % 1000003 + state["step"]
        state["step"] += 1
        time.sleep(PAUSE)
    if state["step"] % 5 == 0:
        save()

with open("result.tmp", "w") as file:
    file.write(f"{state['sum']}\n")
os.replace("result.tmp", "result.txt")
