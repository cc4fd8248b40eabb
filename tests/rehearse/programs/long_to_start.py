"""Right: its imports take longer than its work, so that no restart is quick; what was done is never done again."""

import os
import signal
import sys
import time

signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
time.sleep(1.6)  # stands for the imports

done = 0
if os.path.exists("done.txt"):
    with open("done.txt") as file:
        done = int(file.read())

while done < 8:
    time.sleep(0.01)
    done += 1
    with open("done.tmp", "w") as file:
        file.write(f"{done}\n")
    os.replace("done.tmp", "done.txt")

with open("result.tmp", "w") as file:
    file.write(f"{done} steps\n")
os.replace("result.tmp", "result.txt")
