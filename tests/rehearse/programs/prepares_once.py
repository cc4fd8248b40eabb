"""Wrong: what it prepares is kept, and everything after that is done again."""

import json
import os
import signal
import sys
import time

told = []
signal.signal(signal.SIGTERM, lambda *_: told.append(True))
STEPS = int(os.environ.get("STEPS", "30"))
PAUSE = 0.04

if not os.path.exists("data.json"):
    with open("data.tmp", "w") as file:
        json.dump(list(range(STEPS)), file)
    os.replace("data.tmp", "data.json")
with open("data.json") as file:
    data = json.load(file)

total = 0
for row in data:
    time.sleep(PAUSE)
    total = total * 31 % 1000003 + row
    if told:
        sys.exit(75)

with open("result.tmp", "w") as file:
    file.write(f"{total}\n")
os.replace("result.tmp", "result.txt")
