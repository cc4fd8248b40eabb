"""Wrong: its log and its marks stay and tell how far it was, but nobody reads them."""

import os
import signal
import sys
import time

told = []
signal.signal(signal.SIGTERM, lambda *_: told.append(True))
STEPS = int(os.environ.get("STEPS", "25"))
PAUSE = 0.03

total = 0
os.makedirs("done", exist_ok=True)
with open("train.log", "a") as log:
    for step in range(STEPS):
        time.sleep(PAUSE)
        total = total * 31 % 1000003 + step
        print(f"step {step} of {STEPS}", file=log, flush=True)
        with open(f"done/{step}", "a"):
            pass
        if told:
            sys.exit(75)

with open("result.tmp", "w") as file:
    file.write(f"{total}\n")
os.replace("result.tmp", "result.txt")
