"""Right: its start is most of its processor time, and it marks what is done in memory that it shares with a file."""

import mmap
import os
import signal
import sys
import time

signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
while time.process_time() < 0.5:  # stands for the imports
    pass

STEPS = 15
if not os.path.exists("marks"):
    with open("marks.tmp", "wb") as file:
        file.write(bytes(STEPS))
    os.replace("marks.tmp", "marks")

with open("marks", "r+b") as file, mmap.mmap(file.fileno(), STEPS) as marks:
    for step in range(STEPS):
        if not marks[step]:
            time.sleep(0.02)
            marks[step] = 1

with open("result.tmp", "w") as file:
    file.write(f"{STEPS} steps\n")
os.replace("result.tmp", "result.txt")
