"""Wrong: writes its shards once, each in its place, and keeps nothing of what it does with them."""

import os
import signal
import sys
import time

told = []
signal.signal(signal.SIGTERM, lambda *_: told.append(True))
SHARDS = 20
PAUSE = 0.03

os.makedirs("shards", exist_ok=True)
for number in range(SHARDS):
    if not os.path.exists(f"shards/{number}"):
        with open("shards/tmp", "w") as file:
            file.write(str(number))
        os.replace("shards/tmp", f"shards/{number}")

total = 0
for step in range(2 * SHARDS):
    with open(f"shards/{step % SHARDS}") as file:
        total = total * 31 % 1000003 + int(file.read())
    time.sleep(PAUSE)
    if told:
        sys.exit(75)

with open("result.tmp", "w") as file:
    file.write(f"{total}\n")
os.replace("result.tmp", "result.txt")
